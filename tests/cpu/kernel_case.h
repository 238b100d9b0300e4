// One op on real memory: operands with guard words, run several times, compared with naive loops.
//
// `run_kernel` runs it. Every program that uses this header defines that function for its machine:
// the CPU's kernels, the GPU's under the emulator, or a GPU. Operands begin at multiples of 256
// bytes, as in an arena.
//
// Values are rounded to the operand's type when they are stored, so a test's loops in double start
// from the very numbers that the kernel sees. The remaining error is the kernel's f32 arithmetic
// and the rounding of its result: kUnit times the sum of the magnitudes that were added, times
// their count, plus one unit of the type.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/runtime/view.h"
#include "fpdt/schedule/op.h"

namespace fpdt {

// Runs an op to its end; collectives are not supported. `variant` < kVariants must not change a
// single bit: pools of other sizes, or threads in another order.
inline constexpr int kVariants = 3;
void run_kernel(const Body& body, std::span<const View> views, std::int64_t rank, int variant);

inline constexpr double kUnit = 0x1p-24;     // unit roundoff of f32
inline constexpr double kUnitBf16 = 0x1p-8;  // of bf16

inline double unit(Dtype dtype) { return dtype == Dtype::bf16 ? kUnitBf16 : kUnit; }

inline float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Compares neighbours instead of using the kernel's bit trick.
inline std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto low = static_cast<std::uint16_t>(bits >> 16);
  if (!std::isfinite(value) || from_bf16(low) == value) return low;
  const auto high = static_cast<std::uint16_t>(low + 1);
  const double to_low = std::abs(static_cast<double>(value) - static_cast<double>(from_bf16(low)));
  const double to_high =
      std::abs(static_cast<double>(from_bf16(high)) - static_cast<double>(value));
  if (to_low == to_high) return low % 2 == 0 ? low : high;
  return to_low < to_high ? low : high;
}

// Memory that begins at a multiple of 256 bytes.
template <class T>
struct Aligned {
  using value_type = T;
  static constexpr std::align_val_t kFrom{256};
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kFrom));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kFrom); }
  bool operator==(const Aligned&) const = default;
};

class KernelCase {
 public:
  explicit KernelCase(std::uint32_t seed = 1) : random_(seed) {}

