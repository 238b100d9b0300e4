// S606 and S607: which tokens the inputs hold. In each replica every token is fed once, on one
// rank, and so is every label, where they are fed at all. Document starts are those of the
// sequence, on every rank.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/schedule/roles.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

struct FedRows {
  std::int64_t first = 0;
  std::int64_t end = 0;
  auto operator<=>(const FedRows&) const = default;
};

// The first place where sorted ranges do not follow each other from 0 on; -1 if they do.
std::int64_t break_of(const std::vector<FedRows>& ranges) {
  std::int64_t end = 0;
  for (const FedRows& one : ranges) {
    if (one.first != end) return std::min(one.first, end);
    end = one.end;
  }
  return -1;
}

class Feeds {
 public:
  Feeds(const Schedule& schedule, Findings& findings) : schedule_(schedule), findings_(findings) {}

  void check() {
    for (std::size_t i = 0; i < schedule_.feeds.size(); ++i) check_feed(schedule_.feeds[i], i);
    if (schedule_.feeds.empty() || findings_.any("S60")) return;
    check_rows();
    check_purposes();
    check_tokens();
  }

 private:
  void check_feed(const Feed& feed, std::size_t number) {
    const Buffer& buffer = schedule_.buffers[index(feed.buffer)];
    const std::string where = fmt::format("feeds[{}]", number);
    if (feed.holds == Holds::routes) {
      findings_.add("S606", where, "routes are made by an op, and not fed");
    } else if (buffer.role != Role::input || buffer.dtype != Dtype::i32) {
      findings_.add("S606", where, fmt::format("{} is no input of integers", buffer.name));
    } else if (feed.row < 0 || feed.rows < 1 || feed.rows > buffer.rows() ||
               feed.row > buffer.rows() - feed.rows) {
      findings_.add("S606", where,
                    fmt::format("{} rows from row {} of the {} of {}", feed.rows, feed.row,
                                buffer.rows(), buffer.name));
    }
    const RankBounds first = bounds_over(feed.first, schedule_.ranks);
    const RankBounds replica = bounds_over(feed.replica, schedule_.ranks);
    if (first.least < 0 || first.greatest > INT32_MAX - feed.rows || replica.least < 0 ||
        replica.greatest >= schedule_.ranks) {
      findings_.add("S606", where, "no such token or replica on some rank");
    }
  }

  // Each row of an input once.
  void check_rows() {
    std::map<BufferIndex, std::vector<FedRows>> rows;
    std::map<BufferIndex, Holds> holds;
    for (const Feed& feed : schedule_.feeds) {
      rows[feed.buffer].push_back({feed.row, feed.row + feed.rows});
      if (holds.emplace(feed.buffer, feed.holds).first->second != feed.holds) {
        findings_.add("S606", place(feed.buffer), "holds two kinds of integers");
      }
    }
    for (auto& [buffer, ranges] : rows) {
      std::sort(ranges.begin(), ranges.end());
      const std::int64_t held = schedule_.buffers[index(buffer)].rows();
      const std::int64_t at = break_of(ranges);
      if (at < 0 && ranges.back().end == held) continue;
      findings_.add("S606", place(buffer),
                    fmt::format("row {} is not fed once", at < 0 ? ranges.back().end : at));
    }
  }

  // Ops use what an input holds as what it is, and nothing that is not fed.
  void check_purposes() {
    const std::vector<std::string_view> served = purposes_of(schedule_);
    for (std::size_t i = 0; i < served.size(); ++i) {
      const Buffer& buffer = schedule_.buffers[i];
      if (buffer.role != Role::input || buffer.dtype != Dtype::i32 || served[i].empty()) continue;
      const auto feed =
          std::find_if(schedule_.feeds.begin(), schedule_.feeds.end(),
                       [i](const Feed& one) { return one.buffer == static_cast<BufferIndex>(i); });
      if (feed != schedule_.feeds.end() && word(feed->holds) == served[i]) continue;
      findings_.add("S606", place(static_cast<BufferIndex>(i)),
                    fmt::format("serves as {}, which it is not fed", served[i]));
    }
  }

  void check_tokens() {
    struct Replica {
      std::array<std::vector<FedRows>, 2> fed;  // tokens, labels
    };
    std::map<std::int64_t, Replica> replicas;
    std::set<Holds> fed;
    std::int64_t sequence = 0;
    for (const Feed& feed : schedule_.feeds) {
      if (feed.holds == Holds::documents) continue;
      fed.insert(feed.holds);
      for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
        const std::int64_t first = feed.first.at(rank);
        replicas[feed.replica.at(rank)].fed[feed.holds == Holds::labels ? 1 : 0].push_back(
            {first, first + feed.rows});
        sequence = std::max(sequence, first + feed.rows);
      }
    }
    for (auto& [number, replica] : replicas) {
      for (const Holds holds : {Holds::tokens, Holds::labels}) {
        std::vector<FedRows>& ranges = replica.fed[holds == Holds::labels ? 1 : 0];
        if (fed.count(holds) == 0) continue;
        std::sort(ranges.begin(), ranges.end());
        const std::int64_t at = break_of(ranges);
        const std::int64_t end = ranges.empty() ? 0 : ranges.back().end;
        if (at < 0 && end == sequence) continue;
        findings_.add(
            "S607", fmt::format("feeds of replica {}", number),
            fmt::format("token {} is not fed once among the {}", at < 0 ? end : at, word(holds)));
      }
    }
    for (const Feed& feed : schedule_.feeds) {
      if (feed.holds != Holds::documents) continue;
      const bool whole =
          feed.row == 0 && feed.rows == sequence && is_constant(feed.first) && feed.first.a == 0;
      if (whole) continue;
      findings_.add("S607", place(feed.buffer), "not the document starts of the whole sequence");
    }
  }

  [[nodiscard]] std::string place(BufferIndex buffer) const {
    return "feeds of " + schedule_.buffers[index(buffer)].name;
  }

  const Schedule& schedule_;
  Findings& findings_;
};

}  // namespace

void check_feeds(const Schedule& schedule, Findings& findings) {
  Feeds(schedule, findings).check();
}

}  // namespace fpdt
