// XXH3 of 64 bits, which finds bytes that a disk, a cable or memory changed; no defence against a
// person.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace fpdt {

// Of bytes that come in pieces of any size.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  // Of all bytes so far.
  [[nodiscard]] std::uint64_t value() const;
  // Begins anew.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum(std::string_view text);

// As 16 hexadecimal digits, the canonical form that xxhsum prints.
inline constexpr std::size_t kChecksumDigits = 16;
std::string checksum_digits(std::uint64_t value);

}  // namespace fpdt