  // Uniform in [-1, 1).
  std::vector<double> random(std::int64_t count) {
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& value : values) value = static_cast<double>(random_()) * 0x1p-31 - 1.0;
    return values;
  }
  Operand put(Dtype dtype, const std::vector<double>& values) {
    Memory& memory = memories_.emplace_back(dtype, static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) memory.set(i, values[i]);
    return {.buffer = static_cast<BufferIndex>(memories_.size()) - 1, .version = {}};
  }
  Operand put_random(Dtype dtype, std::int64_t count) { return put(dtype, random(count)); }
  // An operand to write. It starts as NaN, or as all ones if the type has no NaN.
  Target write(Dtype dtype, std::int64_t count) {
    return {put(dtype, std::vector<double>(static_cast<std::size_t>(count), std::nan(""))), false};
  }
  Target accumulate(Dtype dtype, std::int64_t count) { return {put_random(dtype, count), true}; }

  [[nodiscard]] std::vector<double> values(const Operand& operand) const {
    return memory(operand).values();
  }
  [[nodiscard]] std::vector<double> values(const Target& target) const {
    return values(target.operand);
  }

  // Runs every variant from the same memory. Results must be the same bits, guard words must be
  // intact, and operands that are only read must be unchanged.
  void run(const Body& body, std::int64_t rank = 0) {
    const std::vector<Memory> before = memories_;
    std::vector<Memory> first;
    for (int variant = 0; variant < kVariants; ++variant) {
      memories_ = before;
      run_once(body, rank, variant);
      check_bounds(body, before);
      if (variant == 0) first = memories_;
      for (std::size_t i = 0; i < memories_.size(); ++i) {
        EXPECT_TRUE(memories_[i] == first[i])
            << body_name(body) << ": operand " << i << " is not the same in variant " << variant;
      }
    }
  }
  // Runs once: for library kernels, which add in any order.
  void run_alone(const Body& body, std::int64_t rank = 0) {
    const std::vector<Memory> before = memories_;
    run_once(body, rank, 0);
    check_bounds(body, before);
  }

 private:
  // Guard bytes lie before the elements and right behind them.
  static constexpr std::size_t kGuard = 256;
  struct alignas(kGuard) Line {
    std::array<unsigned char, kGuard> bytes;
  };
  static constexpr Line kGuardLine = [] {
    Line line{};
    line.bytes.fill(0xA5);
    return line;
  }();

  // Copied and compared as a whole, which takes little time under sanitizers as well.
  struct Memory {
    Dtype dtype;
    std::int64_t elements;
    std::vector<Line> lines;

    Memory(Dtype type, std::int64_t count)
        : dtype(type), elements(count), lines(3 + bytes_inside() / kGuard, kGuardLine) {}

    [[nodiscard]] std::size_t bytes_inside() const {
      return static_cast<std::size_t>(elements * dtype_bytes(dtype));
    }
    [[nodiscard]] unsigned char* data() {
      return reinterpret_cast<unsigned char*>(lines.data()) + kGuard;
    }
    [[nodiscard]] const unsigned char* data() const {
      return reinterpret_cast<const unsigned char*>(lines.data()) + kGuard;
    }
    [[nodiscard]] std::size_t at(std::size_t i) const {
      return i * static_cast<std::size_t>(dtype_bytes(dtype));
    }
    bool operator==(const Memory& other) const {
      return std::memcmp(data(), other.data(), bytes_inside()) == 0;
    }
    [[nodiscard]] bool guarded_before() const {
      return std::memcmp(lines.data(), &kGuardLine, kGuard) == 0;
    }
    [[nodiscard]] bool guarded_after() const {
      return std::memcmp(data() + bytes_inside(), &kGuardLine, kGuard) == 0;
    }
    void set(std::size_t i, double value) {
      if (dtype == Dtype::i32) {
        const auto integer = std::isnan(value) ? -1 : static_cast<std::int32_t>(value);
        std::memcpy(data() + at(i), &integer, sizeof(integer));
      } else if (dtype == Dtype::f32) {
        const auto single = static_cast<float>(value);
        std::memcpy(data() + at(i), &single, sizeof(single));
      } else {
        const std::uint16_t half = to_bf16(static_cast<float>(value));
        std::memcpy(data() + at(i), &half, sizeof(half));
      }
    }
    [[nodiscard]] double get(std::size_t i) const {
      std::int32_t integer = 0;
      float single = 0;
      std::uint16_t half = 0;
      if (dtype == Dtype::i32) {
        std::memcpy(&integer, data() + at(i), sizeof(integer));
        return integer;
      }
      if (dtype == Dtype::f32) {
        std::memcpy(&single, data() + at(i), sizeof(single));
        return static_cast<double>(single);
      }
      std::memcpy(&half, data() + at(i), sizeof(half));
      return static_cast<double>(from_bf16(half));
    }
    [[nodiscard]] std::vector<double> values() const {
      std::vector<double> result(static_cast<std::size_t>(elements));
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = get(i);
      return result;
    }
  };

  [[nodiscard]] const Memory& memory(const Operand& operand) const {
    return memories_[static_cast<std::size_t>(operand.buffer)];
  }

  void run_once(const Body& body, std::int64_t rank, int variant) {
    std::vector<View> views;
    for (const Use& use : operands(body)) {
      Memory& used = memories_[static_cast<std::size_t>(use.operand.buffer)];
      views.push_back(
          {reinterpret_cast<std::byte*>(used.data()), used.elements, used.dtype, use.access});
    }
    run_kernel(body, views, rank, variant);
  }

  void check_bounds(const Body& body, const std::vector<Memory>& before) const {
    std::vector<bool> written(memories_.size());
    for (const Use& use : operands(body)) {
      if (use.access != Access::read) written[static_cast<std::size_t>(use.operand.buffer)] = true;
    }
    for (std::size_t i = 0; i < memories_.size(); ++i) {
      ASSERT_TRUE(memories_[i].guarded_before()) << body_name(body) << ": before operand " << i;
      ASSERT_TRUE(memories_[i].guarded_after()) << body_name(body) << ": after operand " << i;
      if (!written[i]) {
        EXPECT_TRUE(memories_[i] == before[i])
            << body_name(body) << ": operand " << i << " was only read";
      }
    }
  }

  std::mt19937 random_;
  std::vector<Memory> memories_;
};

// The expected value of one element from naive loops, and the error that f32 arithmetic may add.
struct Expected {
  double value = 0;
  double error = 0;
};

inline void expect_close(const std::vector<double>& got, const std::vector<Expected>& expected,
                         Dtype stored) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double bound = expected[i].error + 1.01 * unit(stored) * std::abs(expected[i].value);
    if (got[i] == expected[i].value) continue;
    ASSERT_NEAR(got[i], expected[i].value, bound) << "element " << i << " of " << got.size();
  }
}

// Compares all elements with one error bound.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& expected,
                         double error, Dtype stored) {
  std::vector<Expected> bounded;
  for (const double value : expected) bounded.push_back({value, error});
  expect_close(got, bounded, stored);
}

}  // namespace fpdt
