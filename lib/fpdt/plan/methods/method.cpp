// The list of methods: each has its own file.
#include "fpdt/plan/methods/method.h"

#include <array>

namespace fpdt {

extern const Method kFpdt, kAlst, kUlysses, kLss, kAllgatherCp;

std::span<const Method* const> methods() {
  static constexpr std::array<const Method*, 5> kAll{&kFpdt, &kAlst, &kUlysses, &kLss,
                                                     &kAllgatherCp};
  return kAll;
}

const Method* method_named(std::string_view name) {
  for (const Method* method : methods()) {
    if (method->name == name) return method;
  }
  return nullptr;
}

const Method* method_of(const Problem& problem, const Strategy& strategy) {
  for (const Method* method : methods()) {
    if (method->holds(problem, strategy)) return method;
  }
  return nullptr;
}

}  // namespace fpdt
