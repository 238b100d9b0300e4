// S2xx: the shape rules.
#include "fpdt/schedule/shapes.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/schedule/text.h"

namespace fpdt {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 60;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// The product, or kMostElements (more than any buffer holds) when a factor is negative or it grows past it.
template <class... Factors>
std::int64_t elements_of(Factors... factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : {static_cast<std::int64_t>(factors)...}) {
    if (factor < 0 || __builtin_mul_overflow(product, factor, &product)) return kMostElements;
  }
  return std::min(product, kMostElements);
}

// Types that a field may have.
enum class Types : std::uint8_t { values, f32, i32, any };

bool allowed(Types types, Dtype dtype) {
  switch (types) {
    case Types::values: return dtype != Dtype::i32;
    case Types::f32: return dtype == Dtype::f32;
    case Types::i32: return dtype == Dtype::i32;
    case Types::any: return true;
  }
  return false;
}

std::string_view word(Types types) {
  switch (types) {
    case Types::values: return "f32 or bf16";
    case Types::f32: return "f32";
    case Types::i32: return "i32";
    case Types::any: return "any";
  }
  return "";
}

// The rules' vocabulary.
class Rules {
 public:
  Rules(const Schedule& schedule, const Op& op, const std::string& where, Findings& findings)
      : schedule_(schedule), op_(op), where_(where), findings_(findings) {}

  void operator()(const Matmul& op) {
    positive({{"m", op.m}, {"n", op.n}, {"k", op.k}});
    reads("a", op.a, elements_of(op.m, op.k));
    reads("b", op.b, elements_of(op.k, op.n));
    may_read("bias", op.bias, op.n);
    may_read("addend", op.addend, elements_of(op.m, op.n));
    writes("out", op.out, elements_of(op.m, op.n));
  }

  void operator()(const ColumnSum& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("source", op.source, elements_of(op.rows, op.width));
    writes("out", op.out, op.width, Types::f32);
  }

  void operator()(const Norm& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("x", op.x, elements_of(op.rows, op.width));
    reads("weight", op.weight, op.width);
    may_read("bias", op.bias, op.width);
    writes("y", op.y, elements_of(op.rows, op.width));
    constant(op.epsilon > 0, "epsilon must be positive");
  }

  void operator()(const NormBackward& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("x", op.x, elements_of(op.rows, op.width));
    reads("weight", op.weight, op.width);
    reads("dy", op.dy, elements_of(op.rows, op.width));
    may_read("addend", op.addend, elements_of(op.rows, op.width));
    writes("dx", op.dx, elements_of(op.rows, op.width));
    may_write("dweight", op.dweight, op.width, Types::f32);
    may_write("dbias", op.dbias, op.width, Types::f32);
    constant(op.epsilon > 0, "epsilon must be positive");
  }

  void operator()(const SplitHeads& op) {
    if (!heads(op.rows, op.heads, op.kv_heads, op.head_dim, op.ranks, op.rotary)) return;
    const std::int64_t kv_local = std::max<std::int64_t>(1, op.kv_heads / op.ranks);
    reads("qkv", op.qkv, elements_of(op.rows, op.heads + 2 * op.kv_heads, op.head_dim));
    documents(op.documents, op.token_first, op.rows);
    writes("q", op.q, elements_of(op.rows, op.heads, op.head_dim));
    writes("kv", op.kv, elements_of(op.ranks, op.rows, 2, kv_local, op.head_dim));
  }

  void operator()(const JoinHeads& op) {
    if (!heads(op.rows, op.heads, op.kv_heads, op.head_dim, op.ranks, op.rotary)) return;
    const std::int64_t kv_local = std::max<std::int64_t>(1, op.kv_heads / op.ranks);
    reads("dq", op.dq, elements_of(op.rows, op.heads, op.head_dim));
    reads("dkv", op.dkv, elements_of(op.ranks, op.rows, 2, kv_local, op.head_dim));
    documents(op.documents, op.token_first, op.rows);
    writes("dqkv", op.dqkv, elements_of(op.rows, op.heads + 2 * op.kv_heads, op.head_dim));
  }

