// S2xx: the shape rules.
#include "fpdt/schedule/verify/shapes.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/schedule/verify/shape_terms.h"

namespace fpdt {
namespace {

void rule(ShapeTerms& t, const Matmul& op) {
  t.positive({{"m", op.m}, {"n", op.n}, {"k", op.k}});
  t.reads("a", op.a, elements_of({op.m, op.k}));
  t.reads("b", op.b, elements_of({op.k, op.n}));
  t.may_read("bias", op.bias, op.n);
  t.may_read("addend", op.addend, elements_of({op.m, op.n}));
  t.writes("out", op.out, elements_of({op.m, op.n}));
}

void rule(ShapeTerms& t, const ColumnSum& op) {
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("source", op.source, elements_of({op.rows, op.width}));
  t.writes("out", op.out, op.width, Types::f32);
}

void rule(ShapeTerms& t, const Add& op) {
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("source", op.source, elements_of({op.rows, op.width}));
  t.reads("addend", op.addend, elements_of({op.rows, op.width}));
  t.may_read("bias", op.bias, op.width);
  t.writes("out", op.out, elements_of({op.rows, op.width}));
}

void rule(ShapeTerms& t, const Norm& op) {
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("x", op.x, elements_of({op.rows, op.width}));
  t.reads("weight", op.weight, op.width);
  t.may_read("bias", op.bias, op.width);
  t.writes("y", op.y, elements_of({op.rows, op.width}));
  t.constant(op.epsilon > 0, "epsilon must be positive");
}

void rule(ShapeTerms& t, const NormBackward& op) {
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("x", op.x, elements_of({op.rows, op.width}));
  t.reads("weight", op.weight, op.width);
  t.reads("dy", op.dy, elements_of({op.rows, op.width}));
  t.may_read("addend", op.addend, elements_of({op.rows, op.width}));
  t.writes("dx", op.dx, elements_of({op.rows, op.width}));
  t.may_write("dweight", op.dweight, op.width, Types::f32);
  t.may_write("dbias", op.dbias, op.width, Types::f32);
  t.constant(op.epsilon > 0, "epsilon must be positive");
}

// Constants and rows of a norm of columns.
template <class Columns>
void columns(ShapeTerms& t, const Columns& op, std::string_view rows_field, const Target& rows) {
  t.positive({{"rows", op.rows}, {"width", op.width}, {"stride", op.stride}});
  t.reads("weight", op.weight, op.width);
  t.writes(rows_field, rows, elements_of({op.rows, op.stride}));
  t.constant(rows.accumulate, fmt::format("{} must be accumulated", rows_field));
  t.constant(op.column_first >= 0 && op.column_first <= op.stride - op.width,
             "columns must lie in the row");
  t.constant(op.epsilon > 0, "epsilon must be positive");
}

void rule(ShapeTerms& t, const NormColumns& op) { columns(t, op, "values", op.values); }

void rule(ShapeTerms& t, const NormColumnsBackward& op) {
  columns(t, op, "gradient", op.gradient);
  t.reads("x", op.x, elements_of({op.rows, op.stride}));
  t.writes("dweight", op.dweight, op.width, Types::f32);
}

void rule(ShapeTerms& t, const SplitHeads& op) {
  if (!t.heads(op.rows, op.heads, op.kv_heads, op.head_dim, op.ranks, op.rotary)) return;
  const std::int64_t kv_local = kv_heads_of_rank(op.kv_heads, op.ranks);
  t.reads("qkv", op.qkv, elements_of({op.rows, op.heads + 2 * op.kv_heads, op.head_dim}));
  t.head_norm(op);
  t.documents(op.documents, op.token_first, op.rows);
  t.may_write("q", op.q, elements_of({op.rows, op.heads, op.head_dim}), Types::values);
  t.may_write("kv", op.kv, elements_of({op.ranks, op.rows, 2, kv_local, op.head_dim}),
              Types::values);
  t.constant(op.q.present() == (op.heads > 0) && op.kv.present() == (op.kv_heads > 0),
             "q and kv are given for the heads that there are");
}

void rule(ShapeTerms& t, const JoinHeads& op) {
  if (!t.heads(op.rows, op.heads, op.kv_heads, op.head_dim, op.ranks, op.rotary)) return;
  const std::int64_t kv_local = kv_heads_of_rank(op.kv_heads, op.ranks);
  t.may_read("dq", op.dq, elements_of({op.rows, op.heads, op.head_dim}));
  t.may_read("dkv", op.dkv, elements_of({op.ranks, op.rows, 2, kv_local, op.head_dim}));
  t.constant(op.dq.present() == (op.heads > 0) && op.dkv.present() == (op.kv_heads > 0),
             "dq and dkv are given for the heads that there are");
  t.documents(op.documents, op.token_first, op.rows);
  const std::int64_t fused = elements_of({op.rows, op.heads + 2 * op.kv_heads, op.head_dim});
  t.writes("dqkv", op.dqkv, fused);
  t.head_norm(op);
  t.may_read("qkv", op.qkv, fused);
  t.may_write("dq_weight", op.dq_weight, op.head_dim, Types::f32);
  t.may_write("dk_weight", op.dk_weight, op.head_dim, Types::f32);
  const bool normed = op.q_weight.present() || op.k_weight.present();
  t.constant(op.qkv.present() == normed && op.dq_weight.present() == op.q_weight.present() &&
                 op.dk_weight.present() == op.k_weight.present(),
             "qkv, dq_weight and dk_weight come together, when heads are normalised");
}

void rule(ShapeTerms& t, const Permute& op) {
  t.positive({{"outer", op.outer}, {"inner", op.inner}, {"width", op.width}});
  t.reads("source", op.source, elements_of({op.outer, op.inner, op.width}));
  t.writes("target", op.target, elements_of({op.outer, op.inner, op.width}));
}

void rule(ShapeTerms& t, const AttentionForward& op) {
  t.tile(op);
  t.reads("q", op.q, elements_of({op.q_rows, op.heads, op.head_dim}));
  t.reads("kv", op.kv, elements_of({op.k_rows, 2, op.kv_heads, op.head_dim}));
  t.writes("o", op.o, elements_of({op.q_rows, op.heads, op.head_dim}));
  t.writes("lse", op.lse, elements_of({op.q_rows, op.heads}), Types::f32);
  t.types("workspace", op.workspace, Types::f32);
  t.constant(op.o.accumulate == op.lse.accumulate,
             "o and lse must be written or accumulated together");
}

void rule(ShapeTerms& t, const AttentionSink& op) {
  if (!t.sinks(op)) return;
  t.positive({{"head_dim", op.head_dim}});
  t.writes("o", op.o, elements_of({op.q_rows, op.heads, op.head_dim}));
  t.writes("lse", op.lse, elements_of({op.q_rows, op.heads}), Types::f32);
  t.constant(op.o.accumulate && op.lse.accumulate, "o and lse must be accumulated");
}

void rule(ShapeTerms& t, const AttentionSinkGradient& op) {
  if (!t.sinks(op)) return;
  t.reads("lse", op.lse, elements_of({op.q_rows, op.heads}), Types::f32);
  t.reads("delta", op.delta, elements_of({op.q_rows, op.heads}), Types::f32);
  t.writes("dsinks", op.dsinks, op.all_heads, Types::f32);
  t.constant(op.dsinks.accumulate, "dsinks must be accumulated");
}

void rule(ShapeTerms& t, const AttentionDelta& op) {
  t.positive({{"rows", op.rows}, {"heads", op.heads}, {"head_dim", op.head_dim}});
  t.reads("o", op.o, elements_of({op.rows, op.heads, op.head_dim}));
  t.reads("dout", op.dout, elements_of({op.rows, op.heads, op.head_dim}));
  t.writes("delta", op.delta, elements_of({op.rows, op.heads}), Types::f32);
  t.constant(!op.delta.accumulate, "attention_delta cannot accumulate");
}

void rule(ShapeTerms& t, const AttentionBackward& op) {
  t.tile(op);
  t.reads("q", op.q, elements_of({op.q_rows, op.heads, op.head_dim}));
  t.reads("kv", op.kv, elements_of({op.k_rows, 2, op.kv_heads, op.head_dim}));
  t.reads("dout", op.dout, elements_of({op.q_rows, op.heads, op.head_dim}));
  t.reads("lse", op.lse, elements_of({op.q_rows, op.heads}), Types::f32);
  t.reads("delta", op.delta, elements_of({op.q_rows, op.heads}), Types::f32);
  t.writes("dq", op.dq, elements_of({op.q_rows, op.heads, op.head_dim}), Types::f32);
  t.writes("dkv", op.dkv, elements_of({op.k_rows, 2, op.kv_heads, op.head_dim}), Types::f32);
  t.types("workspace", op.workspace, Types::f32);
}

void rule(ShapeTerms& t, const Activation& op) {
  if (!t.pairs_of_slice(op)) return;
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("x", op.x, elements_of({op.rows, op.active, op.width, inputs_of(op.kind)}));
  t.writes("y", op.y, elements_of({op.rows, op.active, op.width}));
}

void rule(ShapeTerms& t, const ActivationBackward& op) {
  if (!t.pairs_of_slice(op)) return;
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("x", op.x, elements_of({op.rows, op.active, op.width, inputs_of(op.kind)}));
  t.reads("dy", op.dy, elements_of({op.rows, op.active, op.width}));
  t.writes("dx", op.dx, elements_of({op.rows, op.active, op.width, inputs_of(op.kind)}));
}

// Tables are rows of `width` elements, followed by padding that makes shards equal. The trainer
// checks its data against the bounds that these ops state for tokens and positions.
void rule(ShapeTerms& t, const Embedding& op) {
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("tokens", op.tokens, op.rows, Types::i32);
  if (!op.table.present()) t.missing("table");
  t.table_rows("table", op.table, op.vocabulary, op.width);
  t.documents(op.documents, op.token_first, op.rows);
  if (op.positions.present()) {
    t.table_rows("positions", op.positions, op.position_count, op.width);
    t.learned_positions(op.documents, op.token_first, op.rows, op.position_count);
  }
  t.writes("x", op.x, elements_of({op.rows, op.width}));
}

void rule(ShapeTerms& t, const EmbeddingBackward& op) {
  t.positive({{"rows", op.rows}, {"width", op.width}});
  t.reads("tokens", op.tokens, op.rows, Types::i32);
  t.reads("dx", op.dx, elements_of({op.rows, op.width}));
  t.documents(op.documents, op.token_first, op.rows);
  if (!op.dtable.present()) t.missing("dtable");
  t.table_rows("dtable", op.dtable.operand, op.vocabulary, op.width);
  t.types("dtable", op.dtable.operand, Types::f32);
  if (op.dpositions.present()) {
    t.table_rows("dpositions", op.dpositions.operand, op.position_count, op.width);
    t.types("dpositions", op.dpositions.operand, Types::f32);
    t.learned_positions(op.documents, op.token_first, op.rows, op.position_count);
  }
  t.constant(op.local_first >= 0, "local_first must not be negative");
}

void rule(ShapeTerms& t, const LossStatistics& op) {
  t.vocabulary(op.rows, op.vocab_first, op.vocab_count);
  t.soft_cap(op.cap);
  t.reads("logits", op.logits, elements_of({op.rows, op.vocab_count}));
  t.reads("labels", op.labels, op.rows, Types::i32);
  t.writes("statistics", op.statistics, elements_of({op.rows, 3}), Types::f32);
}

void rule(ShapeTerms& t, const LossSum& op) {
  t.positive({{"rows", op.rows}});
  t.reads("statistics", op.statistics, elements_of({op.rows, 3}), Types::f32);
  t.reads("labels", op.labels, op.rows, Types::i32);
  t.reads("scale", op.scale, 1, Types::f32);
  t.writes("loss", op.loss, 1, Types::f32);
}

void rule(ShapeTerms& t, const LossGradient& op) {
  t.vocabulary(op.rows, op.vocab_first, op.vocab_count);
  t.soft_cap(op.cap);
  t.reads("logits", op.logits, elements_of({op.rows, op.vocab_count}));
  t.reads("labels", op.labels, op.rows, Types::i32);
  t.reads("statistics", op.statistics, elements_of({op.rows, 3}), Types::f32);
  t.reads("scale", op.scale, 1, Types::f32);
  t.writes("dlogits", op.dlogits, elements_of({op.rows, op.vocab_count}));
}

void rule(ShapeTerms& t, const Route& op) {
  if (!t.experts(op.rows, op.experts, op.active)) return;
  t.reads("logits", op.logits, elements_of({op.rows, op.experts}), Types::f32);
  t.may_read("bias", op.bias, op.experts);
  t.constant(op.bias.present() == op.sigmoid, "a bias comes with sigmoids");
  t.writes("routes", op.routes, elements_of_routes(op), Types::i32);
  t.writes("weights", op.weights, elements_of({op.rows, op.active}), Types::f32);
  t.constant(!op.routes.accumulate && !op.weights.accumulate, "route cannot accumulate");
}

void rule(ShapeTerms& t, const RouteBackward& op) {
  if (!t.routes(op)) return;
  t.reads("logits", op.logits, elements_of({op.rows, op.experts}), Types::f32);
  t.reads("dweights", op.dweights, elements_of({op.rows, op.active}), Types::f32);
  t.may_read("labels", op.labels, op.rows, Types::i32);
  t.may_read("loads", op.loads, op.experts, Types::f32);
  t.constant(op.labels.present() == op.loads.present(), "labels and loads come together");
  t.constant(!op.sigmoid || !op.loads.present(), "loads are balanced by a softmax");
  t.writes("dlogits", op.dlogits, elements_of({op.rows, op.experts}));
}

void rule(ShapeTerms& t, const ExpertLoads& op) {
  if (!t.routes(op)) return;
  t.reads("logits", op.logits, elements_of({op.rows, op.experts}), Types::f32);
  t.reads("labels", op.labels, op.rows, Types::i32);
  t.writes("loads", op.loads, op.experts, Types::f32);
  t.writes("chances", op.chances, op.experts + 1, Types::f32);
}

void rule(ShapeTerms& t, const BalanceLoss& op) {
  if (!t.experts(1, op.experts, op.active)) return;
  t.reads("loads", op.loads, op.experts, Types::f32);
  t.reads("chances", op.chances, op.experts + 1, Types::f32);
  t.writes("loss", op.loss, 1, Types::f32);
}

void rule(ShapeTerms& t, const Dispatch& op) {
  if (!t.routes(op)) return;
  t.positive({{"width", op.width}});
  t.reads("x", op.x, elements_of({op.rows, op.width}));
  t.writes("y", op.y, elements_of({op.rows, op.active, op.width}));
}

void rule(ShapeTerms& t, const Combine& op) {
  if (!t.routes(op)) return;
  t.positive({{"width", op.width}});
  t.reads("x", op.x, elements_of({op.rows, op.active, op.width}));
  t.may_read("weights", op.weights, elements_of({op.rows, op.active}), Types::f32);
  t.may_read("addend", op.addend, elements_of({op.rows, op.width}));
  t.writes("y", op.y, elements_of({op.rows, op.width}));
}

void rule(ShapeTerms& t, const CombineBackward& op) {
  if (!t.routes(op)) return;
  t.positive({{"width", op.width}});
  const std::int64_t pairs = elements_of({op.rows, op.active, op.width});
  t.writes("x", op.x, pairs);
  t.writes("dx", op.dx, pairs);
  t.constant(op.x.accumulate && op.dx.accumulate, "x and dx change in place");
  t.reads("weights", op.weights, elements_of({op.rows, op.active}), Types::f32);
  t.may_read("terms", op.terms, elements_of({op.rows, op.experts}), Types::f32);
  t.writes("dweights", op.dweights, elements_of({op.rows, op.active}), Types::f32);
}

void rule(ShapeTerms& t, const GroupedMatmul& op) {
  if (!t.routes(op)) return;
  t.positive({{"n", op.n}, {"k", op.k}});
  t.reads("a", op.a, elements_of({op.rows, op.active, op.k}));
  t.reads("b", op.b, elements_of({op.slice.of(op.experts), op.n, op.k}));
  t.may_read("bias", op.bias, elements_of({op.experts, op.n}));
  t.writes("out", op.out, elements_of({op.rows, op.active, op.n}));
}

void rule(ShapeTerms& t, const GroupedGradient& op) {
  if (!t.routes(op)) return;
  t.positive({{"n", op.n}, {"k", op.k}});
  t.reads("dy", op.dy, elements_of({op.rows, op.active, op.n}));
  t.reads("x", op.x, elements_of({op.rows, op.active, op.k}));
  t.writes("sum", op.sum, elements_of({op.slice.of(op.experts), op.n, op.k}), Types::f32);
}

void rule(ShapeTerms& t, const GroupedSum& op) {
  if (!t.routes(op)) return;
  t.positive({{"width", op.width}});
  t.reads("source", op.source, elements_of({op.rows, op.active, op.width}));
  t.may_read("weights", op.weights, elements_of({op.rows, op.active}), Types::f32);
  t.writes("sum", op.sum, elements_of({op.slice.of(op.experts), op.width}), Types::f32);
}

void rule(ShapeTerms& t, const Fill& op) {
  if (!op.target.present()) t.missing("target");
  t.constant(!op.target.accumulate, "fill cannot accumulate");
}

void rule(ShapeTerms& t, const Copy& op) {
  t.reads("source", op.source, 1, Types::any);
  t.writes("target", op.target, t.elements(op.source), Types::any);
  if (!op.source.present() || !op.target.present()) return;
  const bool integers = t.buffer(op.source).dtype == Dtype::i32;
  if (integers != (t.buffer(op.target.operand).dtype == Dtype::i32)) {
    t.finding("S203", "copy between i32 and a floating type");
  }
  t.constant(!(integers && op.target.accumulate), "copy cannot accumulate i32");
}

void rule(ShapeTerms& t, const SquaredNorm& op) {
  t.reads("source", op.source, 1);
  t.writes("sum", op.sum, 1, Types::f32);
}

void rule(ShapeTerms& t, const AdamW& op) {
  const std::int64_t count = t.elements(op.master);
  for (const auto& [field, operand] : {std::pair("grad", &op.grad), std::pair("master", &op.master),
                                       std::pair("m", &op.m), std::pair("v", &op.v)}) {
    t.reads(field, *operand, count, Types::f32);
  }
  t.reads("norm", op.norm, 1, Types::f32);
  t.reads("step", op.step, 4, Types::f32);
  t.may_write("param", op.param, count, Types::values);
  t.in_place("master_out", op.master_out, op.master);
  t.in_place("m_out", op.m_out, op.m);
  t.in_place("v_out", op.v_out, op.v);
  t.constant(!op.param.accumulate, "adamw cannot accumulate parameters");
  // Values are updated in place, which says nothing of what else the op reads.
  for (const auto& [field, read] :
       {std::pair("grad", &op.grad), std::pair("norm", &op.norm), std::pair("step", &op.step)}) {
    for (const Target* target : {&op.param, &op.master_out, &op.m_out, &op.v_out}) {
      if (!read->present() || read->buffer != target->operand.buffer) continue;
      t.finding("S311", fmt::format("{} is in a buffer that adamw writes", field));
    }
  }
  const bool betas = op.beta1 >= 0 && op.beta1 < 1 && op.beta2 >= 0 && op.beta2 < 1;
  t.constant(betas && op.epsilon > 0 && op.clip >= 0, "beta, epsilon or clip out of range");
}

void rule(ShapeTerms& t, const AllToAll& op) {
  const std::int64_t ranks = t.pairs(op.group, op.send, op.receive, false);
  for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
    t.size_of("receive", op.receive[i].operand, t.elements(op.send[i]));
    for (const Operand* operand : {&op.send[i], &op.receive[i].operand}) {
      if (t.rows(*operand) % ranks != 0) {
        t.finding("S206", fmt::format("{} rows are not {} equal blocks", t.rows(*operand), ranks));
      }
    }
  }
}

void rule(ShapeTerms& t, const AllGather& op) {
  const std::int64_t ranks = t.pairs(op.group, op.send, op.receive, false);
  for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
    t.size_of("receive", op.receive[i].operand, elements_of({ranks, t.elements(op.send[i])}));
  }
}

