// Initial weights from a counter: two elements from one word of random bits, by Box and Muller.
//
// The code uses only integers, and sums, products and roots of floats, which IEEE 754 rounds in one
// way only; the build forbids contracting them. So machine, vector unit and library do not change a
// bit. Loops are plain, over pairs, so that the compiler vectorises them.
#include "fpdt/spec/initial.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace fpdt {
namespace {

// Pairs of one loop; their words stay in the first-level cache.
constexpr std::size_t kPairs = 256;

// The output function of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that mixes
// all bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The n-th output of the splitmix64 sequence that starts at `key`.
std::uint64_t random_bits(std::uint64_t key, std::uint64_t n) {
  return mix(key + (n + 1) * 0x9e3779b97f4a7c15U);
}

// sqrt(-2 ln u) for u = (n + 1/2) / 2^31, n < 2^31: up to 6.66. With n + 1/2 = 2^e m and m within
// sqrt(2) of 1, ln u = (e - 31) ln 2 + ln m. ln m / (m - 1) is a polynomial that interpolates at
// the zeros of Chebyshev's ninth polynomial, right to 3e-8.
inline float radius(std::uint32_t n) {
  constexpr std::uint32_t kOne = 0x3f800000, kRootOfHalf = 0x3f3504f3, kMantissa = 0x007fffff;
  const float value = static_cast<float>(static_cast<std::int32_t>(n)) + 0.5F;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) + (kOne - kRootOfHalf);
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - (127 + 31));
  const float t = std::bit_cast<float>((bits & kMantissa) + kRootOfHalf) - 1;
  float p = 0.0853331308F;
  p = p * t - 0.142692582F;
  p = p * t + 0.149774013F;
  p = p * t - 0.165779929F;
  p = p * t + 0.199559334F;
  p = p * t - 0.250013522F;
  p = p * t + 0.333341933F;
  p = p * t - 0.499999964F;
  p = p * t + 0.999999974F;
  return std::sqrt(-2 * (exponent * 0.693147181F + t * p));
}

struct Direction {
  float x, y;
};

// Cosine and sine of 2 pi n / 2^32. The angle is split into quarter turns and a rest t pi/4, |t| <=
// 1. Polynomials in t^2, interpolating at the zeros of Chebyshev's fourth polynomial (right to
// 3e-8), give the rest, which is then turned by the quarters.
inline Direction direction(std::uint32_t n) {
  const std::uint32_t quarters = (n + (1U << 29)) >> 30;
  const auto rest = static_cast<std::int32_t>(n - (quarters << 30));
  const float t = static_cast<float>(rest) * 0x1p-29F;
  const float z = t * t;
  const float sine =
      t * (0.785398161F + z * (-0.0807454347F + z * (0.0024900068F + z * -3.59542907e-05F)));
  const float cosine =
      0.999999972F + z * (-0.308424252F + z * (0.0158499107F + z * -0.000318877475F));
  const bool odd = (quarters & 1U) != 0;
  const auto x = std::bit_cast<std::uint32_t>(odd ? sine : cosine);
  const auto y = std::bit_cast<std::uint32_t>(odd ? cosine : sine);
  return {std::bit_cast<float>(x ^ (((quarters + 1) & 2U) << 30)),
          std::bit_cast<float>(y ^ ((quarters & 2U) << 30))};
}

// Elements 2 `first` to 2 (`first` + pairs) - 1, for at most kPairs.
void write_pairs(std::uint64_t key, std::uint64_t first, std::size_t pairs,
                 const TensorSpec& tensor, float* values) {
  std::array<std::uint32_t, kPairs> upper, lower;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::uint64_t word = random_bits(key, first + i);
    upper[i] = static_cast<std::uint32_t>(word >> 32);
    lower[i] = static_cast<std::uint32_t>(word);
  }
  const auto deviation = static_cast<float>(tensor.deviation);
  const auto fill = static_cast<float>(tensor.fill);
  for (std::size_t i = 0; i < pairs; ++i) {
    const float scale = deviation * radius(upper[i] >> 1);
    const Direction to = direction(lower[i]);
    values[2 * i] = fill + scale * to.x;
    values[2 * i + 1] = fill + scale * to.y;
  }
}

}  // namespace

void initial_values(std::uint64_t seed, std::uint64_t name_hash, std::int64_t first,
                    const TensorSpec& tensor, std::span<float> values) {
  if (tensor.deviation == 0) {
    std::fill(values.begin(), values.end(), static_cast<float>(tensor.fill));
    return;
  }
  const std::uint64_t key = mix(random_bits(seed, 0) ^ name_hash);
  auto pair = static_cast<std::uint64_t>(first) / 2;
  std::array<float, 2> one{};
  if (first % 2 != 0 && !values.empty()) {
    write_pairs(key, pair++, 1, tensor, one.data());
    values.front() = one[1];
    values = values.subspan(1);
  }
  while (values.size() >= 2) {
    const std::size_t pairs = std::min(kPairs, values.size() / 2);
    write_pairs(key, pair, pairs, tensor, values.data());
    pair += pairs;
    values = values.subspan(2 * pairs);
  }
  if (!values.empty()) {
    write_pairs(key, pair, 1, tensor, one.data());
    values.front() = one[0];
  }
}

}  // namespace fpdt
