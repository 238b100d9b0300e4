// Fates of chunks against the copies of the schedules that they describe.
#include "fpdt/spec/residency.h"

#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/plan/lowering/lower_ops.h"

#include "drawn_steps.h"

namespace fpdt {
namespace {

// How many chunks of a tensor each layer has spilled when the loss begins.
std::map<std::int64_t, std::int64_t> spilled_in_forward(const Schedule& schedule,
                                                        const std::string& tensor) {
  std::map<std::int64_t, std::int64_t> chunks;
  for (const Call& call : schedule.train) {
    const Block& block = schedule.blocks[static_cast<std::size_t>(call.block)];
    if (block.name == "head") break;
    // "spill_attention_output_new_1.3.3": class 1, chunk 3. Embedding makes the input of layer 0.
    const std::int64_t makes = block.name == "embed" ? 0 : call.layer + 1;
    std::set<std::string> spills;
    for (const Op& op : block.ops) {
      if (op.name.starts_with("spill_" + tensor)) spills.insert(op.name);
    }
    chunks[tensor == "layer_input" ? makes : call.layer] += std::ssize(spills);
  }
  return chunks;
}

TEST(Residencies, AreThoseOfTheSchedule) {
  std::int64_t compared = 0;
  std::set<Fate> seen;
  for (std::uint32_t seed = 0; seed < 800; ++seed) {
    const auto [problem, strategy] = many_chunks(seed);
    if (!check(problem, strategy).empty() || strategy.micro_batches > 1) continue;
    const Geometry shape = geometry(problem, strategy);
    if (shape.extents != shape.chunks) continue;
    ++compared;
    const Schedule schedule = lower_ops(problem, strategy);
    auto inputs = spilled_in_forward(schedule, "layer_input");
    auto outputs = spilled_in_forward(schedule, "attention_output");
    std::int64_t layer = 0;
    for (const LayerResidency& one : residencies(problem, strategy)) {
      EXPECT_EQ(chunks_with(one.output, Fate::host), outputs[layer])
          << "seed " << seed << ", layer " << layer;
      // Inputs within a segment do not outlive forward of their layer.
      if (one.place.first()) {
        EXPECT_EQ(chunks_with(one.input, Fate::host), inputs[layer])
            << "seed " << seed << ", layer " << layer;
      }
      for (const ChunkRun& run : one.output) seen.insert(run.fate);
      ++layer;
    }
  }
  EXPECT_GT(compared, 80);
  EXPECT_EQ(std::ssize(seen), 3);
}

// One input of a segment is stored, and every chunk of every layer has one fate.
TEST(Residencies, CoverAllChunks) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const auto [problem, strategy] = many_chunks(seed);
    if (!check(problem, strategy).empty()) continue;
    const std::int64_t chunks = geometry(problem, strategy).chunks;
    for (const LayerResidency& one : residencies(problem, strategy)) {
      for (const auto& runs : {one.input, one.output}) {
        std::int64_t all = 0;
        for (const ChunkRun& run : runs) all += run.chunks;
        EXPECT_EQ(all, chunks);
      }
      EXPECT_EQ(chunks_with(one.input, Fate::again), one.place.first() ? 0 : chunks);
    }
  }
}

}  // namespace
}  // namespace fpdt
