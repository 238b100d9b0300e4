// Parsing and printing of sizes.
#include "fpdt/base/units.h"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace fpdt {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::int64_t kKibi = 1024;
constexpr std::array<Unit, 9> kByteUnits{{{"B", 1},
                                          {"KiB", kKibi},
                                          {"MiB", kKibi* kKibi},
                                          {"GiB", kKibi* kKibi* kKibi},
                                          {"TiB", kKibi* kKibi* kKibi* kKibi},
                                          {"KB", 1000},
                                          {"MB", 1000000},
                                          {"GB", 1000000000},
                                          {"TB", 1000000000000}}};
constexpr std::array<Unit, 10> kTokenUnits{{{"", 1},
                                            {"K", kKibi},
                                            {"k", kKibi},
                                            {"Ki", kKibi},
                                            {"M", kKibi* kKibi},
                                            {"m", kKibi* kKibi},
                                            {"Mi", kKibi* kKibi},
                                            {"G", kKibi* kKibi* kKibi},
                                            {"g", kKibi* kKibi* kKibi},
                                            {"Gi", kKibi* kKibi* kKibi}}};
constexpr double kLimit = 4611686018427387904.0;  // 2^62

// Whether a text that gives no whole number, such as "60.1GiB", is rounded or refused.
enum class Inexact : std::uint8_t { rounded, refused };

// Parses "12.5 GiB" as 12.5 * factor. There are no parts of the unit whose factor is 1.
template <std::size_t N>
std::optional<std::int64_t> parse(std::string_view text, const std::array<Unit, N>& units,
                                  Inexact inexact) {
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  std::string_view unit = digits == std::string_view::npos ? "" : text.substr(digits);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& candidate : units) {
    if (candidate.name != unit) continue;
    std::int64_t whole = 0;
    const char* end = number.data() + number.size();
    const auto integer = std::from_chars(number.data(), end, whole);
    if (integer.ec == std::errc{} && integer.ptr == end) {
      std::int64_t product = 0;
      if (__builtin_mul_overflow(whole, candidate.factor, &product)) return std::nullopt;
      if (static_cast<double>(product) > kLimit) return std::nullopt;
      return product;
    }
    double value = 0;
    const auto real = std::from_chars(number.data(), end, value);
    if (real.ec != std::errc{} || real.ptr != end) return std::nullopt;
    const double product = value * static_cast<double>(candidate.factor);
    const bool rounds = inexact == Inexact::rounded && candidate.factor > 1;
    if (product > kLimit || (!rounds && product != std::floor(product))) return std::nullopt;
    return static_cast<std::int64_t>(std::round(product));
  }
  return std::nullopt;
}

// "1e6" and "1.5e6"; empty when it is no whole number.
std::optional<std::int64_t> parse_power_of_ten(std::string_view text) {
  if (text.find_first_not_of("0123456789.e") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto real = std::from_chars(text.data(), end, value);
  if (real.ec != std::errc{} || real.ptr != end) return std::nullopt;
  if (value > kLimit || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto value = parse(text, kByteUnits, Inexact::rounded);
  if (!value) return std::nullopt;
  return Bytes{*value};
}

std::optional<std::int64_t> parse_tokens(std::string_view text) {
  if (text.find('e') != std::string_view::npos) return parse_power_of_ten(text);
  return parse(text, kTokenUnits, Inexact::refused);
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < names.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes.value);
  const int decimals = std::abs(value) >= 100 ? 0 : (std::abs(value) >= 10 ? 1 : 2);
  return fmt::format("{:.{}f} {}", value, decimals, names[unit]);
}

std::string format_tokens(std::int64_t tokens) {
  constexpr std::array<Unit, 3> units{
      {{"G", kKibi * kKibi * kKibi}, {"M", kKibi * kKibi}, {"K", kKibi}}};
  for (const Unit& unit : units) {
    if (tokens > 0 && tokens % unit.factor == 0) {
      return fmt::format("{}{}", tokens / unit.factor, unit.name);
    }
  }
  return fmt::format("{}", tokens);
}

std::string format_throughput(double per_second) {
  return fmt::format(fmt::runtime(per_second < 1000 ? "{:.4g}" : "{:.0f}"), per_second);
}

}  // namespace fpdt
