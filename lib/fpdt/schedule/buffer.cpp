// Words and sizes of buffers.
#include "fpdt/schedule/buffer.h"

#include <array>

namespace fpdt {

std::string_view word(MemorySpace space) {
  constexpr std::array<std::string_view, 3> words{"device", "host_pinned", "host"};
  return words[static_cast<std::size_t>(space)];
}

std::string_view word(Role role) {
  constexpr std::array<std::string_view, 4> words{"state", "input", "output", "temporary"};
  return words[static_cast<std::size_t>(role)];
}

std::string_view word(Category category) {
  constexpr std::array<std::string_view, 7> words{
      "weights", "gradients", "optimizer", "activations", "communication", "tokens", "scalars"};
  return words[static_cast<std::size_t>(category)];
}

std::string_view word(Dtype dtype) {
  constexpr std::array<std::string_view, 3> words{"f32", "bf16", "i32"};
  return words[static_cast<std::size_t>(dtype)];
}

std::int64_t dtype_bytes(Dtype dtype) { return dtype == Dtype::bf16 ? 2 : 4; }

std::int64_t Buffer::row_elements() const {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) elements = mul(elements, shape[i]);
  return elements;
}

}  // namespace fpdt
