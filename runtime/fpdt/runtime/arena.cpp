// Reservations, and what the operating system says about memory.
#include "fpdt/runtime/arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number after `key` in a file of "key number" lines.
std::optional<std::int64_t> find_number(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  std::int64_t number = 0;
  while (file >> word) {
    if (word == key && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// The number that a file consists of; empty for "max" or no such file.
std::optional<std::int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// What the tightest of the process's control groups (version 2) leaves. Page cache counts as free:
// the kernel gives it back before it refuses anything.
std::int64_t control_group_limit() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::string path;
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  std::int64_t least = kNoLimit;
  for (;;) {
    const std::string folder = "/sys/fs/cgroup" + (path == "/" ? std::string() : path);
    const auto most = read_number(folder + "/memory.max");
    const auto used = read_number(folder + "/memory.current");
    if (most && used) {
      const std::int64_t cache = find_number(folder + "/memory.stat", "inactive_file").value_or(0) +
                                 find_number(folder + "/memory.stat", "active_file").value_or(0);
      least = std::min(least, std::max<std::int64_t>(0, *most - *used + std::min(cache, *used)));
    }
    if (path.empty() || path == "/") return least;
    path.erase(path.rfind('/'));
  }
}

// What RLIMIT_AS leaves of the address space.
std::int64_t address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const std::int64_t pages = read_number("/proc/self/statm").value_or(0);
  const auto most =
      static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kNoLimit)));
  return std::max<std::int64_t>(0, most - pages * page_bytes().value);
}

[[noreturn]] void refuse(Bytes bytes, const std::string& what, const std::string& reason) {
  throw MemoryError(fmt::format("{} needs {} of memory: {}", what, format_bytes(bytes), reason));
}

void populate_now(std::span<std::byte> bytes, const std::string& what) {
  if (madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) {  // EINVAL: a kernel before 5.14
    refuse(Bytes{std::ssize(bytes)}, what, std::strerror(errno));
  }
  const auto step = static_cast<std::size_t>(page_bytes().value);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    *static_cast<volatile std::byte*>(&bytes[at]) = std::byte{0};
  }
}

}  // namespace

Bytes page_bytes() {
  static const Bytes page{sysconf(_SC_PAGESIZE)};
  return page;
}

Bytes arena_bytes(const Schedule& schedule, MemorySpace space) {
  Bytes end;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space != space) continue;
    FPDT_ASSERT(buffer.offset >= 0);
    end = std::max(end, Bytes{buffer.offset} + buffer.bytes());
  }
  return Bytes{round_up(end.value, page_bytes().value)};
}

MemoryLimit memory_limit() {
  const std::int64_t available =
      mul(find_number("/proc/meminfo", "MemAvailable:").value_or(kNoLimit / 1024), 1024);
  MemoryLimit limit{Bytes{available}, "MemAvailable"};
  if (const Bytes group{control_group_limit()}; group < limit.bytes) {
    limit = {group, "cgroup memory.max"};
  }
  if (const Bytes space{address_space_limit()}; space < limit.bytes) limit = {space, "RLIMIT_AS"};
  return limit;
}

void require_memory(Bytes bytes, const std::string& what) {
  const MemoryLimit limit = memory_limit();
  if (bytes <= limit.bytes) return;
  refuse(bytes, what, fmt::format("{} leaves {}", limit.source, format_bytes(limit.bytes)));
}

Reservation::Reservation(Bytes bytes, Populate populate, const std::string& what) {
  if (bytes.value == 0) return;
  require_memory(bytes, what);
  const auto page = static_cast<std::size_t>(page_bytes().value);
  const auto size = static_cast<std::size_t>(round_up(bytes.value, page_bytes().value));
  void* start = mmap(nullptr, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) refuse(bytes, what, std::strerror(errno));
  bytes_ = {static_cast<std::byte*>(start) + page, size};
  try {
    if (mprotect(bytes_.data(), size, PROT_READ | PROT_WRITE) != 0) {
      refuse(bytes, what, std::strerror(errno));
    }
    madvise(bytes_.data(), size, MADV_NOHUGEPAGE);  // EINVAL: a kernel without huge pages
    if (populate == Populate::yes) populate_now(bytes_, what);
  } catch (...) {
    munmap(start, size + 2 * page);
    throw;
  }
}

Reservation::~Reservation() {
  if (bytes_.empty()) return;
  const auto page = static_cast<std::size_t>(page_bytes().value);
  munmap(bytes_.data() - page, bytes_.size() + 2 * page);
}

Reservation::Reservation(Reservation&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Bytes resident_bytes(std::span<const std::byte> range) {
  if (range.empty()) return {};
  const auto page = static_cast<std::size_t>(page_bytes().value);
  std::vector<unsigned char> pages((range.size() + page - 1) / page);
  // mincore reads nothing through the pointer; its parameter is not const for historical reasons.
  const int failed = mincore(const_cast<std::byte*>(range.data()), range.size(), pages.data());
  FPDT_ASSERT(failed == 0);
  const auto resident = std::count_if(pages.begin(), pages.end(),
                                      [](unsigned char state) { return (state & 1U) != 0; });
  return resident * page_bytes();
}

Bytes peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Bytes{mul(usage.ru_maxrss, 1024)};
}

}  // namespace fpdt
