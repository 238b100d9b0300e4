// A type for byte counts, and the texts of byte sizes ("80GiB") and token counts ("2M").
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fpdt/base/math.h"

namespace fpdt {

// A number of bytes; every operator checks for overflow.
struct Bytes {
  std::int64_t value = 0;

  auto operator<=>(const Bytes&) const = default;
  Bytes& operator+=(Bytes other) {
    value = add(value, other.value);
    return *this;
  }
  friend Bytes operator+(Bytes a, Bytes b) { return Bytes{add(a.value, b.value)}; }
  friend Bytes operator-(Bytes a, Bytes b) { return Bytes{add(a.value, -b.value)}; }
  friend Bytes operator*(std::int64_t n, Bytes b) { return Bytes{mul(n, b.value)}; }
};

// "80GiB", "512 MiB", "60.1GiB" (to the nearest byte), "80GB" (decimal), "4096B". A unit is
// required; empty when malformed, negative, a fraction of a byte, or over 2^62.
std::optional<Bytes> parse_bytes(std::string_view text);

// "2M" = 2^21, "64K" = 2^16, "1G" = 2^30 (binary, as the field writes token counts), "2000000",
// "2Mi", "1e6". Small letters mean the same: "2m".
std::optional<std::int64_t> parse_tokens(std::string_view text);

// "1.50 GiB", three significant digits; exact below 1 KiB.
std::string format_bytes(Bytes bytes);

// "2M" when the count is a whole number of binary units, else the digits.
std::string format_tokens(std::int64_t tokens);

// Four digits, or all before the point of a larger number: "577.4", "6310", "11032".
std::string format_throughput(double per_second);

}  // namespace fpdt
