// Collectives of ranks that share a device: copies and sums over the members' sends.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

// The largest group: a kernel is given a pointer of each member.
inline constexpr std::int64_t kMembersMost = 64;

// Puts on `stream` what member `mine` receives, a kernel for each pair; views[i] are the operands
// of member i, on the device. Means the same as fpdt::receive (runtime/fpdt/runtime/collective.h),
// to the bit: sums in member order in f32. The caller orders the stream after the members' sends
// are whole, and leaves the sends unchanged until the stream is done.
void receive(const Body& body, std::int64_t mine, std::span<const std::span<const View>> views,
             Stream stream);

}  // namespace fpdt::cuda
