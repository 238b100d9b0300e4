// Reservations, and the limits and counts of memory that the operating system reports.
#include "fpdt/runtime/arena.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/runtime/numa.h"

namespace fpdt {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// Attempts of mincore, which fails while the kernel is briefly short of memory.
constexpr int kAttempts = 50;
constexpr std::chrono::milliseconds kBetweenAttempts{10};

// The limit from the command line; 0: none. It is global because it limits the whole process.
Bytes declared;

// The sum of the numbers after `keys` in a file of "key number" lines; none without any of them.
std::optional<std::int64_t> find_numbers(const std::string& path,
                                         std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  std::optional<std::int64_t> sum;
  std::size_t found = 0;
  std::string word;
  while (found < keys.size() && file >> word) {
    std::int64_t number = 0;
    if (std::find(keys.begin(), keys.end(), word) != keys.end() && file >> number) {
      sum = sum.value_or(0) + number;
      ++found;
    }
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return sum;
}

// The number that a file consists of; empty for "max" or no such file.
std::optional<std::int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The files in which one version of control groups keeps its numbers.
struct GroupFiles {
  const char* folder;  // of the root group
  const char* most;
  const char* used;
  const char* inactive_cache;  // keys of memory.stat, for a group with all its descendants
  const char* active_cache;
};
constexpr GroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                               "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
constexpr GroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                               "active_file"};

// The bytes left by the tightest limit among a group and its ancestors. Page cache counts as free:
// the kernel reclaims it before it refuses an allocation.
std::int64_t group_limit(const std::string& root, const GroupFiles& files, std::string path) {
  std::int64_t least = kNoLimit;
  for (;;) {
    const std::string folder = root + files.folder + (path == "/" ? "" : path) + "/";
    const auto most = read_number(folder + files.most);
    const auto used = read_number(folder + files.used);
    if (most && used) {
      const std::int64_t cache =
          find_numbers(folder + "memory.stat", {files.inactive_cache, files.active_cache})
              .value_or(0);
      least = std::min(least, std::max<std::int64_t>(0, *most - *used + std::min(cache, *used)));
    }
    if (path.empty() || path == "/") return least;
    path.erase(path.rfind('/'));
  }
}

// Reads lines "number:controllers:path". A line without controllers is a group of version 2.
MemoryLimit control_group_limit(const std::string& root) {
  MemoryLimit limit{Bytes{kNoLimit}, ""};
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(":/", first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool memory = controllers.find(",memory,") != std::string::npos;
    if (!memory && controllers != ",,") continue;
    const GroupFiles& files = memory ? kVersion1 : kVersion2;
    const Bytes group{group_limit(root, files, line.substr(second + 1))};
    if (group < limit.bytes) limit = {group, fmt::format("cgroup {}", files.most)};
  }
  return limit;
}

// The memory left on the NUMA nodes that this process may use; no limit if it may use all.
MemoryLimit node_limit(const std::string& root) {
  Bytes left;
  bool all = true;
  for (const NumaNode& node : numa_nodes(root)) {
    left += node.free + node.cache;
    all = all && !node.forbidden;
  }
  return {all ? Bytes{kNoLimit} : left, "cpuset.mems"};
}

// The bytes of address space that RLIMIT_AS leaves.
std::int64_t address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const std::int64_t pages = read_number("/proc/self/statm").value_or(0);
  const auto most =
      static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kNoLimit)));
  return std::max<std::int64_t>(0, most - pages * page_bytes().value);
}

// Reads the second number of statm.
Bytes resident_now() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t resident = 0;
  return file >> all >> resident ? resident * page_bytes() : Bytes{0};
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
  return Bytes{round_up(placed_bytes(schedule, space).value, page_bytes().value)};
}

void declare_host_memory(Bytes bytes) { declared = bytes; }

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit limit{declared, "--host-memory"};
  if (declared.value > 0) {
    limit.bytes = std::max(Bytes{0}, declared - resident_now());
  } else {
    const std::int64_t kibi =
        find_numbers(root + "/proc/meminfo", {"MemAvailable:"}).value_or(kNoLimit / 1024);
    limit = {Bytes{mul(kibi, 1024)}, "MemAvailable"};
  }
  if (const MemoryLimit group = control_group_limit(root); group.bytes < limit.bytes) limit = group;
  if (const MemoryLimit nodes = node_limit(root); nodes.bytes < limit.bytes) limit = nodes;
  return limit;
}

void require_memory(Bytes bytes, const std::string& what) {
  const MemoryLimit limit = memory_limit();
  if (bytes <= limit.bytes) return;
  refuse(bytes, what, fmt::format("{} leaves {}", limit.source, format_bytes(limit.bytes)));
}

void require_address_space(Bytes bytes, const std::string& what) {
  const Bytes left{address_space_limit()};
  if (bytes <= left) return;
  refuse(bytes, what, fmt::format("RLIMIT_AS leaves {}", format_bytes(left)));
}

Reservation::Reservation(Bytes bytes, Populate populate, const std::string& what) {
  if (bytes.value == 0) return;
  require_memory(bytes, what);
  require_address_space(bytes, what);
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
  int failed = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    failed = mincore(const_cast<std::byte*>(range.data()), range.size(), pages.data());
    if (failed == 0 || errno != EAGAIN) break;
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  if (failed != 0 && errno == EAGAIN) {
    refuse(Bytes{std::ssize(pages)}, "the count of resident pages", std::strerror(errno));
  }
  FPDT_ASSERT(failed == 0);
  const auto resident = std::count_if(pages.begin(), pages.end(),
                                      [](unsigned char state) { return (state & 1U) != 0; });
  return resident * page_bytes();
}

// Not ru_maxrss, which begins with the peak of the program that started this one.
Bytes peak_resident_bytes() {
  return Bytes{mul(find_numbers("/proc/self/status", {"VmHWM:"}).value_or(0), 1024)};
}

}  // namespace fpdt
