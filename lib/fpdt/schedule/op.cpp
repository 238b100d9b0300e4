// Lists the operands of an op.
#include "fpdt/schedule/op.h"

namespace fpdt {

Body::Body() = default;
Body::Body(const Body& other) = default;
Body::Body(Body&& other) noexcept = default;
Body& Body::operator=(const Body& other) = default;
Body& Body::operator=(Body&& other) noexcept = default;
Body::~Body() = default;

const OpTraits& traits(const Body& body) {
  return std::visit(
      [](const auto& op) -> const OpTraits& { return std::decay_t<decltype(op)>::kTraits; }, body);
}

bool is_collective(const Body& body) {
  return std::visit([](const auto& op) { return IsCollective<std::decay_t<decltype(op)>>; }, body);
}

namespace {

struct OperandVisitor : FieldVisitor<OperandVisitor> {
  OperandVisitor(void* to, FoundOperand each) : caller(to), found(each) {}
  void* caller;
  FoundOperand found;

  void read(std::string_view field, const Operand& operand) {
    if (operand.present()) found(caller, field, operand, Access::read);
  }
  void target(std::string_view field, const Target& target) {
    if (!target.present()) return;
    found(caller, field, target.operand, target.accumulate ? Access::accumulate : Access::write);
  }
  void scratch(std::string_view field, const Operand& operand) {
    if (operand.present()) found(caller, field, operand, Access::scratch);
  }
};

}  // namespace

void visit_operands(const Body& body, void* caller, FoundOperand found) {
  std::visit(
      [=](const auto& op) {
        std::decay_t<decltype(op)>::fields(op, OperandVisitor(caller, found));
      },
      body);
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
