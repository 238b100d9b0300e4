// Weights of a directory, and whole tensors of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/io/hf_weights.h"

namespace fpdt::test {

inline HfWeights open_weights(const std::string& path, const ModelSpec& model) {
  return {SafetensorsSet(path), model};
}

inline std::vector<float> whole(const HfWeights& weights, const std::string& tensor) {
  std::vector<float> values;
  weights.stream(tensor, [&](std::int64_t first, std::span<const float> piece) {
    EXPECT_EQ(first, std::ssize(values));
    values.insert(values.end(), piece.begin(), piece.end());
  });
  return values;
}

}  // namespace fpdt::test
