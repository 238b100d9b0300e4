// Cases of memory-bound ops, whose operands have the sizes that the shape rules require
// (schedule/verify/shapes.cpp).
#include <tuple>
#include <utility>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/bench/cases.h"

namespace fpdt {
namespace {

// Writers of memory-bound ops of one shape, one op per member.
struct Rows {
  Sheet& sheet;
  std::int64_t rows, width;
  Dtype storage;

  [[nodiscard]] Operand values(std::int64_t times = 1) const {
    return sheet.given(storage, rows, times * width);
  }
  [[nodiscard]] Target result(std::int64_t times = 1) const {
    return sheet.result(storage, rows, times * width);
  }
  [[nodiscard]] Operand vector(std::int64_t elements) const {
    return sheet.given(Dtype::f32, 1, elements);
  }
  // Heads have 64 elements, or the whole width if that is less.
  [[nodiscard]] std::int64_t head_dim() const { return width < 64 ? width : 64; }
  [[nodiscard]] std::int64_t heads() const { return width / head_dim(); }
  void op(Body body) const { sheet.op(LaneKind::compute, std::move(body)); }

  void norm() const {
    op(Norm{
        values(), sheet.given(storage, 1, width), {}, result(), NormKind::rms, 1e-5, rows, width});
  }
  void norm_backward() const {
    NormBackward norm;
    norm.x = values();
    norm.weight = sheet.given(storage, 1, width);
    norm.dy = values();
    norm.addend = values();
    norm.dx = result();
    norm.dweight = sheet.sum(1, width);
    norm.rows = rows;
    norm.width = width;
    op(norm);
  }
  void norm_columns() const {
    op(NormColumns{sheet.given(storage, 1, width), sheet.sum(rows, 3 * width, storage), 1e-5, rows,
                   width, 3 * width, width});
  }
  void norm_columns_backward() const {
    NormColumnsBackward norm;
    norm.x = values(3);
    norm.weight = sheet.given(storage, 1, width);
    norm.gradient = sheet.sum(rows, 3 * width, storage);
    norm.dweight = sheet.sum(1, width);
    norm.rows = rows;
    norm.width = norm.column_first = width;
    norm.stride = 3 * width;
    op(norm);
  }
  void column_sum() const { op(ColumnSum{values(), sheet.sum(1, width), rows, width, -1}); }
  void split_heads() const {
    SplitHeads split;
    split.qkv = values(3);
    split.q = result();
    split.kv = result(2);
    split.rows = rows;
    split.heads = split.kv_heads = heads();
    split.head_dim = split.rotary.rotary = head_dim();
    op(split);
  }
  void join_heads() const {
    JoinHeads join;
    join.dq = sheet.given(Dtype::f32, rows, width);
    join.dkv = sheet.given(Dtype::f32, rows, 2 * width);
    join.dqkv = result(3);
    join.rows = rows;
    join.heads = join.kv_heads = heads();
    join.head_dim = join.rotary.rotary = head_dim();
    op(join);
  }
  void permute() const { op(Permute{values(), result(), 2, rows / 2, width}); }
  void add() const {
    op(Add{values(), values(), sheet.given(storage, 1, width), result(), rows, width});
  }
  void attention_delta() const {
    op(AttentionDelta{values(), values(), sheet.result(Dtype::f32, rows, heads()), rows, heads(),
                      head_dim()});
  }
  template <class Op>
  [[nodiscard]] Op of_sinks() const {
    Op op;
    op.sinks = sheet.given(storage, 1, heads());
    op.q_rows = rows;
    op.heads = op.all_heads = heads();
    return op;
  }
  void attention_sink() const {
    auto sink = of_sinks<AttentionSink>();
    sink.o = sheet.sum(rows, width);
    sink.lse = sheet.sum(rows, heads());
    sink.head_dim = head_dim();
    sink.pass = Pass::recompute;  // tiles that are measured beside it are forward, without sinks
    op(sink);
  }
  void attention_sink_gradient() const {
    auto back = of_sinks<AttentionSinkGradient>();
    back.lse = sheet.given(Dtype::f32, rows, heads());
    back.delta = sheet.given(Dtype::f32, rows, heads());
    back.dsinks = sheet.sum(1, heads());
    op(back);
  }
  void activation() const {
    op(Activation{values(2), result(), ActivationKind::swiglu, rows, width});
  }
  void activation_backward() const {
    op(ActivationBackward{values(2), values(), result(2), ActivationKind::swiglu, rows, width});
  }
  // Two of at most 64 experts for each row.
  template <class Op>
  [[nodiscard]] Op with_experts() const {
    Op op;
    op.rows = rows;
    op.experts = std::min<std::int64_t>(width, 64);
    op.active = std::min<std::int64_t>(2, op.experts);
    return op;
  }
  [[nodiscard]] Route routed() const {
    auto route = with_experts<Route>();
    route.logits = sheet.noise(Dtype::f32, rows, route.experts);
    route.routes = sheet.result(Dtype::i32, 2 * rows * route.active + route.experts, 1);
    route.weights = sheet.result(Dtype::f32, rows, route.active);
    op(route);
    return route;
  }
  void route() const { static_cast<void>(routed()); }
  void route_backward() const {
    const Route route = routed();
    auto back = with_experts<RouteBackward>();
    back.logits = route.logits;
    back.routes = route.routes.operand;
    back.dweights = sheet.given(Dtype::f32, rows, route.active);
    back.dlogits = sheet.result(storage, rows, route.experts);
    op(back);
  }
  void expert_loads() const {
    const Route route = routed();
    auto loads = with_experts<ExpertLoads>();
    loads.logits = route.logits;
    loads.routes = route.routes.operand;
    loads.labels = sheet.integers(rows, rows);
    loads.loads = sheet.sum(1, route.experts);
    loads.chances = sheet.sum(1, route.experts + 1);
    op(loads);
  }
  void balance_loss() const {
    const auto routed = with_experts<Route>();
    BalanceLoss term;
    term.loads = sheet.given(Dtype::f32, 1, routed.experts);
    term.chances = sheet.given(Dtype::f32, 1, routed.experts + 1);
    term.loss = sheet.sum(1, 1);
    term.experts = routed.experts;
    term.active = routed.active;
    op(term);
  }
  void dispatch() const {
    auto dispatch = with_experts<Dispatch>();
    dispatch.routes = routed().routes.operand;
    dispatch.x = values();
    dispatch.y = result(dispatch.active);
    dispatch.width = width;
    op(dispatch);
  }
  void combine() const {
    const Route route = routed();
    auto combine = with_experts<Combine>();
    combine.routes = route.routes.operand;
    combine.weights = sheet.given(Dtype::f32, rows, route.active);
    combine.x = values(route.active);
    combine.addend = values();
    combine.y = result();
    combine.width = width;
    op(combine);
  }
  void combine_backward() const {
    const Route route = routed();
    auto back = with_experts<CombineBackward>();
    back.routes = route.routes.operand;
    back.weights = sheet.given(Dtype::f32, rows, route.active);
    back.x = sheet.sum(rows, route.active * width, storage);
    back.dx = sheet.sum(rows, route.active * width, storage);
    back.dweights = sheet.result(Dtype::f32, rows, route.active);
    back.width = width;
    op(back);
  }
  void grouped_sum() const {
    auto sum = with_experts<GroupedSum>();
    sum.routes = routed().routes.operand;
    sum.source = values(sum.active);
    sum.sum = sheet.sum(sum.experts, width);
    sum.width = width;
    op(sum);
  }
  void embedding() const {
    Embedding embedding;
    embedding.tokens = sheet.integers(rows, rows);
    embedding.table = values();
    embedding.x = result();
    embedding.rows = rows;
    embedding.width = width;
    embedding.vocabulary = rows;
    op(embedding);
  }
  void embedding_backward() const {
    EmbeddingBackward back;
    back.tokens = sheet.integers(rows, rows);
    back.dx = values();
    back.dtable = sheet.sum(rows, width);
    back.rows = rows;
    back.width = width;
    back.vocabulary = rows;
    op(back);
  }
  void loss_statistics() const {
    op(LossStatistics{sheet.given(Dtype::f32, rows, width), sheet.integers(rows, width),
                      sheet.result(Dtype::f32, rows, 3), rows, 0, width});
  }
  void loss_sum() const {
    op(LossSum{sheet.given(Dtype::f32, rows, 3), sheet.integers(rows, width), vector(1),
               sheet.sum(1, 1), rows});
  }
  void loss_gradient() const {
    op(LossGradient{sheet.given(Dtype::f32, rows, width), sheet.integers(rows, width),
                    sheet.given(Dtype::f32, rows, 3), vector(1), result(), rows, 0, width});
  }
  void fill() const { op(Fill{sheet.result(Dtype::f32, rows, width), 0}); }
  void copy() const { op(Copy{sheet.given(Dtype::f32, rows, width), result()}); }
  void squared_norm() const {
    op(SquaredNorm{sheet.given(Dtype::f32, rows, width), sheet.sum(1, 1)});
  }
  void adamw() const {
    AdamW step;
    step.grad = vector(rows * width);
    step.norm = vector(1);
    step.step = vector(4);
    std::tie(step.master, step.master_out) = sheet.replaced(rows * width);
    std::tie(step.m, step.m_out) = sheet.replaced(rows * width);
    std::tie(step.v, step.v_out) = sheet.replaced(rows * width);
    if (storage != Dtype::f32) step.param = sheet.result(storage, 1, rows * width);
    op(step);
  }
};

}  // namespace

std::vector<BenchCase> memory_cases(std::int64_t rows, std::int64_t width, Dtype storage) {
  using Writer = void (Rows::*)() const;
  const std::vector<std::pair<const char*, Writer>> writers{
      {"column_sum", &Rows::column_sum},
      {"norm", &Rows::norm},
      {"norm_backward", &Rows::norm_backward},
      {"norm_columns", &Rows::norm_columns},
      {"norm_columns_backward", &Rows::norm_columns_backward},
      {"split_heads", &Rows::split_heads},
      {"join_heads", &Rows::join_heads},
      {"permute", &Rows::permute},
      {"add", &Rows::add},
      {"attention_delta", &Rows::attention_delta},
      {"attention_sink", &Rows::attention_sink},
      {"attention_sink_gradient", &Rows::attention_sink_gradient},
      {"activation", &Rows::activation},
      {"activation_backward", &Rows::activation_backward},
      {"route", &Rows::route},
      {"route_backward", &Rows::route_backward},
      {"expert_loads", &Rows::expert_loads},
      {"balance_loss", &Rows::balance_loss},
      {"dispatch", &Rows::dispatch},
      {"combine", &Rows::combine},
      {"combine_backward", &Rows::combine_backward},
      {"grouped_sum", &Rows::grouped_sum},
      {"embedding", &Rows::embedding},
      {"embedding_backward", &Rows::embedding_backward},
      {"loss_statistics", &Rows::loss_statistics},
      {"loss_sum", &Rows::loss_sum},
      {"loss_gradient", &Rows::loss_gradient},
      {"fill", &Rows::fill},
      {"copy", &Rows::copy},
      {"squared_norm", &Rows::squared_norm},
      {"adamw", &Rows::adamw}};
  std::vector<BenchCase> cases;
  for (const auto& [kind, writer] : writers) {
    cases.push_back({kind, [=, write = writer](Sheet& sheet) {
                       (Rows{sheet, rows, width, storage}.*write)();
                     }});
  }
  return cases;
}

}  // namespace fpdt
