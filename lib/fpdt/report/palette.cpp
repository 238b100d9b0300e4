// The colours, and the words of parts and kinds.
#include "fpdt/report/palette.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <variant>

#include "fpdt/base/assert.h"

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
    {"experts", "#EE8866", false},
    {"other compute", "#9AA3AE", false},
    {"optimizer", "#999933", false},
    {"fetch from host", "#44AA99", false},
    {"spill to host", "#CC6677", false},
    {"all-to-all", "#117733", true},
    {"gather, reduce", "#AA4499", true},
}};

struct PartPaint {
  std::string_view word;
  std::string_view color;
};
constexpr std::array<PartPaint, kParts> kPartPaints{{
    {"parameters", "#0072B2"},
    {"gathered", "#CC79A7"},
    {"gradients", "#56B4E9"},
    {"optimizer", "#B8C0CA"},
    {"activations", "#E69F00"},
    {"staging", "#009E73"},
    {"other", "#444444"},
}};

// From dark to light. What has no tint lies above them, in the colour of all activations.
constexpr std::array<std::string_view, kTints> kTintColors{"#7F3300", "#A85200", "#CC7700",
                                                           "#F5BE4F", "#FBDD9B"};

// Colours of Okabe and Ito that stand out as thin lines, and three that are darker than they are:
// a comparison draws nine methods.
constexpr std::array<std::string_view, 9> kCurveColors{"#0072B2", "#D55E00", "#009E73",
                                                       "#CC79A7", "#E69F00", "#56B4E9",
                                                       "#7A4B1E", "#6A4FB3", "#7C8500"};

const Paint& paint(OpKind kind) { return kPaints[static_cast<std::size_t>(kind)]; }

OpKind kind_on_compute(const Body& body) {
  if (const auto* forward = std::get_if<AttentionForward>(&body)) {
    return forward->pass == Pass::recompute ? OpKind::attention_recompute
                                            : OpKind::attention_forward;
  }
  if (std::holds_alternative<AttentionBackward>(body)) return OpKind::attention_backward;
  if (std::holds_alternative<Matmul>(body)) return OpKind::matmul;
  if (std::holds_alternative<Activation>(body) ||
      std::holds_alternative<ActivationBackward>(body)) {
    return OpKind::other;  // whether of experts or not
  }
  const bool routes = std::visit(
      [](const auto& op) {
        return requires { op.routes; };
      },
      body);
  if (routes) return OpKind::experts;
  const bool update =
      std::holds_alternative<AdamW>(body) || std::holds_alternative<SquaredNorm>(body);
  return update ? OpKind::optimizer : OpKind::other;
}

}  // namespace

Part part_of(const Buffer& buffer) {
  const bool state = buffer.role == Role::state;
  switch (buffer.category) {
    case Category::weights:
      return state ? Part::parameters : Part::gathered;
    case Category::gradients:
      return state ? Part::gradients : Part::gathered;
    case Category::optimizer:
      return Part::optimizer;
    case Category::activations:
      return Part::activations;
    case Category::communication:
      return Part::staging;
    case Category::tokens:
    case Category::scalars:
      return Part::other;
  }
  FPDT_ASSERT(false);
  return Part::other;
}

std::string_view word(Part part) { return kPartPaints[static_cast<std::size_t>(part)].word; }
std::string_view color(Part part) { return kPartPaints[static_cast<std::size_t>(part)].color; }

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

std::string_view tint_color(std::size_t tint) { return kTintColors[tint]; }

std::vector<std::vector<OpKind>> op_kinds(const Schedule& schedule) {
  std::vector<std::vector<OpKind>> kinds;
  for (const Block& block : schedule.blocks) {
    kinds.emplace_back();
    for (const Op& op : block.ops) kinds.back().push_back(kind_of(schedule, op));
  }
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> done;  // by layer and micro-batch
  for (const Call& call : schedule.train) {
    std::vector<OpKind>& own = kinds[index(call.block)];
    if (std::find(own.begin(), own.end(), OpKind::attention_forward) == own.end()) continue;
    const auto [first, is_new] = done.try_emplace({call.layer, call.micro_batch}, call.block);
    if (is_new || first->second == call.block) continue;
    std::replace(own.begin(), own.end(), OpKind::attention_forward, OpKind::attention_recompute);
  }
  return kinds;
}

std::string_view word(OpKind kind) { return paint(kind).word; }
std::string_view color(OpKind kind) { return paint(kind).color; }
bool is_dark(OpKind kind) { return paint(kind).dark; }
std::string_view curve_color(std::size_t curve) {
  return kCurveColors[curve % kCurveColors.size()];
}

}  // namespace fpdt
