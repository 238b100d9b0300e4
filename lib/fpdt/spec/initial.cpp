// Initial weights from a counter: the same value whatever the sharding that asks for it.
#include "fpdt/spec/initial.h"

#include <cmath>

namespace fpdt {
namespace {

constexpr double kPi = 3.14159265358979323846;

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

}  // namespace

std::uint64_t tensor_name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

// Box-Muller on two uniforms of 53 bits, the first in (0, 1] so that its logarithm is finite.
double initial_value(std::uint64_t seed, std::uint64_t name_hash, std::int64_t element,
                     const TensorSpec& tensor) {
  if (tensor.deviation == 0) return tensor.fill;
  const std::uint64_t key = mix(random_bits(seed, 0) ^ name_hash);
  const std::uint64_t counter = 2 * static_cast<std::uint64_t>(element);
  const double radius_bits = static_cast<double>((random_bits(key, counter) >> 11) + 1);
  const double angle_bits = static_cast<double>(random_bits(key, counter + 1) >> 11);
  const double radius = std::sqrt(-2 * std::log(radius_bits * 0x1p-53));
  return tensor.deviation * radius * std::cos(2 * kPi * angle_bits * 0x1p-53);
}

}  // namespace fpdt
