// Lists the operands of an op.
#include "fpdt/schedule/op.h"

namespace fpdt {

const OpTraits& traits(const Body& body) {
  return std::visit(
      [](const auto& op) -> const OpTraits& { return std::decay_t<decltype(op)>::kTraits; }, body);
}

bool is_collective(const Body& body) {
  return std::visit([](const auto& op) { return IsCollective<std::decay_t<decltype(op)>>; }, body);
}

std::vector<Use> operands(const Body& body) {
  std::vector<Use> uses;
  uses.reserve(8);  // enough for most
  for_each_operand(body, [&uses](std::string_view field, const Operand& operand, Access access) {
    uses.push_back({field, operand, access});
  });
  return uses;
}

}  // namespace fpdt
