// Computes sizes of buffers.
#include "fpdt/schedule/buffer.h"

namespace fpdt {

std::int64_t dtype_bytes(Dtype dtype) { return dtype == Dtype::bf16 ? 2 : 4; }

std::int64_t Buffer::row_elements() const {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) elements = mul(elements, shape[i]);
  return elements;
}

}  // namespace fpdt
