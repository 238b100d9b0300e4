// One op under way on a GPU: what its kernels are given. No header of CUDA is needed to read this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fpdt/runtime/view.h"
#include "fpdt/runtime/view_finder.h"

struct CUstream_st;

namespace fpdt::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Partial sums of the kernels of one lane, outside of every arena.
inline constexpr std::int64_t kScratchBytes = 16 << 20;

struct Frame {
  std::span<const View> views;
  std::int64_t rank = 0;
  Stream stream = nullptr;
  std::byte* scratch = nullptr;  // [kScratchBytes] of the device; ops of a lane follow each other

  // The view of a field of `op`; data == nullptr when the operand is absent.
  template <class Body>
  [[nodiscard]] View view(const Body& op, const Operand& field) const {
    return find_view(op, views, field);
  }
  template <class Body>
  [[nodiscard]] View view(const Body& op, const Target& field) const {
    return find_view(op, views, field.operand);
  }
  // `count` elements of the scratch memory, from byte `offset` on.
  template <class T>
  [[nodiscard]] T* partial(std::int64_t count, std::int64_t offset = 0) const {
    FPDT_ASSERT(offset + count * static_cast<std::int64_t>(sizeof(T)) <= kScratchBytes);
    return reinterpret_cast<T*>(scratch + offset);
  }
};

inline bool present(const View& view) { return view.data != nullptr; }
inline bool accumulates(const View& view) { return view.access == Access::accumulate; }

}  // namespace fpdt::cuda
