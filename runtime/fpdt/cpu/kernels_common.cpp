// Loads and stores elements as f32. Checks every piece against its view, so that no kernel leaves
// its operands.
#include "fpdt/cpu/kernels_common.h"

#include <cstring>

#include "fpdt/runtime/bf16.h"

namespace fpdt::cpu {
namespace {

template <class T>
T* elements_at(const View& view, std::int64_t offset, std::int64_t count) {
  FPDT_ASSERT(offset >= 0 && count >= 0 && offset <= view.elements - count);
  return reinterpret_cast<T*>(view.data) + offset;
}

}  // namespace

const float* load(const View& view, std::int64_t offset, std::int64_t count, float* buffer) {
  if (view.dtype == Dtype::f32) return elements_at<const float>(view, offset, count);
  FPDT_ASSERT(view.dtype == Dtype::bf16);
  const auto* source = elements_at<const std::uint16_t>(view, offset, count);
  for (std::int64_t i = 0; i < count; ++i) buffer[i] = widen(source[i]);
  return buffer;
}

void store(const View& view, std::int64_t offset, std::int64_t count, const float* values) {
  const bool adds = view.access == Access::accumulate;
  if (view.dtype == Dtype::f32) {
    float* target = elements_at<float>(view, offset, count);
    if (adds) {
      for (std::int64_t i = 0; i < count; ++i) target[i] += values[i];
    } else {
      std::memmove(target, values, static_cast<std::size_t>(count) * sizeof(float));
    }
    return;
  }
  FPDT_ASSERT(view.dtype == Dtype::bf16);
  auto* target = elements_at<std::uint16_t>(view, offset, count);
  if (adds) {
    for (std::int64_t i = 0; i < count; ++i) target[i] = narrow(widen(target[i]) + values[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) target[i] = narrow(values[i]);
  }
}

void clear_written(const Frame& frame, const View& view, std::int64_t count) {
  if (!present(view) || view.access != Access::write) return;
  FPDT_ASSERT(count <= view.elements);
  const std::int64_t size = dtype_bytes(view.dtype);
  for_each_piece(frame, count, [&](std::int64_t at, std::int64_t n, std::int32_t) {
    std::memset(view.data + at * size, 0, static_cast<std::size_t>(n * size));
  });
}

const std::int32_t* integers(const View& view, std::int64_t first, std::int64_t count) {
  FPDT_ASSERT(view.dtype == Dtype::i32);
  return elements_at<const std::int32_t>(view, first, count);
}

}  // namespace fpdt::cpu