void rule(ShapeTerms& t, const ReduceScatter& op) {
  const std::int64_t ranks = t.pairs(op.group, op.send, op.receive, true);
  for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
    t.size_of("send", op.send[i], elements_of({ranks, t.elements(op.receive[i].operand)}));
  }
  if (ranks > 0) t.sum_workspace(op.workspace, op.send, ranks);
}

void rule(ShapeTerms& t, const AllReduce& op) {
  const std::int64_t ranks = t.pairs(op.group, op.send, op.receive, true);
  for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
    t.size_of("receive", op.receive[i].operand, t.elements(op.send[i]));
  }
  if (ranks > 0) t.sum_workspace(op.workspace, op.send, ranks);
}

void rule(ShapeTerms& t, const Exchange& op) {
  const std::int64_t ranks = t.pairs(op.group, op.send, op.receive, false);
  for (std::size_t i = 0; i < op.receive.size() && ranks > 0; ++i) {
    t.size_of("receive", op.receive[i].operand, t.elements(op.send[i]));
  }
  if (ranks > 0 && (op.hop < 1 || op.hop >= ranks)) {
    t.finding("S206", fmt::format("hop is {} in a group of {}", op.hop, ranks));
  }
}

// S201: the rows of every operand lie inside the slot, and there is at least one.
bool check_rows(const Schedule& schedule, const Op& op, const std::string& where,
                Findings& findings) {
  bool inside = true;
  for (const Use& use : operands(op.body)) {
    const std::int64_t rows = schedule.buffers[index(use.operand.buffer)].rows();
    const Operand& operand = use.operand;
    const bool fits = operand.row_first >= 0 && operand.row_first < rows && operand.rows != 0 &&
                      operand.rows <= rows - operand.row_first;
    if (fits) continue;
    findings.add("S201", where,
                 fmt::format("{}: {} rows from row {} of a slot with {}", use.field, operand.rows,
                             operand.row_first, rows));
    inside = false;
  }
  return inside;
}

}  // namespace

void check_shape(const Schedule& schedule, const Op& op, const std::string& where,
                 Findings& findings) {
  if (!check_rows(schedule, op, where, findings)) return;
  ShapeTerms terms(schedule, op, where, findings);
  std::visit([&terms](const auto& body) { rule(terms, body); }, op.body);
  terms.spaces();
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
