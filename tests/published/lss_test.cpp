// The closed forms of Megatron against arithmetic by hand, and what LSS must gain over them.
#include "lss.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fpdt/plan/methods/method.h"

namespace fpdt::test {
namespace {

// 50,112 tokens, 512 wide, 8 heads over 8 GPUs: (34 x 50112 x 512 + 5 x 8 x 50112^2) / 8 bytes in
// each of 6 layers. Embedding and logits: 4 x 50112 x (512 + 256) / 8. States: 18 x 19046400 / 8.
// Outside: 808 MiB and five peers of 96 MiB, and 24 MiB each for messages.
TEST(Megatron, BytesAreThoseByHand) {
  const Problem problem = question(load_claims(), 144, 50112);
  EXPECT_EQ(megatron_ranks(problem), 8);
  constexpr std::int64_t kLayers = 6 * std::int64_t{12665106432};
  constexpr std::int64_t kOutside = std::int64_t{1408} << 20;
  EXPECT_EQ(megatron_bytes(problem), Bytes{kLayers + 19243008 + 42854400 + kOutside});
}

// Where all else takes no time, two GPUs pass half of 1024 x 512 x 2 bytes in each of 8 collectives
// of 6 layers.
TEST(Megatron, HasEightCollectivesALayer) {
  Problem problem = question(load_claims(), 2, 1024);
  Rates& rates = problem.cluster.rates;
  const Rate never{1e30, 1e30, 1e30}, none{};
  rates.matmul = rates.attention_forward = rates.attention_backward = never;
  rates.device_bandwidth = never;
  rates.op_seconds = rates.collective_seconds = none;
  EXPECT_NEAR(megatron_seconds(problem), 6 * 8 * 524288 / rates.link.typical, 1e-12);
  // GPUs that do not divide the heads pass nothing but gradients: half of 2 x 2 bytes a parameter.
  problem.model.heads = problem.model.kv_heads = 3;
  const auto parameters = static_cast<double>(parameter_count(problem.model));
  EXPECT_NEAR(megatron_seconds(problem), 2 * parameters / rates.link.typical, 1e-12);
}

class Scenario : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    claims = load_claims();
    rows = lss_rows(claims);
  }
  static const LssRow& compared() {
    for (const LssRow& row : rows) {
      if (row.gpus == claims.compared) return row;
    }
    return rows.front();
  }
  static inline Claims claims;
  static inline std::vector<LssRow> rows;
};

// More GPUs than heads help LSS only.
TEST_F(Scenario, LssNeedsLessAndGoesFurther) {
  ASSERT_EQ(rows.size(), 5U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LssRow& row = rows[i];
    EXPECT_LT(row.lss.device, row.megatron) << row.gpus;
    EXPECT_GT(row.lss_longest, row.megatron_longest) << row.gpus;
    EXPECT_LT(row.lss.ring_seconds, row.lss.seconds) << row.gpus;
    if (i == 0) continue;
    EXPECT_LT(row.lss.device, rows[i - 1].lss.device) << row.gpus;
    EXPECT_GT(row.lss_longest, rows[i - 1].lss_longest) << row.gpus;
    EXPECT_LE(row.ranks, 8);
  }
  EXPECT_GE(rows.back().lss_longest, claims.longest);
}

// The longest fits, and a token more on each GPU does not.
TEST_F(Scenario, TheLongestIsTheLast) {
  const LssRow& row = compared();
  const auto fits = [&](std::int64_t tokens) {
    const Problem problem = question(claims, row.gpus, tokens);
    return lss_step(problem).device <= problem.device_budget;
  };
  EXPECT_TRUE(fits(row.lss_longest));
  EXPECT_FALSE(fits(row.lss_longest + row.gpus));
  const Problem problem = question(claims, row.gpus, row.megatron_longest);
  EXPECT_LE(megatron_bytes(problem), problem.device_budget);
}

// Under the assumptions of the page, which also says what is missed. Nothing was fitted to them.
TEST_F(Scenario, HasTheClaimedRatios) {
  constexpr double kClose = 0.25;
  const LssRow& row = compared();
  const double smaller =
      static_cast<double>(row.megatron.value) / static_cast<double>(row.lss.device.value);
  EXPECT_NEAR(smaller / claims.smaller, 1, kClose);
  EXPECT_NEAR(row.megatron_seconds / row.lss.ring_seconds / claims.faster, 1, kClose);
}

}  // namespace
}  // namespace fpdt::test
