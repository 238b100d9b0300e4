// The largest tensors decide.
#include "fpdt/spec/checkpoint_bytes.h"

#include <algorithm>
#include <vector>

namespace fpdt {
namespace {

constexpr std::int64_t kF32 = 4, kBf16 = 2, kF64 = 8;
// The bytes of a tensor's names, shapes and offsets, with its master and moments, and of the syntax
// trees of the headers with them. tests/train/checkpoint_memory_test.cpp measures 5 KiB.
constexpr Bytes kNames{8 << 10};

std::int64_t most_elements(const std::vector<TensorSpec>& tensors) {
  std::int64_t elements = 0;
  for (const TensorSpec& tensor : tensors) elements = std::max(elements, tensor.elements());
  return elements;
}

// The bytes of a piece whose elements take `width` bytes in all copies, of one run in f64, and of
// all names.
Bytes passing_bytes(const ModelSpec& model, std::int64_t width) {
  const std::vector<TensorSpec> globals = global_tensors(model);
  std::int64_t largest = most_elements(globals), tensors = std::ssize(globals);
  for (const LayerRun& run : layer_runs(model)) {
    const std::vector<TensorSpec> layer = layer_tensors(run.model);
    largest = std::max(largest, most_elements(layer));
    tensors = add(tensors, mul(run.count, std::ssize(layer)));
  }
  return Bytes{mul(width, std::min(kStreamElements, largest))} +
         Bytes{mul(kF64, std::min(kRunElements, largest))} + tensors * kNames;
}

}  // namespace

Bytes loading_bytes(const ModelSpec& model) { return passing_bytes(model, kF32 + kF32); }

Bytes saving_bytes(const ModelSpec& model) { return passing_bytes(model, kF32 + kBf16); }

Bytes reordering_bytes(const ModelSpec& model) {
  if (model.family == Family::gpt) return Bytes{mul(kF32, most_elements(layer_tensors(model)))};
  const bool gpt_oss = model.has_experts() && model.bias;
  return Bytes{gpt_oss ? mul(kF32, mul(model.hidden, model.up_width())) : 0};
}

}  // namespace fpdt