  void operator()(const Permute& op) {
    positive({{"outer", op.outer}, {"inner", op.inner}, {"width", op.width}});
    reads("source", op.source, elements_of(op.outer, op.inner, op.width));
    writes("target", op.target, elements_of(op.outer, op.inner, op.width));
  }

  void operator()(const AttentionForward& op) {
    tile(op);
    reads("q", op.q, elements_of(op.q_rows, op.heads, op.head_dim));
    reads("kv", op.kv, elements_of(op.k_rows, 2, op.kv_heads, op.head_dim));
    writes("o", op.o, elements_of(op.q_rows, op.heads, op.head_dim));
    writes("lse", op.lse, elements_of(op.q_rows, op.heads), Types::f32);
    constant(op.o.accumulate == op.lse.accumulate, "o and lse must be written or accumulated together");
  }

  void operator()(const AttentionDelta& op) {
    positive({{"rows", op.rows}, {"heads", op.heads}, {"head_dim", op.head_dim}});
    reads("o", op.o, elements_of(op.rows, op.heads, op.head_dim));
    reads("dout", op.dout, elements_of(op.rows, op.heads, op.head_dim));
    writes("delta", op.delta, elements_of(op.rows, op.heads), Types::f32);
  }

  void operator()(const AttentionBackward& op) {
    tile(op);
    reads("q", op.q, elements_of(op.q_rows, op.heads, op.head_dim));
    reads("kv", op.kv, elements_of(op.k_rows, 2, op.kv_heads, op.head_dim));
    reads("dout", op.dout, elements_of(op.q_rows, op.heads, op.head_dim));
    reads("lse", op.lse, elements_of(op.q_rows, op.heads), Types::f32);
    reads("delta", op.delta, elements_of(op.q_rows, op.heads), Types::f32);
    writes("dq", op.dq, elements_of(op.q_rows, op.heads, op.head_dim), Types::f32);
    writes("dkv", op.dkv, elements_of(op.k_rows, 2, op.kv_heads, op.head_dim), Types::f32);
  }

  void operator()(const Activation& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("x", op.x, elements_of(op.rows, op.width, inputs(op.kind)));
    writes("y", op.y, elements_of(op.rows, op.width));
  }

  void operator()(const ActivationBackward& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("x", op.x, elements_of(op.rows, op.width, inputs(op.kind)));
    reads("dy", op.dy, elements_of(op.rows, op.width));
    writes("dx", op.dx, elements_of(op.rows, op.width, inputs(op.kind)));
  }

  void operator()(const Embedding& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("tokens", op.tokens, op.rows, Types::i32);
    reads("table", op.table, op.width);
    may_read("positions", op.positions, op.width);
    documents(op.documents, op.token_first, op.rows);
    writes("x", op.x, elements_of(op.rows, op.width));
    whole_rows("table", op.table, op.width);
    whole_rows("positions", op.positions, op.width);
  }

  void operator()(const EmbeddingBackward& op) {
    positive({{"rows", op.rows}, {"width", op.width}});
    reads("tokens", op.tokens, op.rows, Types::i32);
    reads("dx", op.dx, elements_of(op.rows, op.width));
    documents(op.documents, op.token_first, op.rows);
    types("dtable", op.dtable.operand, Types::f32);
    types("dpositions", op.dpositions.operand, Types::f32);
    whole_rows("dtable", op.dtable.operand, op.width);
    whole_rows("dpositions", op.dpositions.operand, op.width);
    constant(op.local_first >= 0, "local_first must not be negative");
    if (!op.dtable.present()) missing("dtable");
  }

  void operator()(const LossStatistics& op) {
    vocabulary(op.rows, op.vocab_first, op.vocab_count);
    reads("logits", op.logits, elements_of(op.rows, op.vocab_count));
    reads("labels", op.labels, op.rows, Types::i32);
    writes("statistics", op.statistics, elements_of(op.rows, 3), Types::f32);
  }

  void operator()(const LossSum& op) {
    positive({{"rows", op.rows}});
    reads("statistics", op.statistics, elements_of(op.rows, 3), Types::f32);
    reads("labels", op.labels, op.rows, Types::i32);
    reads("scale", op.scale, 1, Types::f32);
    writes("loss", op.loss, 1, Types::f32);
  }

