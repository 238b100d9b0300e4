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

std::string_view word(NormKind kind) { return kind == NormKind::rms ? "rms" : "layer"; }

std::string_view word(ActivationKind kind) {
  constexpr std::array<std::string_view, 3> words{"swiglu", "gelu_tanh", "gelu_erf"};
  return words[static_cast<std::size_t>(kind)];
}

std::string_view word(ScalingKind kind) {
  constexpr std::array<std::string_view, 3> words{"llama3", "linear", "yarn"};
  return words[static_cast<std::size_t>(kind)];
}

std::string_view word(Pass pass) {
  constexpr std::array<std::string_view, 3> words{"forward", "recompute", "backward"};
  return words[static_cast<std::size_t>(pass)];
}

std::string_view word(LaneKind kind) {
  constexpr std::array<std::string_view, 4> words{"compute", "h2d", "d2h", "comm"};
  return words[static_cast<std::size_t>(kind)];
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
