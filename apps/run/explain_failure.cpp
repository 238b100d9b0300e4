// fpdt-run explain-failure: who was first to fail, from the flight records of a run.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/error.h"
#include "fpdt/flight/failure.h"
#include "fpdt/report/live.h"

#include "common/command.h"
#include "common/progress.h"
#include "run/verbs.h"

namespace fpdt {
namespace {

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// "0.012 s", "3:20".
std::string span_text(std::int64_t nanoseconds) {
  const double value = seconds(std::max<std::int64_t>(0, nanoseconds));
  return value < 100 ? fmt::format("{:.3f} s", value) : format_clock(value);
}

// "2026-11-22 14:03:15.120 UTC".
std::string time_text(std::int64_t time) {
  const auto whole = static_cast<std::time_t>(time / 1'000'000'000);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&whole, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  }
  return fmt::format("{}.{:03} UTC", text, time / 1'000'000 % 1000);
}

// "rank 3", "ranks 0 to 3", "ranks 0, 2 and 5", "8 ranks, such as 1 and 4".
std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.back() - ranks.front() + 1 == std::ssize(ranks)) {
    return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  }
  if (ranks.size() > 6) {
    return fmt::format("{} ranks, such as {} and {}", ranks.size(), ranks[0], ranks[1]);
  }
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "),
                     ranks.back());
}

// "step 3", or "saving after step 3".
std::string phase_text(const FlightRecord& record) {
  switch (record.phase) {
    case FlightPhase::training:
      return fmt::format("step {}", record.step);
    case FlightPhase::evaluating:
    case FlightPhase::saving:
      return fmt::format("{} after step {}", word(record.phase), record.step);
    case FlightPhase::starting:
    case FlightPhase::loading:
    case FlightPhase::done:
      break;
  }
  return std::string(word(record.phase));
}

class Report {
 public:
  Report(const Flights& flights, const FlightMap& map)
      : flights_(flights), map_(map), found_(explain(flights, map)) {}

  [[nodiscard]] std::string text() const {
    std::string all = headline() + '\n';
    for (const std::string& line : details()) all += fmt::format("  {}\n", line);
    return all + '\n' + table();
  }

  [[nodiscard]] Json json() const {
    Json cause{{"kind", word(found_.cause)}, {"ranks", found_.ranks}, {"text", headline()}};
    cause["details"] = details();
    cause["op"] = found_.op ? op_json(*found_.op) : Json();
    cause["waiting"] = found_.waiting;
    cause["awaited"] = found_.awaited ? place_json(*map_.at(*found_.awaited)) : Json();
    Json ranks = Json::array();
    for (std::size_t rank = 0; rank < flights_.ranks.size(); ++rank) {
      ranks.push_back(rank_json(rank));
    }
    return {{"ranks", flights_.schedule.ranks},
            {"last_time", seconds(found_.last_time)},
            {"cause", cause},
            {"rank", ranks}};
  }

