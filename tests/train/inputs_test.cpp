// The chunk-interleaved layout and its padding.
#include "fpdt/train/inputs.h"

#include <gtest/gtest.h>

#include "cases.h"

namespace fpdt {
namespace {

using Row = std::vector<std::int32_t>;

Sample counting(std::int32_t length) {
  Sample sample;
  for (std::int32_t t = 0; t < length; ++t) {
    sample.tokens.push_back(t);
    sample.labels.push_back(100 + t);
    sample.documents.push_back(t < 5 ? 0 : 5);
  }
  return sample;
}

TEST(Inputs, EachRankHoldsItsPartOfEachChunk) {
  const Case one = make_case(tiny_llama(), 2, 12, 8);
  const Geometry shape = geometry(one.problem, one.strategy);
  EXPECT_EQ(rank_inputs(shape, 0, counting(12)).tokens, (Row{0, 1, 2, 3, 8, 9}));
  EXPECT_EQ(rank_inputs(shape, 1, counting(12)).labels, (Row{104, 105, 106, 107, 110, 111}));
  EXPECT_EQ(rank_inputs(shape, 1, counting(12)).documents, counting(12).documents);
}

TEST(Inputs, PaddingIsMaskedAndEachADocumentOfItsOwn) {
  const Case one = make_case(tiny_llama(), 4, 10, 8);
  const Geometry shape = geometry(one.problem, one.strategy);
  ASSERT_EQ(shape.padded_tokens, 12);
  const RankInputs last = rank_inputs(shape, 3, counting(10));
  EXPECT_EQ(last.tokens, (Row{6, 7, 0}));
  EXPECT_EQ(last.labels, (Row{106, 107, -1}));
  EXPECT_EQ(last.documents, (Row{0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 11}));
}

}  // namespace
}  // namespace fpdt
