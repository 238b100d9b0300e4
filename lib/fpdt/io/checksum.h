// XXH3 of 64 bits. It detects bytes that a disk, a cable or memory changed, but does not protect
// against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace fpdt {

// The checksum of bytes that arrive in pieces of any size.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  // The checksum of all bytes so far.
  [[nodiscard]] std::uint64_t value() const;
  // Starts over.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum(std::string_view text);

// A checksum prints as 16 hexadecimal digits, the canonical form of xxhsum.
inline constexpr std::size_t kChecksumDigits = 16;
std::string checksum_digits(std::uint64_t value);

}  // namespace fpdt