  void operator()(const LossGradient& op) {
    vocabulary(op.rows, op.vocab_first, op.vocab_count);
    reads("logits", op.logits, elements_of(op.rows, op.vocab_count));
    reads("labels", op.labels, op.rows, Types::i32);
    reads("statistics", op.statistics, elements_of(op.rows, 3), Types::f32);
    reads("scale", op.scale, 1, Types::f32);
    writes("dlogits", op.dlogits, elements_of(op.rows, op.vocab_count));
  }

  void operator()(const Fill& op) {
    if (!op.target.present()) missing("target");
    constant(!op.target.accumulate, "fill cannot accumulate");
  }

  void operator()(const Copy& op) {
    reads("source", op.source, 1, Types::any);
    writes("target", op.target, elements(op.source), Types::any);
    if (!op.source.present() || !op.target.present()) return;
    const bool integers = buffer(op.source).dtype == Dtype::i32;
    if (integers != (buffer(op.target.operand).dtype == Dtype::i32)) {
      findings_.add("S203", where_, "copy between i32 and a floating type");
    }
    constant(!(integers && op.target.accumulate), "copy cannot accumulate i32");
  }

  void operator()(const SquaredNorm& op) {
    reads("source", op.source, 1);
    writes("sum", op.sum, 1, Types::f32);
  }

  void operator()(const AdamW& op) {
    const std::int64_t count = elements(op.master);
    for (const auto& [field, operand] : {std::pair("grad", &op.grad), std::pair("master", &op.master),
                                         std::pair("m", &op.m), std::pair("v", &op.v)}) {
      reads(field, *operand, count, Types::f32);
    }
    reads("norm", op.norm, 1, Types::f32);
    reads("step", op.step, 4, Types::f32);
    may_write("param", op.param, count, Types::values);
    in_place("master_out", op.master_out, op.master);
    in_place("m_out", op.m_out, op.m);
    in_place("v_out", op.v_out, op.v);
    const bool betas = op.beta1 >= 0 && op.beta1 < 1 && op.beta2 >= 0 && op.beta2 < 1;
    constant(betas && op.epsilon > 0 && op.clip >= 0, "beta, epsilon or clip out of range");
  }

