// Memory of one space of one rank, taken once.
//
// A Reservation is a mapping of its own: whole pages, no huge pages (so that the operating system's
// count of resident pages can be compared with ours to the page), with an inaccessible page at
// either end. Pages become resident when they are first touched, unless the reservation is
// populated at once, which a training run does so that exhaustion shows before the first step.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fpdt/base/units.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

Bytes page_bytes();

// Bytes that the arena of a space needs: the end of its last buffer, in whole pages. Every buffer
// is placed.
Bytes arena_bytes(const Schedule& schedule, MemorySpace space);

// What this process may still take, and what says so ("MemAvailable", "--host-memory", "cgroup
// memory.max", "cgroup memory.limit_in_bytes", "RLIMIT_AS").
struct MemoryLimit {
  Bytes bytes;
  std::string source;
};
// `root`: where /proc and /sys lie; tests have others.
MemoryLimit memory_limit(const std::string& root = "");

// Sets what the machine has for this process, in place of MemAvailable: a virtual machine may grow
// its memory only as it is used. Limits of control group and address space stay. Call it before
// threads begin.
void declare_host_memory(Bytes bytes);

// MemoryError when `bytes` exceed the limit; `what` is named in the message.
void require_memory(Bytes bytes, const std::string& what);

enum class Populate : bool { no, yes };

class Reservation {
 public:
  Reservation() = default;
  // MemoryError when the machine has less.
  Reservation(Bytes bytes, Populate populate, const std::string& what);
  ~Reservation();
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;  // without the inaccessible pages
};

// Resident pages of a range that begins at a page, in bytes. MemoryError when the kernel lacks the
// memory to answer for half a second.
Bytes resident_bytes(std::span<const std::byte> range);

// Most resident memory of the process so far.
Bytes peak_resident_bytes();

}  // namespace fpdt
