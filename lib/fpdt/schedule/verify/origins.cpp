// S7xx: which tokens the rows of activations hold, on every rank and in every call, and whether
// sums over attention tiles are whole.
//
// S5xx proves what the positions that tiles state cover together. This part proves that operands
// hold the tokens that ops state, from the inputs on, wherever rows travel. It follows tokens
// and the parts into which heads are divided, but not layers and micro-batches: rows of the same
// tokens in another layer look alike. Rows of which nothing is known satisfy every op.
#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/schedule/verify/origin_rules.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// The most ops to follow: some ten seconds. Calls that repeat others are not followed.
constexpr std::int64_t kMostFollowed = std::int64_t{1} << 22;

class OriginCheck {
 public:
  OriginCheck(const Schedule& schedule, Findings& findings)
      : schedule_(schedule),
        findings_(findings),
        store_(schedule),
        rules_(schedule, store_, findings) {}

  void run(const std::vector<Call>& calls) {
    begin();
    for (const Call& call : calls) {
      if (findings_.full()) return;
      store_.begin(call);
      if (!store_.repeat()) walk(schedule_.blocks[index(call.block)]);
      store_.end();
      if (!rules_.values().exhausted() && followed_ <= kMostFollowed) continue;
      findings_.add("S704", "blocks." + schedule_.blocks[index(call.block)].name,
                    "rows hold the tokens of more ranks and calls than the verifier follows");
      return;
    }
  }

 private:
  // Sets the contents of the inputs, by their feeds.
  void begin() {
    store_.restart();
    for (const Feed& feed : schedule_.feeds) {
      if (feed.holds == Holds::documents) continue;
      const OriginRun run{feed.rows, true, rules_.token(feed.first, feed.replica)};
      for (std::int64_t i = 0; i < store_.buffer(feed.buffer).slots; ++i) {
        store_.begin_with(feed.buffer, i, feed.row, {run});
      }
    }
  }

  void walk(const Block& block) {
    for (const Op& op : block.ops) {
      if (findings_.full() || rules_.values().exhausted()) return;
      ++followed_;
      rules_.apply(block, op);
    }
  }

  const Schedule& schedule_;
  Findings& findings_;
  OriginStore store_;
  OriginRules rules_;
  std::int64_t followed_ = 0;
};

}  // namespace

void check_origins(const Schedule& schedule, Findings& findings) {
  OriginCheck check(schedule, findings);
  check.run(schedule.train);
  check.run(schedule.evaluate);
}

}  // namespace fpdt
