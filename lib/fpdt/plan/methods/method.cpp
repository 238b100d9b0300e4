// The list of methods: each has its own file.
#include "fpdt/plan/methods/method.h"

#include <array>

namespace fpdt {

extern const Method kFpdt, kAlst, kUlysses, kMegatron, kLss, kAllgatherCp, kRing, kZigzag, kUsp;

std::span<const Method* const> methods() {
  static constexpr std::array<const Method*, 9> kAll{
      &kFpdt, &kAlst, &kUlysses, &kMegatron, &kLss, &kAllgatherCp, &kRing, &kZigzag, &kUsp};
  return kAll;
}

const Method* method_named(std::string_view name) {
  for (const Method* method : methods()) {
    if (method->name == name) return method;
  }
  return nullptr;
}

const Method* method_of(const Problem& problem, const Strategy& strategy) {
  const bool alone = geometry(problem, strategy).sequence_parallel == 1;
  for (const Method* method : methods()) {
    if (alone && method->sharing != Sharing::heads) continue;
    if (method->holds(problem, strategy)) return method;
  }
  return nullptr;
}

}  // namespace fpdt
