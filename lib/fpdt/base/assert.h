// Assertions of invariants. They stay on in release builds: a schedule that runs with a broken
// invariant corrupts training silently, which costs more than the check.
#pragma once

namespace fpdt {

// Prints the failed condition and aborts. Never returns.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace fpdt

#define FPDT_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::fpdt::assertion_failed(#condition, __FILE__, __LINE__))
