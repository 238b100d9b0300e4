// The results of a run: for people, as JSON, and as a picture.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/runtime/arena.h"

#include "run/train/training.h"

namespace fpdt {
namespace {

// The bytes that all ranks send in a step, by the schedule.
Traffic predicted_traffic(const Job& job) {
  const Schedule& schedule = job.schedule.schedule();
  Traffic total;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    total += traffic(schedule, schedule.train, rank, job.problem.cluster.devices_per_node);
  }
  return total;
}

Json json(const Traffic& sent) { return {{"node", sent.node}, {"network", sent.network}}; }

}  // namespace

void Run::draw() const {
  if (flags_.draw.empty() || !times_ || !times_->measured()) return;
  times_->draw(flags_.draw, flags_.look);
}

std::vector<std::string> Run::report(int signal) const {
  const MemoryReport memory{memory_,
                            job_.predicted,
                            std::ssize(world_.place().present),
                            !world_.complete(),
                            Bytes{largest(world_, peak_resident_bytes().value)},
                            drivers_,
                            process_memory()};
  const Traffic sent{sum(world_, last_.sent.node), sum(world_, last_.sent.network)};
  if (world_.speaks()) print_report(memory, sent, signal);
  return all_deviations(memory);
}

std::vector<std::string> Run::all_deviations(const MemoryReport& memory) const {
  if (world_.place().processes == 1) return deviations(memory);
  // All report the same spaces, and each the drivers of its own GPUs.
  std::vector<std::string> mine;
  if (world_.speaks()) {
    mine = deviations(memory);
  } else {
    mine = deviations(drivers_);
  }
  std::vector<std::string> all;
  const std::vector<std::string> found = world_.gather(fmt::format("{}", fmt::join(mine, "; ")));
  for (std::size_t process = 0; process < found.size(); ++process) {
    if (!found[process].empty()) all.push_back(fmt::format("rank {}: {}", process, found[process]));
  }
  return all;
}

void Run::print_report(const MemoryReport& memory, const Traffic& sent, int signal) const {
  const double rate = wall_seconds_ > 0 ? static_cast<double>(tokens_) / wall_seconds_ : 0;
  const bool timed = times_ && times_->measured();
  if (flags_.json) {
    Json result{{"steps", trainer_.steps_done()},
                {"stopped_by_signal", signal},
                {"first_loss", losses_.empty() ? Json() : Json(losses_.front())},
                {"loss", losses_.empty() ? Json() : Json(losses_.back())},
                {"evaluation_loss", evaluation_loss_ ? Json(*evaluation_loss_) : Json()},
                {"tokens", tokens_},
                {"seconds", seconds_},
                {"wall_seconds", wall_seconds_},
                {"tokens_per_second", rate},
                {"solo", memory.solo},
                {"processes", world_.place().processes},
                {"schedule", progress_.schedule},
                {"saved", saved_at_ < 0 ? Json() : Json(flags_.save)},
                {"losses", losses_}};
    result.update(peaks_json(memory));
    result["time"] = timed ? Json::parse(json(times_->comparison())) : Json();
    result["products"] = machine_.gpus ? Json::parse(machine_.gpus->products()) : Json();
    result["sent_bytes"] = {{"predicted", json(predicted_traffic(job_))}, {"measured", json(sent)}};
    result["numa"] = json(machine_.homes);
    result["memory"] = json(memory);
    print_result(json_line(result));
  } else if (!losses_.empty()) {
    const std::string loss =
        memory.solo ? "one rank alone, so the loss means nothing"
                    : fmt::format("loss {:.4f} -> {:.4f}", losses_.front(), losses_.back());
    print_result(fmt::format("{} steps, {} tokens in {} ({:.0f} tokens/s); {}\n\n{}",
                             losses_.size(), tokens_, format_clock(wall_seconds_), rate, loss,
                             table(memory)));
    if (timed) print_result(fmt::format("\n{}", table(times_->comparison())));
  }
}

}  // namespace fpdt
