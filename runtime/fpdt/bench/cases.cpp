// Builds ops whose operands have the sizes that the shape rules require (schedule/shapes.cpp).
#include "fpdt/bench/cases.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/schedule/sum_workspace.h"

namespace fpdt {
namespace {

struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, gradient;
};

void write_product(Sheet& sheet, const Product& product, Dtype storage) {
  const auto& [m, n, k, transpose_a, transpose_b, gradient] = product;
  Matmul op;
  op.a = sheet.noise(storage, transpose_a ? k : m, transpose_a ? m : k);
  op.b = sheet.noise(storage, transpose_b ? n : k, transpose_b ? k : n);
  op.out = gradient ? sheet.sum(m, n) : sheet.result(storage, m, n);
  op.m = m;
  op.n = n;
  op.k = k;
  op.transpose_a = transpose_a;
  op.transpose_b = transpose_b;
  sheet.op(LaneKind::compute, op);
}

// The operands that one row of a triangle of tiles reads.
struct Chunk {
  Operand q, kv, dout, lse, delta;
};
Chunk given_chunk(Sheet& sheet, const TileShape& shape) {
  Chunk chunk;
  chunk.q = sheet.noise(shape.storage, shape.rows, shape.heads * shape.head_dim);
  chunk.kv = sheet.noise(shape.storage, shape.rows, 2 * shape.kv_heads * shape.head_dim);
  chunk.dout = sheet.noise(shape.storage, shape.rows, shape.heads * shape.head_dim);
  chunk.lse = sheet.given(Dtype::f32, shape.rows, shape.heads);
  chunk.delta = sheet.given(Dtype::f32, shape.rows, shape.heads);
  return chunk;
}

// A tile of either pass, at a place of the triangle. The caller sets its operands.
template <class Tile>
Tile tile_at(const TileShape& shape, std::int64_t row, std::int64_t column) {
  Tile tile;
  tile.q_first = row * shape.rows;
  tile.k_first = column * shape.rows;
  tile.q_rows = tile.k_rows = shape.rows;
  tile.heads = shape.heads;
  tile.kv_heads = shape.kv_heads;
  tile.head_dim = shape.head_dim;
  tile.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  tile.head_first = {0, shape.heads, 0, 1, shape.ranks};
  return tile;
}

Operand workspace(Sheet& sheet, AttentionDirection direction, const TileShape& shape) {
  if (!shape.workspace) return {};
  return sheet.scratch(attention_workspace_bytes(direction, shape.rows, shape.rows, shape.heads,
                                                 shape.kv_heads, shape.head_dim));
}

std::string words(const TileShape& shape) {
  return fmt::format("{} rows, D {}{}", shape.rows, shape.head_dim,
                     shape.workspace ? ", library" : "");
}

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
    loads.chances = sheet.sum(1, route.experts);
    op(loads);
  }
  void balance_loss() const {
    const auto routed = with_experts<Route>();
    BalanceLoss term;
    term.loads = sheet.given(Dtype::f32, 1, routed.experts);
    term.chances = sheet.given(Dtype::f32, 1, routed.experts);
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
    back.x = values(route.active);
    back.dx = values(route.active);
    back.weighted_x = result(route.active);
    back.weighted_dx = result(route.active);
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

std::vector<BenchCase> matmul_cases(std::int64_t size, std::int64_t most, Dtype storage) {
  std::vector<BenchCase> cases;
  const auto add = [&](const char* form, const Product& product) {
    cases.push_back({fmt::format("{} {}x{}x{}", form, product.m, product.n, product.k),
                     [=](Sheet& sheet) { write_product(sheet, product, storage); }});
  };
  const std::int64_t middle = std::min(most, std::max<std::int64_t>(512, 2 * size));
  const std::int64_t large = std::min(most, std::max<std::int64_t>(1024, 4 * size));
  add("x W^T", {size, large, middle, false, true, false});
  add("x W^T", {large, middle, size, false, true, false});
  add("dy W", {size, middle, large, false, false, false});
  add("dy W", {large, size, middle, false, false, false});
  add("dy^T x", {large, middle, size, true, false, true});
  add("dy^T x", {middle, size, large, true, false, true});
  return cases;
}

std::vector<BenchCase> grouped_cases(std::int64_t rows, std::int64_t size, std::int64_t experts,
                                     Dtype storage) {
  const std::int64_t tokens = div_exact(rows * experts, 2), pairs = 2 * tokens;
  const auto with_routes = [=](Sheet& sheet, auto op) {
    Route route;
    route.rows = op.rows = tokens;
    route.experts = op.experts = experts;
    route.active = op.active = 2;
    route.logits = sheet.noise(Dtype::f32, tokens, experts);
    route.routes = sheet.result(Dtype::i32, 2 * pairs + experts, 1);
    route.weights = sheet.result(Dtype::f32, tokens, 2);
    sheet.op(LaneKind::compute, route);
    op.routes = route.routes.operand;
    op.n = op.k = size;
    return op;
  };
  const std::string of = fmt::format("{} x {}x{}x{}", experts, rows, size, size);
  std::vector<BenchCase> cases;
  for (const bool transpose : {true, false}) {
    cases.push_back({(transpose ? "x W^T, " : "dy W, ") + of, [=](Sheet& sheet) {
                       auto product = with_routes(sheet, GroupedMatmul{});
                       product.a = sheet.noise(storage, pairs, size);
                       product.b = sheet.noise(storage, experts * size, size);
                       product.out = sheet.result(storage, pairs, size);
                       product.transpose_b = transpose;
                       sheet.op(LaneKind::compute, product);
                     }});
  }
  cases.push_back({"dy^T x, " + of, [=](Sheet& sheet) {
                     auto sum = with_routes(sheet, GroupedGradient{});
                     sum.dy = sheet.noise(storage, pairs, size);
                     sum.x = sheet.noise(storage, pairs, size);
                     sum.sum = sheet.sum(experts * size, size);
                     sheet.op(LaneKind::compute, sum);
                   }});
  return cases;
}

BenchCase attention_forward_case(const TileShape& shape) {
  return {words(shape), [=](Sheet& sheet) {
            std::vector<Chunk> chunks;
            for (int i = 0; i < kTriangle; ++i) {
              chunks.push_back(given_chunk(sheet, shape));
              const Target o = sheet.result(Dtype::f32, shape.rows, shape.heads * shape.head_dim);
              const Target lse = sheet.result(Dtype::f32, shape.rows, shape.heads);
              for (int j = 0; j <= i; ++j) {
                auto tile = tile_at<AttentionForward>(shape, i, j);
                tile.q = chunks.back().q;
                tile.kv = chunks[static_cast<std::size_t>(j)].kv;
                tile.o = {o.operand, j > 0};
                tile.lse = {lse.operand, j > 0};
                tile.workspace = workspace(sheet, AttentionDirection::forward, shape);
                sheet.op(LaneKind::compute, tile);
              }
            }
          }};
}

BenchCase attention_backward_case(const TileShape& shape) {
  return {words(shape), [=](Sheet& sheet) {
            std::vector<Chunk> chunks;
            std::vector<Target> dkv;
            for (int i = 0; i < kTriangle; ++i) {
              chunks.push_back(given_chunk(sheet, shape));
              dkv.push_back(sheet.sum(shape.rows, 2 * shape.kv_heads * shape.head_dim));
              const Target dq = sheet.sum(shape.rows, shape.heads * shape.head_dim);
              for (int j = 0; j <= i; ++j) {
                auto tile = tile_at<AttentionBackward>(shape, i, j);
                tile.q = chunks.back().q;
                tile.kv = chunks[static_cast<std::size_t>(j)].kv;
                tile.dout = chunks.back().dout;
                tile.lse = chunks.back().lse;
                tile.delta = chunks.back().delta;
                tile.dq = dq;
                tile.dkv = dkv[static_cast<std::size_t>(j)];
                tile.workspace = workspace(sheet, AttentionDirection::backward, shape);
                sheet.op(LaneKind::compute, tile);
              }
            }
          }};
}

std::vector<BenchCase> memory_cases(std::int64_t rows, std::int64_t width, Dtype storage) {
  using Writer = void (Rows::*)() const;
  const std::vector<std::pair<const char*, Writer>> writers{
      {"column_sum", &Rows::column_sum},
      {"norm", &Rows::norm},
      {"norm_backward", &Rows::norm_backward},
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

BenchCase least_case() {
  return {"least op", [](Sheet& sheet) {
            sheet.op(LaneKind::compute, Fill{sheet.result(Dtype::f32, 1, 1), 0});
          }};
}

void write_copy(Sheet& sheet, LaneKind lane, std::int64_t bytes) {
  const bool in = lane == LaneKind::h2d;
  const MemorySpace from = in ? MemorySpace::host_pinned : MemorySpace::device;
  const MemorySpace to = in ? MemorySpace::device : MemorySpace::host_pinned;
  const std::int64_t floats = div_exact(bytes, 4);
  const Operand source = sheet.given(Dtype::f32, 1, floats, from);
  sheet.op(lane, Copy{source, sheet.result(Dtype::f32, 1, floats, to)});
}

std::vector<BenchCase> collective_cases(std::int64_t bytes, std::int64_t members,
                                        const std::string& group) {
  const std::int64_t floats = div_exact(bytes, 4 * members);  // in a rank's block
  const auto whole = [=](Sheet& sheet) { return sheet.given(Dtype::f32, members, floats); };
  const auto all = [=](Sheet& sheet) { return sheet.result(Dtype::f32, members, floats); };
  const auto block = [=](Sheet& sheet) { return sheet.given(Dtype::f32, 1, floats); };
  const auto workspace = [=](Sheet& sheet, std::int64_t blocks) {
    return sheet.scratch(sum_workspace_bytes(members, Bytes{4 * floats * blocks}));
  };
  return {
      {"all_to_all",
       [=](Sheet& s) {
         s.op(LaneKind::comm, AllToAll{group, {whole(s)}, {all(s)}});
       }},
      {"all_gather",
       [=](Sheet& s) {
         s.op(LaneKind::comm, AllGather{group, {block(s)}, {all(s)}});
       }},
      {"reduce_scatter",
       [=](Sheet& s) {
         s.op(LaneKind::comm,
              ReduceScatter{group, {whole(s)}, {s.result(Dtype::f32, 1, floats)}, workspace(s, 1)});
       }},
      {"all_reduce",
       [=](Sheet& s) {
         s.op(LaneKind::comm, AllReduce{group, {whole(s)}, {all(s)}, workspace(s, members)});
       }},
      {"exchange",
       [=](Sheet& s) {
         s.op(LaneKind::comm, Exchange{group,
                                       {s.given(Dtype::f32, members - 1, floats)},
                                       {s.result(Dtype::f32, members - 1, floats)}});
       }},
  };
}

}  // namespace fpdt
