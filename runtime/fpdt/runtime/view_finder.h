// Which view belongs to a field of an op: views are those of the present operands, in the order of
// the fields.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/view.h"
#include "fpdt/schedule/op.h"

namespace fpdt {

// A visitor of fields; `find_view` is what kernels call.
struct ViewFinder {
  const Operand* wanted;
  std::int64_t index = 0;
  std::int64_t found = -1;

  void read(std::string_view, const Operand& operand) {
    if (!operand.present()) return;
    if (&operand == wanted) found = index;
    ++index;
  }
  void read(std::string_view field, const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) read(field, operand);
  }
  void target(std::string_view field, const Target& target) { read(field, target.operand); }
  void target(std::string_view field, const std::vector<Target>& targets) {
    for (const Target& one : targets) read(field, one.operand);
  }
  void scratch(std::string_view field, const Operand& operand) { read(field, operand); }
  template <class T>
  void constant(std::string_view, const T&) {}
};

// The view of `field`, a member of `op`; data == nullptr when the operand is absent.
template <class Body>
[[nodiscard]] View find_view(const Body& op, std::span<const View> views, const Operand& field) {
  ViewFinder finder{&field};
  Body::fields(op, finder);
  FPDT_ASSERT(finder.index == static_cast<std::int64_t>(views.size()));
  return finder.found < 0 ? View{} : views[static_cast<std::size_t>(finder.found)];
}

}  // namespace fpdt
