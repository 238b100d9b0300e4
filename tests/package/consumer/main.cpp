// The smallest program that needs headers and code of an installed library.
#include <cstdio>

#include <fpdt/schedule/schedule.h>

int main() {
  fpdt::Schedule schedule;
  schedule.buffers.push_back({.name = "x", .shape = {3, 5}, .slots = 2});
  // Two slots of 3 * 5 floats, each rounded up to the alignment.
  const std::int64_t bytes = schedule.buffers.front().bytes().value;
  std::printf("%lld bytes\n", static_cast<long long>(bytes));
  return bytes == 2 * fpdt::kAlignment ? 0 : 1;
}
