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
