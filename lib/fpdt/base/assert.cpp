// The failure path of FPDT_ASSERT, out of line.
#include "fpdt/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace fpdt {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "fpdt: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace fpdt
