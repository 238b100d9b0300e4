// Collectives of ranks on one device, or on devices that read each other's memory: copies and sums
// over the members' sends.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

// The largest group: a kernel takes one pointer per member.
inline constexpr std::int64_t kMembersMost = 64;

// Launches on `stream` the kernels that compute what member `mine` receives, one for each pair of
// operands. views[i] are the operands of member i, in memory that the stream's device can read.
// Gives the same bits as fpdt::receive (runtime/fpdt/runtime/collective.h): sums run in f32 in
// member order. The caller makes the stream wait until the members' sends are whole, and leaves the
// sends unchanged until the stream is done.
void receive(const Body& body, std::int64_t mine, std::span<const std::span<const View>> views,
             Stream stream);

}  // namespace fpdt::cuda
