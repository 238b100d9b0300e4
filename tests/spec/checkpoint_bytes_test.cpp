// Host memory to load and save models.
#include "fpdt/spec/checkpoint_bytes.h"

#include <gtest/gtest.h>

#include "small_models.h"

namespace fpdt {
namespace {

// A llama of two layers and 15 tensors.
ModelSpec model_of(std::int64_t feed_forward, std::int64_t vocabulary) {
  return test::small_llama("small", 16, 4, feed_forward, vocabulary);
}

Bytes difference(const ModelSpec& a, const ModelSpec& b, Bytes (*bytes)(const ModelSpec&)) {
  return bytes(a) - bytes(b);
}

TEST(CheckpointBytes, GrowWithTheLargestTensorUpToAPiece) {
  const ModelSpec embedding = model_of(12, 10'000);     // 160000 elements
  const ModelSpec gate_and_up = model_of(7'000, 1000);  // 224000 elements
  EXPECT_EQ(difference(gate_and_up, embedding, loading_bytes), Bytes{8 * 64'000});
  EXPECT_EQ(difference(gate_and_up, embedding, saving_bytes), Bytes{6 * 64'000});
  const ModelSpec large = model_of(12, 10'000'000), larger = model_of(12, 20'000'000);
  EXPECT_EQ(loading_bytes(large), loading_bytes(larger));
  EXPECT_EQ(difference(large, embedding, loading_bytes), Bytes{8 * (kStreamElements - 160'000)});
  EXPECT_EQ(difference(large, embedding, saving_bytes), Bytes{6 * (kStreamElements - 160'000)});
}

TEST(CheckpointBytes, GrowWithTheNumberOfTensors) {
  const ModelSpec few = model_of(12, 1000);
  ModelSpec more = few;
  more.layers += 10;
  const Bytes each = difference(more, few, loading_bytes);
  EXPECT_GT(each, Bytes{});
  EXPECT_EQ(each, difference(more, few, saving_bytes));
  more.layers += 10;
  EXPECT_EQ(difference(more, few, loading_bytes), 2 * each);
}

TEST(CheckpointBytes, HoldATensorOfGptWhole) {
  EXPECT_EQ(reordering_bytes(model_of(20'000'000, 19)), Bytes{});
  const ModelSpec gpt = test::small_gpt("small", model_of(20'000'000, 19), 40);
  EXPECT_EQ(reordering_bytes(gpt), Bytes{std::int64_t{4} * 16 * 20'000'000});
}

}  // namespace
}  // namespace fpdt
