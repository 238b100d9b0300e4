// The vocabulary of the shape rules.
#include "fpdt/schedule/verify/shape_terms.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/schedule/text.h"

namespace fpdt {
namespace {

bool allowed(Types types, Dtype dtype) {
  switch (types) {
    case Types::values:
      return dtype != Dtype::i32;
    case Types::f32:
      return dtype == Dtype::f32;
    case Types::i32:
      return dtype == Dtype::i32;
    case Types::any:
      return true;
  }
  return false;
}

std::string_view word(Types types) {
  switch (types) {
    case Types::values:
      return "f32 or bf16";
    case Types::f32:
      return "f32";
    case Types::i32:
      return "i32";
    case Types::any:
      return "any";
  }
  return "";
}

}  // namespace

std::int64_t elements_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor < 0 || __builtin_mul_overflow(product, factor, &product)) return kMostElements;
  }
  return std::min(product, kMostElements);
}

std::int64_t ShapeTerms::rows(const Operand& operand) const {
  if (!operand.present()) return 0;
  return operand.rows < 0 ? buffer(operand).rows() - operand.row_first : operand.rows;
}

std::int64_t ShapeTerms::elements(const Operand& operand) const {
  return operand.present() ? rows(operand) * buffer(operand).row_elements() : 0;
}

void ShapeTerms::finding(std::string_view code, std::string message) {
  findings_.add(code, where_, std::move(message));
}

void ShapeTerms::missing(std::string_view field) {
  finding("S207", fmt::format("{} needs {}", body_name(op_.body), field));
}

void ShapeTerms::constant(bool fits, std::string_view message) {
  if (!fits) finding("S205", std::string(message));
}

void ShapeTerms::soft_cap(double cap) {
  constant(std::isfinite(cap) && cap >= 0, "cap must be 0 or positive");
}

bool ShapeTerms::experts(std::int64_t rows, std::int64_t experts, std::int64_t active) {
  positive({{"rows", rows}, {"experts", experts}, {"active", active}});
  if (rows < 1 || experts < 1 || active < 1) return false;
  constant(experts <= kExpertsMost && active <= kActiveMost && active <= experts,
           fmt::format("at most {} experts, and {} of them active", kExpertsMost, kActiveMost));
  const bool counts = elements_of({2, rows, active}) <= INT32_MAX - experts;
  constant(counts, "more pairs of rows and experts than an i32 counts");
  return counts && experts <= kExpertsMost && active <= experts;
}

void ShapeTerms::positive(std::initializer_list<NamedConstant> constants) {
  for (const NamedConstant& one : constants) {
    if (one.value < 1) finding("S205", fmt::format("{} is {}", one.name, one.value));
  }
}

void ShapeTerms::types(std::string_view field, const Operand& operand, Types types) {
  if (!operand.present() || allowed(types, buffer(operand).dtype)) return;
  finding("S203", fmt::format("{} is {}, expected {}", field, fpdt::word(buffer(operand).dtype),
                              word(types)));
}

void ShapeTerms::may_read(std::string_view field, const Operand& operand, std::int64_t count,
                          Types allowed_types) {
  if (!operand.present()) return;
  types(field, operand, allowed_types);
  if (elements(operand) < count) {
    finding("S202", fmt::format("{} holds {} elements, expected at least {}", field,
                                elements(operand), count));
  }
}

void ShapeTerms::reads(std::string_view field, const Operand& operand, std::int64_t count,
                       Types allowed_types) {
  if (!operand.present()) missing(field);
  may_read(field, operand, count, allowed_types);
}

void ShapeTerms::may_write(std::string_view field, const Target& target, std::int64_t count,
                           Types allowed_types) {
  if (!target.present()) return;
  types(field, target.operand, allowed_types);
  if (elements(target.operand) != count) {
    finding("S202", fmt::format("{} holds {} elements, expected {}", field,
                                elements(target.operand), count));
  }
}

void ShapeTerms::writes(std::string_view field, const Target& target, std::int64_t count,
                        Types allowed_types) {
  if (!target.present()) missing(field);
  may_write(field, target, count, allowed_types);
}

void ShapeTerms::documents(const Operand& operand, const RankExpression& token_first,
                           std::int64_t tokens) {
  const RankBounds first = bounds_over(token_first, schedule_.ranks);
  if (first.least < 0 || first.greatest > INT32_MAX - tokens) {
    finding("S205", fmt::format("tokens {} to {} are outside the sequence on some rank",
                                first.least, first.greatest + tokens - 1));
  }
  may_read("documents", operand, first.greatest + tokens, Types::i32);
  constant(!operand.present() || operand.row_first == 0,
           "documents must begin with the sequence's first token");
}

void ShapeTerms::table_rows(std::string_view field, const Operand& operand, std::int64_t rows,
                            std::int64_t width) {
  constant(rows >= 1, fmt::format("{} rows of {}", rows, field));
  may_read(field, operand, elements_of({rows, width}));
}

void ShapeTerms::learned_positions(const Operand& documents, const RankExpression& token_first,
                                   std::int64_t tokens, std::int64_t position_count) {
  if (documents.present()) return;
  const std::int64_t end = bounds_over(token_first, schedule_.ranks).greatest + tokens;
  if (end > position_count) {
    finding("S205", fmt::format("tokens to {} have {} positions", end - 1, position_count));
  }
}

void ShapeTerms::in_place(std::string_view field, const Target& target, const Operand& source) {
  writes(field, target, elements(source), Types::f32);
  if (!target.present() || !source.present()) return;
  Operand expected = source;
  expected.version.offset += buffer(source).slots;
  constant(
      target.operand == expected && !target.accumulate,
      fmt::format("{} must be the next version of the value it replaces, in the same rows", field));
}

