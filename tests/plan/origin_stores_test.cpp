// Which calls of a lowered step the verifier takes for repetitions.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/lower.h"
#include "fpdt/schedule/verify/origin_store.h"
#include "fpdt/spec/edits.h"

#include "problems.h"

namespace fpdt {
namespace {

// Outputs of layers and of segments share a ring on the host, where they are counted in several
// ways. All calls of the middle of a segment look alike, wherever in the ring theirs are.
TEST(OriginStores, LayersWithinSegmentsRepeat) {
  constexpr std::int64_t kLayers = 24, kChunks = 10;
  ModelSpec model = test::tiny_llama();
  model.layers = kLayers;
  Strategy strategy = test::tiny_strategy(20);
  const Problem problem = test::tiny_problem(model, 2, 20 * kChunks);
  strategy.segments = {8, 7, 4, 3, 2};
  strategy = with_stored_from(problem, strategy, {3, kLayers});
  strategy = with_kept(strategy, TensorClass::attention_output, 0.25);
  const Schedule schedule = lower(problem, canonical(problem, strategy)).schedule.schedule();
  OriginStore store(schedule);
  store.restart();
  std::map<std::string, int> walked;
  for (const Call& call : schedule.train) {
    const Block& block = schedule.blocks[index(call.block)];
    store.begin(call);
    if (!store.repeat()) {
      ++walked[block.name];
      for (const Op& op : block.ops) {
        for (const Use& use : operands(op.body)) {
          if (use.access == Access::read) {
            store.read(use.operand);
          } else {
            store.write(use.operand, unknown_rows(store.rows_of(use.operand)));
          }
        }
      }
    }
    store.end();
  }
  for (const Call& call : schedule.train) {
    const std::string& block = schedule.blocks[index(call.block)].name;
    EXPECT_GE(walked[block], 1) << block;
    EXPECT_LE(walked[block], 2) << block;
  }
}

}  // namespace
}  // namespace fpdt