 private:
  [[nodiscard]] const RankFlight& at(std::int64_t rank) const {
    return flights_.ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const RankFlight& first() const { return at(found_.ranks.front()); }

  [[nodiscard]] std::set<std::string> machines() const {
    std::set<std::string> all;
    for (const RankFlight& one : flights_.ranks) {
      if (one.record) all.insert(one.record->machine);
    }
    return all;
  }

  [[nodiscard]] std::string headline() const {
    if (found_.ranks.empty()) return "no failure: every rank has ended well";
    const std::string who = ranks_text(found_.ranks);
    const auto& record = first().record;
    switch (found_.cause) {
      case FirstCause::failed:
        return fmt::format("first cause: {} failed with exit code {}: {}", who,
                           static_cast<int>(record->failure->code), record->failure->text);
      case FirstCause::gone:
        if (!record) return fmt::format("first cause: {} left no record: {}", who, first().missing);
        return fmt::format(
            "first cause: the process of {} is gone and recorded no end: killed, crashed, or hung "
            "and then ended",
            who);
      case FirstCause::stopped:
        return fmt::format("first cause: the process of {} is stopped, by a signal or a debugger",
                           who);
      case FirstCause::silent:
        return fmt::format(
            "first cause: the process of {} did not run for {}: it was stopped, or its host was "
            "too busy",
            who, span_text(record->silence));
      case FirstCause::behind:
        return fmt::format("no rank recorded a failure of its own; {} has the least progress", who);
      case FirstCause::nothing:
        break;
    }
    return fmt::format("no failure: the process of every rank runs; {} has the least progress",
                       who);
  }

  [[nodiscard]] std::string op_text(FlightPosition position) const {
    const FlightPlace place = *map_.at(position);
    return fmt::format("{}, layer {}", place.name, place.call.layer);
  }

  // The details that the records show about the first of the ranks in question.
  [[nodiscard]] std::vector<std::string> details() const {
    std::vector<std::string> lines;
    if (found_.ranks.empty()) return lines;
    const auto& record = first().record;
    if (record) {
      lines.push_back(fmt::format("rank {} on host {}, process {}, was in phase: {}",
                                  found_.ranks.front(), record->host, record->process,
                                  phase_text(*record)));
      if (found_.ranks.size() == 1) lines.push_back(doing());
      lines.push_back(alive());
      if (first().process == FlightProcess::unknown && !record->failure) {
        lines.push_back(
            fmt::format("only host {} can tell whether its process still runs", record->host));
      }
    }
    if (!found_.behind.empty()) {
      lines.push_back(
          fmt::format("all fell silent within half a second, so the records do not tell who was "
                      "first; {} had the least progress",
                      ranks_text(found_.behind)));
    }
    if (found_.awaited) {
      lines.push_back(fmt::format("{} {} for it in {}", ranks_text(found_.waiting),
                                  found_.waiting.size() == 1 ? "waits" : "wait",
                                  op_text(*found_.awaited)));
    }
    if (found_.lateness && found_.cause != FirstCause::failed) {
      const Lateness& late = *found_.lateness;
      lines.push_back(
          fmt::format("it was the last to arrive at {} of the {} collectives on record, {} behind "
                      "the first in the median",
                      late.last, late.collectives, span_text(late.median)));
    }
    if (!first().log.empty()) lines.push_back("what it said: " + first().log);
    if (found_.gave_up) lines.push_back(gave_up());
    if (machines().size() > 1) {
      lines.push_back("times of different hosts compare only as well as their clocks agree");
    }
    return lines;
  }

  [[nodiscard]] std::string doing() const {
    if (!found_.op) return "no op of it was running";
    const FlightOp& op = *found_.op;
    const FlightPlace place = *map_.at(op.position);
    std::string text = fmt::format("{} {}", word(op.state), op_text(op.position));
    const std::int64_t chunk = chunk_of(place.op->op->name);
    if (chunk >= 0) text += fmt::format(", chunk {}", chunk);
    return fmt::format("{}, micro-batch {}, call {} of {}, on {}, for {}", text,
                       place.call.micro_batch, place.call_number,
                       place.evaluates ? "evaluate" : "train", lane_text(place.op->lane),
                       span_text(first().record->last_time() - op.time));
  }

  [[nodiscard]] std::string alive() const {
    const std::int64_t time = first().record->last_time();
    const std::string text = "last known to be alive at " + time_text(time);
    if (found_.gave_up) {
      const std::int64_t gave_up = at(*found_.gave_up).record->failure->time;
      if (gave_up > time) {
        return fmt::format("{}, {} before the first rank gave up", text, span_text(gave_up - time));
      }
    }
    if (time == found_.last_time) return text;
    return fmt::format("{}, {} before the last sign of life of all ranks", text,
                       span_text(found_.last_time - time));
  }

  [[nodiscard]] std::string gave_up() const {
    const FlightFailure& failure = *at(*found_.gave_up).record->failure;
    return fmt::format("rank {} was the first to give up, at {}: {}", *found_.gave_up,
                       time_text(failure.time), failure.text);
  }

  [[nodiscard]] std::string lane_text(std::int32_t lane) const {
    const Lane& named = map_.program().lanes[static_cast<std::size_t>(lane)];
    return fmt::format("{}.{}", word(named.kind), named.index);
  }

  // A row for each lane. Times count back from the last sign of life of all ranks.
  [[nodiscard]] std::string table() const {
    std::string all = fmt::format("{:<5} {:<16} {:<16} {:<22} {:<10} {:<8} {:>9}  {}\n", "rank",
                                  "host", "process", "phase", "lane", "state", "ago", "last op");
    for (std::int64_t rank = 0; rank < std::ssize(flights_.ranks); ++rank) {
      const auto& record = at(rank).record;
      if (!record) {
        all += fmt::format("{:<5} {}\n", rank, at(rank).missing);
        continue;
      }
      std::string phase = phase_text(*record);
      if (record->failure)
        phase += fmt::format(", exit {}", static_cast<int>(record->failure->code));
      std::string start =
          fmt::format("{:<5} {:<16} {:<16} {:<22}", rank, record->host,
                      fmt::format("{} {}", record->process, word(at(rank).process)), phase);
      for (std::size_t lane = 0; lane < record->lanes.size(); ++lane) {
        const std::optional<FlightOp>& last = record->lanes[lane].last;
        if (!last) continue;
        all += fmt::format("{:<62} {:<10} {:<8} {:>9}  {}\n", start,
                           lane_text(static_cast<std::int32_t>(lane)), word(last->state),
                           span_text(found_.last_time - last->time), op_text(last->position));
        start.clear();
      }
      if (!start.empty()) all += start + '\n';
    }
    return all;
  }

  [[nodiscard]] static Json place_json(const FlightPlace& place) {
    const std::int64_t chunk = chunk_of(place.op->op->name);
    return {{"name", place.name},
            {"layer", place.call.layer},
            {"micro_batch", place.call.micro_batch},
            {"chunk", chunk < 0 ? Json() : Json(chunk)},
            {"calls", place.evaluates ? "evaluate" : "train"},
            {"call", place.call_number}};
  }

  [[nodiscard]] Json op_json(const FlightOp& op) const {
    const FlightPlace place = *map_.at(op.position);
    Json object{{"lane", lane_text(place.op->lane)},
                {"state", word(op.state)},
                {"run", op.position.run},
                {"time", seconds(op.time)}};
    object.update(place_json(place));
    return object;
  }

  [[nodiscard]] Json rank_json(std::size_t rank) const {
    const RankFlight& one = flights_.ranks[rank];
    const Json log = one.log.empty() ? Json() : Json(one.log);
    if (!one.record) return {{"rank", rank}, {"missing", one.missing}, {"log", log}};
    const FlightRecord& record = *one.record;
    Json failure;
    if (record.failure) {
      failure = {{"code", static_cast<int>(record.failure->code)},
                 {"own", record.failure->own},
                 {"time", seconds(record.failure->time)},
                 {"text", record.failure->text}};
    }
    Json lanes = Json::array();
    for (const FlightLane& lane : record.lanes) {
      if (lane.last) lanes.push_back(op_json(*lane.last));
    }
    return {{"rank", rank},
            {"host", record.host},
            {"process", record.process},
            {"process_state", word(one.process)},
            {"phase", word(record.phase)},
            {"step", record.step},
            {"begin_time", seconds(record.begin_time)},
            {"last_time", seconds(record.last_time())},
            {"failure", failure},
            {"lanes", lanes},
            {"log", log}};
  }

  const Flights& flights_;
  const FlightMap& map_;
  Explanation found_;
};

}  // namespace

Command declare_explain_failure(Options& options) {
  struct Flags {
    std::string directory;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  options.value("directory", flags->directory, "The --flight-dir of the run").required();
  options.flag("--json", flags->json, "Print one JSON object");
  return [flags] {
    const Flights flights = read_flights(flags->directory);
    const FlightMap map(flights.schedule);
    const Report report(flights, map);
    print_result(flags->json ? json_line(report.json()) : report.text());
    return static_cast<int>(ExitCode::done);
  };
}

}  // namespace fpdt
