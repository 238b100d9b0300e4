// Kernels that fill memory and count the words that are left unchanged.
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "fpdt/cuda/kernels_memory.h"

#include "../cpu/kernel_case.h"
#include "device_under_test.h"

namespace fpdt::cuda {
namespace {

// Words of device memory, with guard words around them.
class Words {
 public:
  explicit Words(std::size_t count) : words_(count + 2 * kAround, kOther) {
    memory_ = device_memory(bytes());
    give();
  }
  [[nodiscard]] std::span<std::byte> inner(std::size_t first, std::size_t count) const {
    return {memory_.get() + 4 * (kAround + first), 4 * count};
  }
  std::uint32_t& at(std::size_t i) { return words_[kAround + i]; }
  void give() { upload(memory_.get(), std::as_bytes(std::span(words_))); }
  void take() { download(std::as_writable_bytes(std::span(words_)), memory_.get()); }
  [[nodiscard]] std::int64_t others() const {
    return std::count(words_.begin(), words_.end(), kOther);
  }

  static constexpr std::size_t kAround = 64;
  static constexpr std::uint32_t kOther = 0x12345678;

 private:
  [[nodiscard]] std::int64_t bytes() const { return std::ssize(words_) * 4; }
  std::vector<std::uint32_t> words_;
  DeviceBytes memory_{nullptr, nullptr};
};

std::int64_t count(std::span<const std::byte> bytes, int variant) {
  const DeviceBytes place = device_memory(kPoisonCounts * 8);
  auto* const on_device = reinterpret_cast<std::int64_t*>(place.get());
  const std::int64_t used = count_poisoned(bytes, on_device, device_stream(variant));
  synchronise_device();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(used));
  download(std::as_writable_bytes(std::span(counts)), place.get());
  std::int64_t sum = 0;
  for (const std::int64_t one : counts) sum += one;
  return sum;
}

TEST(MemoryKernels, PoisonIsCountedToTheWord) {
  for (int variant = 0; variant < kVariants; ++variant) {
    for (const std::size_t size : {1U, 31U, 256U, 5000U}) {
      Words words(size);
      EXPECT_EQ(count(words.inner(0, size), variant), 0);
      poison(words.inner(0, size), device_stream(variant));
      synchronise_device();
      EXPECT_EQ(count(words.inner(0, size), variant), size);
      words.take();
      EXPECT_EQ(words.others(), 2 * Words::kAround);
      for (const std::size_t i : std::set<std::size_t>{0, size / 2, size - 1}) words.at(i) ^= 1;
      words.give();
      const std::size_t changed = std::set<std::size_t>{0, size / 2, size - 1}.size();
      EXPECT_EQ(count(words.inner(0, size), variant), size - changed);
      EXPECT_EQ(count(words.inner(size, 0), variant), 0);
    }
  }
}

// No f32 or bf16 value of a step is a NaN with these bits, and no token, label or position is as
// large.
TEST(MemoryKernels, PoisonIsNoValueOfAStep) {
  float single = 0;
  std::memcpy(&single, &kPoison, sizeof single);
  EXPECT_TRUE(std::isnan(single));
  EXPECT_TRUE(std::isnan(from_bf16(static_cast<std::uint16_t>(kPoison >> 16))));
  EXPECT_GT(kPoison, 1U << 30);
}

TEST(MemoryKernels, ValuesAreSpreadBetweenMinusOneAndOne) {
  constexpr std::int64_t kCount = 4096;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    Words words(kCount);
    const View view{words.inner(0, 0).data(), dtype == Dtype::f32 ? kCount : kCount * 2, dtype,
                    Access::write};
    fill_with_values(view, device_stream(1));
    synchronise_device();
    words.take();
    EXPECT_EQ(words.others(), 2 * Words::kAround);
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      float value = 0;
      std::memcpy(&value, &words.at(i), sizeof value);
      if (dtype == Dtype::bf16) value = from_bf16(static_cast<std::uint16_t>(words.at(i)));
      EXPECT_LE(std::abs(value), 1.0F);
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    // Uniform between -1 and 1: the mean is 0, that of squares 1/3, within five deviations.
    const double deviation = 1 / std::sqrt(static_cast<double>(kCount));
    EXPECT_NEAR(sum / kCount, 0, 5 * 0.58 * deviation);
    EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * 0.3 * deviation);
  }
}

}  // namespace
}  // namespace fpdt::cuda
