// An operand resolved to memory, as a kernel or a collective sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fpdt/schedule/buffer.h"
#include "fpdt/schedule/operand.h"

namespace fpdt {

struct View {
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  Dtype dtype = Dtype::f32;
  Access access = Access::read;

  [[nodiscard]] std::int64_t bytes() const { return elements * dtype_bytes(dtype); }
};

// The same view, but writing: for kernels that replace what their target holds.
inline View replacing(View view) {
  view.access = Access::write;
  return view;
}

}  // namespace fpdt
