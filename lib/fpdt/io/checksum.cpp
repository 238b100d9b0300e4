// The only file that compiles the header of xxHash.
#include "fpdt/io/checksum.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fpdt {

struct Checksum::State {
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { reset(); }
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->hash); }

void Checksum::reset() { XXH3_64bits_reset(&state_->hash); }

std::uint64_t checksum(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string checksum_digits(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace fpdt
