// Lists the operands of an op.
#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

struct UseCollector : FieldVisitor<UseCollector> {
  explicit UseCollector(std::vector<Use>& all) : uses(all) {}
  std::vector<Use>& uses;

  void read(std::string_view field, const Operand& operand) {
    if (operand.present()) uses.push_back({field, operand, Access::read});
  }
  void target(std::string_view field, const Target& target) {
    if (!target.present()) return;
    uses.push_back({field, target.operand, target.accumulate ? Access::accumulate : Access::write});
  }
  void scratch(std::string_view field, const Operand& operand) {
    if (operand.present()) uses.push_back({field, operand, Access::scratch});
  }
};

}  // namespace

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
  std::visit(
      [&uses](const auto& op) { std::decay_t<decltype(op)>::fields(op, UseCollector(uses)); },
      body);
  return uses;
}

}  // namespace fpdt
