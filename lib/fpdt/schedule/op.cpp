// Words of ops, and the one function that says what an op touches.
#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

// Collects the operands of a body; constants pass by.
struct UseCollector {
  std::vector<Use>& uses;

  void read(std::string_view field, const Operand& operand) {
    if (operand.present()) uses.push_back({field, operand, Access::read});
  }
  void read(std::string_view field, const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) read(field, operand);
  }
  void target(std::string_view field, const Target& target) {
    if (!target.present()) return;
    uses.push_back({field, target.operand, target.accumulate ? Access::accumulate : Access::write});
  }
  void target(std::string_view field, const std::vector<Target>& targets) {
    for (const Target& one : targets) target(field, one);
  }
  void scratch(std::string_view field, const Operand& operand) {
    if (operand.present()) uses.push_back({field, operand, Access::scratch});
  }
  template <class T>
  void constant(std::string_view, const T&) {}
};

}  // namespace

const OpTraits& traits(const Body& body) {
  return std::visit(
      [](const auto& op) -> const OpTraits& { return std::decay_t<decltype(op)>::kTraits; }, body);
}

bool is_collective(const Body& body) {
  return std::holds_alternative<AllToAll>(body) || std::holds_alternative<AllGather>(body) ||
         std::holds_alternative<ReduceScatter>(body) || std::holds_alternative<AllReduce>(body);
}

std::vector<Use> operands(const Body& body) {
  std::vector<Use> uses;
  uses.reserve(8);  // enough for most
  std::visit(
      [&uses](const auto& op) { std::decay_t<decltype(op)>::fields(op, UseCollector{uses}); },
      body);
  return uses;
}

}  // namespace fpdt
