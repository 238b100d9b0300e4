// The colours, and the words of categories and kinds.
#include "fpdt/report/palette.h"

#include <array>
#include <variant>

namespace fpdt {
namespace {

struct Paint {
  std::string_view word;
  std::string_view color;
  bool dark = false;
};

constexpr std::array<Paint, kOpKinds> kPaints{{
    {"attention, forward", "#332288", true},
    {"attention, recomputed", "#88CCEE", false},
    {"attention, backward", "#882255", true},
    {"matrix product", "#DDCC77", false},
    {"other compute", "#9AA3AE", false},
    {"optimizer", "#999933", false},
    {"fetch from host", "#44AA99", false},
    {"spill to host", "#CC6677", false},
    {"all-to-all", "#117733", true},
    {"gather, reduce", "#AA4499", true},
}};

// By Category.
constexpr std::array<std::string_view, 7> kCategoryColors{
    "#0072B2", "#56B4E9", "#B8C0CA", "#E69F00", "#009E73", "#CC79A7", "#444444"};

// Four colours of Okabe and Ito that stand out as thin lines.
constexpr std::array<std::string_view, 4> kCurveColors{"#0072B2", "#D55E00", "#009E73", "#CC79A7"};

const Paint& paint(OpKind kind) { return kPaints[static_cast<std::size_t>(kind)]; }

OpKind kind_on_compute(const Body& body) {
  if (const auto* forward = std::get_if<AttentionForward>(&body)) {
    return forward->pass == Pass::recompute ? OpKind::attention_recompute
                                            : OpKind::attention_forward;
  }
  if (std::holds_alternative<AttentionBackward>(body)) return OpKind::attention_backward;
  if (std::holds_alternative<Matmul>(body)) return OpKind::matmul;
  const bool update =
      std::holds_alternative<AdamW>(body) || std::holds_alternative<SquaredNorm>(body);
  return update ? OpKind::optimizer : OpKind::other;
}

}  // namespace

std::string_view color(Category category) {
  return kCategoryColors[static_cast<std::size_t>(category)];
}

OpKind kind_of(const Schedule& schedule, const Op& op) {
  if (const auto* copy = std::get_if<Copy>(&op.body)) {
    const auto on_device = [&](const Operand& operand) {
      return schedule.buffers[index(operand.buffer)].space == MemorySpace::device;
    };
    const bool from = on_device(copy->source);
    if (from != on_device(copy->target.operand)) return from ? OpKind::spill : OpKind::fetch;
  }
  if (op.lane.kind == LaneKind::comm) {
    return std::holds_alternative<AllToAll>(op.body) ? OpKind::all_to_all : OpKind::gather;
  }
  return kind_on_compute(op.body);
}

std::string_view word(OpKind kind) { return paint(kind).word; }
std::string_view color(OpKind kind) { return paint(kind).color; }
bool is_dark(OpKind kind) { return paint(kind).dark; }
std::string_view curve_color(std::size_t curve) {
  return kCurveColors[curve % kCurveColors.size()];
}

}  // namespace fpdt
