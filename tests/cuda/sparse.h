// Operands of more than 2^31 elements in memory that is reserved and never filled, so that only
// touched pages exist. An offset that was cut to 32 bits touches a page that must stay untouched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/runtime/view.h"

namespace fpdt {

class Sparse {
 public:
  // The elements are zeros.
  Sparse(Dtype dtype, std::int64_t elements) : dtype_(dtype), elements_(elements) {
    bytes_ = static_cast<std::size_t>(round_up(elements * dtype_bytes(dtype), ::getpagesize()));
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    // A huge page would touch its neighbours as well.
    if (given()) {
      EXPECT_EQ(::madvise(memory_, bytes_, MADV_NOHUGEPAGE), 0);
    }
  }
  ~Sparse() {
    if (given()) ::munmap(memory_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  // Whether the system gave the memory.
  [[nodiscard]] bool given() const { return memory_ != MAP_FAILED; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] View view(Access access) const {
    return {static_cast<std::byte*>(memory_), elements_, dtype_, access};
  }
  [[nodiscard]] std::byte* at(std::int64_t element) const {
    return static_cast<std::byte*>(memory_) + element * dtype_bytes(dtype_);
  }
  // Whether any page that lies within elements [first, end) was touched.
  [[nodiscard]] bool touched(std::int64_t first, std::int64_t end) const {
    const std::int64_t page = ::getpagesize();
    const std::int64_t begin = round_up(first * dtype_bytes(dtype_), page);
    const std::int64_t pages = end * dtype_bytes(dtype_) / page - begin / page;
    if (pages <= 0) return false;
    std::vector<unsigned char> resident(static_cast<std::size_t>(pages));
    EXPECT_EQ(::mincore(static_cast<std::byte*>(memory_) + begin,
                        static_cast<std::size_t>(pages * page), resident.data()),
              0);
    return std::any_of(resident.begin(), resident.end(),
                       [](unsigned char bits) { return bits % 2 != 0; });
  }

 private:
  Dtype dtype_;
  std::int64_t elements_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

}  // namespace fpdt
