// A hash for names and texts, equal on every machine and in every version.
#pragma once

#include <cstdint>
#include <string_view>

namespace fpdt {

// FNV-1a of 64 bits (Fowler, Noll and Vo).
inline std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace fpdt
