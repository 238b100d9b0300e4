// Edges suffice: every order that they allow gives the same bits.
#include "fpdt/runtime/interleave.h"

#include <cstring>

#include <gtest/gtest.h>

#include "fpdt/cpu/kernels.h"

#include "tiny.h"

namespace fpdt {
namespace {

std::int64_t wrong_values(const Pipeline& pipeline, const VerifiedSchedule& schedule,
                          std::uint64_t seed) {
  Pool pool(1);
  Kernels kernels(pool);
  Interleaver interleaver(schedule,
                          [&](std::int64_t rank, const Op& op, std::span<const View> views) {
                            kernels.run(op.body, views, rank);
                          });
  std::int64_t wrong = 0;
  for (std::int64_t rank = 0; rank < pipeline.ranks; ++rank) {
    pipeline.fill(rank, [&](BufferIndex buffer, std::int64_t slot) {
      return interleaver.slot(rank, buffer, slot);
    });
  }
  interleaver.run(schedule.schedule().train, seed);
  for (std::int64_t rank = 0; rank < pipeline.ranks; ++rank) {
    wrong += pipeline.wrong(rank, [&](BufferIndex buffer, std::int64_t slot) {
      return interleaver.slot(rank, buffer, slot);
    });
  }
  return wrong;
}

TEST(Interleaver, EverySeedGivesTheSameBits) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    Pipeline pipeline{.ranks = ranks};
    const VerifiedSchedule schedule = pipeline.build();
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      EXPECT_EQ(wrong_values(pipeline, schedule, seed), 0) << "ranks " << ranks << " seed " << seed;
    }
  }
}

// Shows that the test above can fail.
TEST(Interleaver, SomeSeedBetraysAMissingEdge) {
  Pipeline pipeline{.ranks = 2};
  VerifiedSchedule schedule = pipeline.build();
  // Changes the verified schedule on purpose. The object itself is not const.
  for (Op& op : const_cast<Schedule&>(schedule.schedule()).blocks[0].ops) {
    if (op.name == "multiply.2") op.after.clear();
  }
  std::int64_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) wrong += wrong_values(pipeline, schedule, seed);
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace fpdt
