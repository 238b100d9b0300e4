// One op in execution on a GPU: the arguments of its kernels. Needs no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fpdt/runtime/view.h"
#include "fpdt/runtime/view_finder.h"

struct CUstream_st;

namespace fpdt::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Size of the scratch memory of one lane, for partial sums. It lies outside of every arena.
inline constexpr std::int64_t kScratchBytes = 16 << 20;

struct Frame {
  std::span<const View> views;
  std::int64_t rank = 0;
  Stream stream = nullptr;
  std::byte* scratch = nullptr;  // [kScratchBytes] on the device, reused by each op of the lane

  // The view of a field of `op`; its data is nullptr if the operand is absent.
  template <class Body>
  [[nodiscard]] View view(const Body& op, const Operand& field) const {
    return find_view(op, views, field);
  }
  template <class Body>
  [[nodiscard]] View view(const Body& op, const Target& field) const {
    return find_view(op, views, field.operand);
  }
  // `count` elements of the scratch memory, starting at byte `offset`.
  template <class T>
  [[nodiscard]] T* partial(std::int64_t count, std::int64_t offset = 0) const {
    FPDT_ASSERT(offset + count * static_cast<std::int64_t>(sizeof(T)) <= kScratchBytes);
    return reinterpret_cast<T*>(scratch + offset);
  }
};

inline bool present(const View& view) { return view.data != nullptr; }
inline bool accumulates(const View& view) { return view.access == Access::accumulate; }

}  // namespace fpdt::cuda