bool ShapeTerms::heads(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t head_dim, std::int64_t ranks, const Rotary& rotary) {
  positive({{"rows", rows}, {"head_dim", head_dim}, {"ranks", ranks}});
  const bool some = heads >= 0 && kv_heads >= 0 && (heads > 0 || kv_heads > 0);
  constant(some, "heads or kv_heads must be positive, and neither negative");
  if (rows < 1 || !some || head_dim < 1 || ranks < 1) return false;
  if (heads > kMostElements / 4 || kv_heads > kMostElements / 4) {
    constant(false, "too many heads");
    return false;
  }
  constant(heads % ranks == 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0),
           "heads must divide by ranks, and kv_heads by ranks or ranks by kv_heads");
  constant(head_dim <= kHeadDimMax, fmt::format("head_dim is over {}", kHeadDimMax));
  constant(rotary.rotary >= 0 && rotary.rotary <= head_dim && rotary.rotary % 2 == 0,
           "rotary must be even and at most head_dim");
  constant(rotary.theta > 0 && rotary.factor > 0 && rotary.original_positions > 0,
           "theta, factor and original_positions must be positive");
  const bool yarn =
      rotary.scaling == ScalingKind::yarn || rotary.scaling == ScalingKind::yarn_exact;
  constant(!yarn || rotary.theta > 1, "yarn needs theta over 1");
  constant(std::isfinite(rotary.magnitude) && rotary.magnitude > 0, "magnitude must be positive");
  const bool longrope = rotary.scaling == ScalingKind::longrope;
  constant(!longrope || rotary.factor == 1, "longrope has a factor for each pair and no other");
  constant(std::ssize(rotary.factors) == (longrope ? rotary.rotary / 2 : 0),
           "factors must be one for each pair of longrope, and none of another scaling");
  constant(
      std::all_of(rotary.factors.begin(), rotary.factors.end(), [](double f) { return f > 0; }),
      "factors must be positive");
  return true;
}

void ShapeTerms::vocabulary(std::int64_t rows, std::int64_t first, std::int64_t count) {
  positive({{"rows", rows}, {"vocab_count", count}});
  constant(first >= 0, "vocab_first must not be negative");
}

void ShapeTerms::size_of(std::string_view field, const Operand& operand, std::int64_t count) {
  if (elements(operand) == count) return;
  finding("S206",
          fmt::format("{} holds {} elements, expected {}", field, elements(operand), count));
}

std::int64_t ShapeTerms::pairs(const std::string& group, const std::vector<Operand>& send,
                               const std::vector<Target>& receive, bool reduces) {
  if (send.empty() || send.size() != receive.size()) {
    finding("S207", fmt::format("{} operands to send, {} to receive", send.size(), receive.size()));
    return 0;
  }
  for (std::size_t i = 0; i < send.size(); ++i) {
    if (!send[i].present() || !receive[i].present()) {
      missing("every pair whole");
      return 0;
    }
    const Dtype sent = buffer(send[i]).dtype;
    if (sent != buffer(receive[i].operand).dtype || (reduces && sent == Dtype::i32)) {
      finding("S203", fmt::format("send {} and its receive differ in type, or i32 is added", i));
    }
    constant(reduces || !receive[i].accumulate, "only reductions accumulate");
  }
  return std::find_if(schedule_.groups.begin(), schedule_.groups.end(),
                      [&](const Group& one) { return one.name == group; })
      ->size;
}

void ShapeTerms::sum_workspace(const Operand& workspace, const std::vector<Operand>& send,
                               std::int64_t members) {
  if (!workspace.present()) return;
  types("workspace", workspace, Types::f32);
  std::int64_t widest = 0;
  for (const Operand& one : send) widest = std::max(widest, dtype_bytes(buffer(one).dtype));
  const std::int64_t held = elements(workspace) * dtype_bytes(buffer(workspace).dtype);
  if (held >= members * widest) return;
  finding("S206", fmt::format("workspace holds {} bytes, expected at least {}: one element of each "
                              "of {} members",
                              held, members * widest, members));
}

void ShapeTerms::wrong_place(const std::string& message) {
  finding("S204", fmt::format("{} cannot run: {}", body_name(op_.body), message));
}

void ShapeTerms::spaces() {
  const auto* copy = std::get_if<Copy>(&op_.body);
  if (copy == nullptr) {
    for (const Use& use : operands(op_.body)) {
      if (buffer(use.operand).space == MemorySpace::device) continue;
      wrong_place(
          fmt::format("{} is in {} memory", use.field, fpdt::word(buffer(use.operand).space)));
    }
    if (op_.lane.kind == LaneKind::h2d || op_.lane.kind == LaneKind::d2h)
      wrong_place(fmt::format("it is on lane {}", lane_text(op_.lane)));
    return;
  }
  if (!copy->source.present() || !copy->target.present()) return;
  const bool from_device = buffer(copy->source).space == MemorySpace::device;
  const bool to_device = buffer(copy->target.operand).space == MemorySpace::device;
  const bool copy_lane = op_.lane.kind == LaneKind::h2d || op_.lane.kind == LaneKind::d2h;
  const bool fits = from_device == to_device ? op_.lane.kind != LaneKind::comm : copy_lane;
  if (!fits) wrong_place(fmt::format("it is on lane {}", lane_text(op_.lane)));
}

}  // namespace fpdt
