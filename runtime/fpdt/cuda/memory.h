// Memory of a GPU and pinned memory of its host, taken once each.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fpdt/base/units.h"
#include "fpdt/runtime/arena.h"

namespace fpdt::cuda {

// One allocation on the current device. MemoryError when too little is free; the message
// names who holds the rest, if the driver tells.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Bytes bytes, const std::string& what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

// Host memory that the device's copy engines reach: mapped, near the device's NUMA node, in huge
// pages where the system gives them, touched by many threads, and registered in one piece. All
// three cost time (about 0.1 s a GiB together, cudf issue 23457); over 8 GiB it says so on standard
// error.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // MemoryError when the machine has less, or a limit forbids to pin it; the message names it.
  PinnedMemory(Bytes bytes, const std::string& what);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace fpdt::cuda
