// Finds the view of a field of an op. Views exist only for operands that are present, in the order
// of the fields.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/view.h"
#include "fpdt/schedule/op.h"

namespace fpdt {

// A visitor of fields. Kernels call `find_view`.
struct ViewFinder : FieldVisitor<ViewFinder> {
  explicit ViewFinder(const Operand* field) : wanted(field) {}
  const Operand* wanted;
  std::int64_t next = 0;
  std::int64_t found = -1;

  void read(std::string_view, const Operand& operand) {
    if (!operand.present()) return;
    if (&operand == wanted) found = next;
    ++next;
  }
  void target(std::string_view field, const Target& target) { read(field, target.operand); }
};

// The index of the view of `field`, a member of `op`; -1 if the operand is absent.
template <class Body>
[[nodiscard]] std::int64_t view_number(const Body& op, std::span<const View> views,
                                       const Operand& field) {
  ViewFinder finder(&field);
  Body::fields(op, finder);
  FPDT_ASSERT(finder.next == static_cast<std::int64_t>(views.size()));
  return finder.found;
}

// The view of `field`; its data is nullptr if the operand is absent.
template <class Body>
[[nodiscard]] View find_view(const Body& op, std::span<const View> views, const Operand& field) {
  const std::int64_t number = view_number(op, views, field);
  return number < 0 ? View{} : views[static_cast<std::size_t>(number)];
}

}  // namespace fpdt