  void operator()(const AllToAll& op) {
    const std::int64_t ranks = pairs(op, false);
    for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
      size_of("receive", op.receive[i].operand, elements(op.send[i]));
      for (const Operand* operand : {&op.send[i], &op.receive[i].operand}) {
        if (rows(*operand) % ranks != 0) {
          findings_.add("S206", where_, fmt::format("{} rows are not {} equal blocks", rows(*operand), ranks));
        }
      }
    }
  }

  void operator()(const AllGather& op) {
    const std::int64_t ranks = pairs(op, false);
    for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
      size_of("receive", op.receive[i].operand, elements_of(ranks, elements(op.send[i])));
    }
  }

  void operator()(const ReduceScatter& op) {
    const std::int64_t ranks = pairs(op, true);
    for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
      size_of("send", op.send[i], elements_of(ranks, elements(op.receive[i].operand)));
    }
  }

  void operator()(const AllReduce& op) {
    const std::int64_t ranks = pairs(op, true);
    for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
      size_of("receive", op.receive[i].operand, elements(op.send[i]));
    }
  }

  // Only copies touch host memory; one between spaces needs a copy lane. Either will do: a
  // machine without full duplex has one for both directions.
  void spaces() {
    const auto* copy = std::get_if<Copy>(&op_.body);
    if (copy == nullptr) {
      for (const Use& use : operands(op_.body)) {
        if (buffer(use.operand).space == MemorySpace::device) continue;
        space_finding(fmt::format("{} is in {} memory", use.field, fpdt::word(buffer(use.operand).space)));
      }
      if (op_.lane.kind == LaneKind::h2d || op_.lane.kind == LaneKind::d2h) lane_finding();
      return;
    }
    if (!copy->source.present() || !copy->target.present()) return;
    const bool from_device = buffer(copy->source).space == MemorySpace::device;
    const bool to_device = buffer(copy->target.operand).space == MemorySpace::device;
    const bool copy_lane = op_.lane.kind == LaneKind::h2d || op_.lane.kind == LaneKind::d2h;
    const bool fits = from_device == to_device ? op_.lane.kind != LaneKind::comm : copy_lane;
    if (!fits) lane_finding();
  }

 private:
  struct NamedConstant {
    std::string_view name;
    std::int64_t value;
  };

  [[nodiscard]] const Buffer& buffer(const Operand& operand) const {
    return schedule_.buffers[index(operand.buffer)];
  }
  [[nodiscard]] std::int64_t rows(const Operand& operand) const {
    if (!operand.present()) return 0;
    return operand.rows < 0 ? buffer(operand).rows() - operand.row_first : operand.rows;
  }
  [[nodiscard]] std::int64_t elements(const Operand& operand) const {
    return operand.present() ? rows(operand) * buffer(operand).row_elements() : 0;
  }
  static std::int64_t inputs(ActivationKind kind) { return kind == ActivationKind::swiglu ? 2 : 1; }

  void missing(std::string_view field) {
    findings_.add("S207", where_, fmt::format("{} needs {}", body_name(op_.body), field));
  }
  void constant(bool fits, std::string_view message) {
    if (!fits) findings_.add("S205", where_, std::string(message));
  }
  void positive(std::initializer_list<NamedConstant> constants) {
    for (const NamedConstant& one : constants) {
      if (one.value < 1) findings_.add("S205", where_, fmt::format("{} is {}", one.name, one.value));
    }
  }
  void space_finding(const std::string& message) {
    findings_.add("S204", where_, fmt::format("{} cannot run: {}", body_name(op_.body), message));
  }
  void lane_finding() { space_finding(fmt::format("it is on lane {}", lane_text(op_.lane))); }

  void types(std::string_view field, const Operand& operand, Types types) {
    if (!operand.present() || allowed(types, buffer(operand).dtype)) return;
    findings_.add("S203", where_, fmt::format("{} is {}, expected {}", field,
                                              fpdt::word(buffer(operand).dtype), word(types)));
  }
  void size_of(std::string_view field, const Operand& operand, std::int64_t count) {
    if (elements(operand) == count) return;
    findings_.add("S206", where_,
                  fmt::format("{} holds {} elements, expected {}", field, elements(operand), count));
  }
  void may_read(std::string_view field, const Operand& operand, std::int64_t count,
                Types allowed_types = Types::values) {
    if (!operand.present()) return;
    types(field, operand, allowed_types);
    if (elements(operand) < count) {
      findings_.add("S202", where_, fmt::format("{} holds {} elements, expected at least {}", field,
                                                elements(operand), count));
    }
  }
  void reads(std::string_view field, const Operand& operand, std::int64_t count,
             Types allowed_types = Types::values) {
    if (!operand.present()) missing(field);
    may_read(field, operand, count, allowed_types);
  }
  void may_write(std::string_view field, const Target& target, std::int64_t count, Types allowed_types) {
    if (!target.present()) return;
    types(field, target.operand, allowed_types);
    if (elements(target.operand) != count) {
      findings_.add("S202", where_, fmt::format("{} holds {} elements, expected {}", field,
                                                elements(target.operand), count));
    }
  }
  void writes(std::string_view field, const Target& target, std::int64_t count,
              Types allowed_types = Types::values) {
    if (!target.present()) missing(field);
    may_write(field, target, count, allowed_types);
  }
  // A table of rows of `width` elements each.
  void whole_rows(std::string_view field, const Operand& operand, std::int64_t width) {
    if (!operand.present() || width < 1 || elements(operand) % width == 0) return;
    findings_.add("S202", where_, fmt::format("{} holds {} elements, expected whole rows of {}", field,
                                              elements(operand), width));
  }
  // Document starts are one number per token of the whole sequence.
  void documents(const Operand& operand, const RankExpression& token_first, std::int64_t tokens) {
    std::int64_t last = 0;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      if (!is_constant(token_first) || rank == 0) last = std::max(last, token_first.at(rank));
    }
    may_read("documents", operand, last + tokens, Types::i32);
  }

  bool heads(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
             std::int64_t ranks, const Rotary& rotary) {
    positive({{"rows", rows}, {"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim},
              {"ranks", ranks}});
    if (rows < 1 || heads < 1 || kv_heads < 1 || head_dim < 1 || ranks < 1) return false;
    if (heads > kMostElements / 4 || kv_heads > kMostElements / 4) {
      constant(false, "too many heads");
      return false;
    }
    constant(heads % ranks == 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0),
             "heads must divide by ranks, and kv_heads by ranks or ranks by kv_heads");
    constant(rotary.rotary >= 0 && rotary.rotary <= head_dim && rotary.rotary % 2 == 0,
             "rotary must be even and at most head_dim");
    constant(rotary.theta > 0 && rotary.factor > 0 && rotary.original_positions > 0,
             "theta, factor and original_positions must be positive");
    return true;
  }

  template <class Tile>
  void tile(const Tile& op) {
    positive({{"q_rows", op.q_rows}, {"k_rows", op.k_rows}, {"heads", op.heads},
              {"kv_heads", op.kv_heads}, {"head_dim", op.head_dim}});
    constant(op.q_first >= 0 && op.k_first >= 0, "a tile begins before the sequence");
    constant(op.q_first + op.q_rows <= INT32_MAX && op.k_first + op.k_rows <= INT32_MAX,
             "a tile ends after any sequence");
    constant(op.kv_heads < 1 || op.heads % op.kv_heads == 0, "heads must divide by kv_heads");
    constant(std::isfinite(op.scale) && op.scale > 0, "scale must be positive");
    documents(op.documents, {op.q_first}, op.q_rows);
  }

  void vocabulary(std::int64_t rows, std::int64_t first, std::int64_t count) {
    positive({{"rows", rows}, {"vocab_count", count}});
    constant(first >= 0, "vocab_first must not be negative");
  }

  // The next version in the same bytes.
  void in_place(std::string_view field, const Target& target, const Operand& source) {
    writes(field, target, elements(source), Types::f32);
    if (!target.present() || !source.present()) return;
    Operand expected = source;
    expected.version.offset += buffer(source).slots;
    constant(target.operand == expected && !target.accumulate,
             fmt::format("{} must be the next version of what it replaces, in the same rows", field));
  }

  // Pairs of one collective; returns the size of the group, 0 when the pairs do not match.
  template <class Collective>
  std::int64_t pairs(const Collective& op, bool reduces) {
    if (op.send.empty() || op.send.size() != op.receive.size()) {
      findings_.add("S207", where_, fmt::format("{} operands to send, {} to receive", op.send.size(),
                                                op.receive.size()));
      return 0;
    }
    for (std::size_t i = 0; i < op.send.size(); ++i) {
      const Dtype sent = buffer(op.send[i]).dtype;
      if (sent != buffer(op.receive[i].operand).dtype || (reduces && sent == Dtype::i32)) {
        findings_.add("S203", where_, fmt::format("send {} and its receive differ in type, or i32 is added", i));
      }
      constant(reduces || !op.receive[i].accumulate, "only reductions accumulate");
    }
    const auto group = std::find_if(schedule_.groups.begin(), schedule_.groups.end(),
                                    [&](const Group& one) { return one.name == op.group; });
    return group->size;
  }

  const Schedule& schedule_;
  const Op& op_;
  const std::string& where_;
  Findings& findings_;
};

// S201: rows of every operand lie inside the slot and are not none.
bool check_rows(const Schedule& schedule, const Op& op, const std::string& where, Findings& findings) {
  bool inside = true;
  for (const Use& use : operands(op.body)) {
    const std::int64_t rows = schedule.buffers[index(use.operand.buffer)].rows();
    const Operand& operand = use.operand;
    const bool fits = operand.row_first >= 0 && operand.row_first < rows && operand.rows != 0 &&
                      operand.rows <= rows - operand.row_first;
    if (fits) continue;
    findings.add("S201", where, fmt::format("{}: rows {}:{} of a slot with {}", use.field,
                                            operand.row_first, operand.row_first + operand.rows, rows));
    inside = false;
  }
  return inside;
}

}  // namespace

void check_shape(const Schedule& schedule, const Op& op, const std::string& where, Findings& findings) {
  if (!check_rows(schedule, op, where, findings)) return;
  Rules rules(schedule, op, where, findings);
  std::visit(rules, op.body);
  rules.spaces();
}

void check_shapes(const Schedule& schedule, Findings& findings) {
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (findings.full()) return;
      check_shape(schedule, op, place_of(block, op), findings);
    }
  }
}

}  // namespace fpdt
