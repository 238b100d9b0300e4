// Memory of GPUs and pinned memory of their host, each allocated once.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fpdt/base/units.h"
#include "fpdt/runtime/arena.h"

namespace fpdt::cuda {

// One allocation on the device that is current then. Throws MemoryError when too little is free.
// The message lists who holds the rest, if the driver tells.
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

// Host memory that the device's copy engines can reach: on the NUMA node of the calling thread
// (numa.h), in huge pages if the system gives them, touched by many threads, and registered in one
// piece. Together these take about 0.1 s per GiB (cudf issue 23457). Above 8 GiB
// it shows progress on standard error.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // Throws MemoryError when the machine has less, or when a limit forbids pinning; the message
  // names the limit.
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
