// Both graphs follow the order of operations in NVIDIA's cudnn-frontend. They omit dropout,
// padding, biases and a second dq, which are not needed here.
#include "fpdt/cuda/cudnn_tile.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt::cuda {
namespace {

constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
constexpr auto kF32 = CUDNN_DATA_FLOAT;
constexpr auto kI32 = CUDNN_DATA_INT32;
constexpr auto kBool = CUDNN_DATA_BOOLEAN;

// With other numbers of rows these kernels can give NaN (pytorch/pytorch, issue 196678;
// NVIDIA/cudnn-frontend, issues 160 and 1072).
constexpr std::int64_t kRowMultiple = 128;
constexpr std::array<std::int64_t, 5> kHeadDims{64, 96, 128, 192, 256};
// No use with larger tensors is known.
constexpr std::int64_t kElements = std::int64_t{1} << 31;

// 0 if it hides no key of the tile.
template <class Body>
std::int64_t window_of(const Body& op, std::int64_t rank) {
  const std::int64_t farthest = op.q_first.at(rank) + op.q_rows - op.k_first.at(rank);
  return farthest > op.window ? op.window : 0;
}

template <class Body>
AttentionTile tile_of(const Body& op, std::int64_t rank, Direction direction) {
  return {.direction = direction,
          .heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .q_rows = op.q_rows,
          .k_rows = op.k_rows,
          .mask = mask_of(op.q_first.at(rank), op.q_rows, op.k_first.at(rank), op.k_rows),
          .scale = op.scale,
          .members = 1,
          .window = window_of(op, rank)};
}

// Strides of a tensor [heads, rows, D] that lies within rows of `row_stride` elements, with heads
// `head_stride` elements apart.
Shape strides_in_rows(std::int64_t rows, std::int64_t head_stride, std::int64_t row_stride) {
  return {rows * row_stride, head_stride, row_stride, 1};
}

// Exchanges the last two dimensions of a shape or of its strides.
Shape transposed(Shape shape) {
  std::swap(shape[2], shape[3]);
  return shape;
}

// The shapes of a tile with `heads` query heads in each of `batch` batches.
struct Shapes {
  Shapes(const AttentionTile& tile, std::int64_t batch, std::int64_t heads)
      : scores{batch, heads, tile.q_rows, tile.k_rows},
        row{batch, heads, tile.q_rows, 1},
        queries{batch, heads, tile.q_rows, tile.head_dim},
        keys{batch, tile.kv_heads, tile.k_rows, tile.head_dim},
        key_strides(
            strides_in_rows(tile.k_rows, tile.head_dim, 2 * tile.kv_heads * tile.head_dim)) {}
  Shape scores, row, queries, keys, key_strides;
};

Tensor scaled(Graph& graph, const AttentionTile& tile, const Shape& shape, Tensor scores) {
  return graph.pointwise(CUDNN_POINTWISE_MUL,
                         {scores, graph.scalar(static_cast<float>(tile.scale))},
                         graph.intermediate(kF32, shape));
}

// `scores` where `seen`, else -infinity.
Tensor selected(Graph& graph, const Shape& shape, Tensor scores, Tensor seen) {
  return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                         {scores, graph.scalar(-std::numeric_limits<float>::infinity()), seen},
                         graph.intermediate(kF32, shape));
}

// Sets the scores of masked pairs to -infinity. Query i sees key j when j <= i (top left) or when j
// <= i + k_rows - q_rows (bottom right), and i < j + window.
Tensor masked(Graph& graph, const AttentionTile& tile, const Shape& shape, Tensor scores) {
  if (tile.mask == MaskShape::everything) return scores;
  Tensor query = graph.index(2, scores, graph.intermediate(kI32, shape));
  const Tensor key = graph.index(3, scores, graph.intermediate(kI32, shape));
  if (tile.mask == MaskShape::bottom_right) {
    query = graph.pointwise(CUDNN_POINTWISE_ADD,
                            {query, graph.scalar(static_cast<std::int32_t>(tile.k_rows))},
                            graph.intermediate(kI32, shape), kI32);
    query = graph.pointwise(CUDNN_POINTWISE_SUB,
                            {query, graph.scalar(static_cast<std::int32_t>(tile.q_rows))},
                            graph.intermediate(kI32, shape), kI32);
  }
  const Tensor seen = graph.pointwise(CUDNN_POINTWISE_CMP_GE, {query, key},
                                      graph.intermediate(kBool, shape), kBool);
  const Tensor causal = selected(graph, shape, scores, seen);
  if (tile.window == 0) return causal;
  const Tensor row = graph.index(2, causal, graph.intermediate(kI32, shape));
  const Tensor column = graph.index(3, causal, graph.intermediate(kI32, shape));
  const Tensor end =
      graph.pointwise(CUDNN_POINTWISE_ADD, {column, graph.scalar(static_cast<float>(tile.window))},
                      graph.intermediate(kF32, shape));
  const Tensor near =
      graph.pointwise(CUDNN_POINTWISE_CMP_GT, {end, row}, graph.intermediate(kBool, shape), kBool);
  return selected(graph, shape, causal, near);
}

// Transposes the matrices of scores and rounds them to bf16 for a product.
Tensor flipped(Graph& graph, const Shape& scores, Tensor tensor) {
  return graph.reshape(
      tensor, graph.intermediate(kBf16, transposed(scores), transposed(row_major(scores))));
}

}  // namespace

MaskShape mask_of(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                  std::int64_t k_rows) {
  if (k_first > q_first + q_rows - 1) return MaskShape::nothing;
  if (k_first + k_rows - 1 <= q_first) return MaskShape::everything;
  if (k_first == q_first) return MaskShape::top_left;
  // If the keys begin after the first query, that query sees none of them.
  if (k_first < q_first && k_first + k_rows == q_first + q_rows) return MaskShape::bottom_right;
  return MaskShape::other;
}

AttentionTile tile_of(const AttentionForward& op, std::int64_t rank) {
  return tile_of(op, rank, Direction::forward);
}
AttentionTile tile_of(const AttentionBackward& op, std::int64_t rank, std::int64_t members) {
  AttentionTile tile = tile_of(op, rank, Direction::backward);
  tile.members = members;
  return tile;
}

std::string describe(const AttentionTile& tile) {
  return fmt::format("attention {} of {} queries and {} keys, {} and {} heads of {}",
                     tile.direction == Direction::forward ? "forward" : "backward", tile.q_rows,
                     tile.k_rows, tile.heads, tile.kv_heads, tile.head_dim);
}

std::string why_not(const AttentionTile& tile) {
  FPDT_ASSERT(tile.kv_heads > 0 && tile.heads % (tile.kv_heads * tile.members) == 0);
  if (tile.mask == MaskShape::nothing || tile.mask == MaskShape::other) {
    return "its queries must see all keys, or those up to a diagonal that begins in the tile's top "
           "left corner or ends in its bottom right one; chunks of one size give such tiles";
  }
  if (tile.window > 0 && tile.mask != MaskShape::top_left) {
    return "a window hides some of its keys, which it may do only where rows meet their own keys";
  }
  if (tile.q_rows % kRowMultiple != 0 || tile.k_rows % kRowMultiple != 0) {
    return fmt::format(
        "its rows must be multiples of {}; `row_multiple: {}` in the cluster file "
        "gives such chunks",
        kRowMultiple, kRowMultiple);
  }
  if (std::find(kHeadDims.begin(), kHeadDims.end(), tile.head_dim) == kHeadDims.end()) {
    return fmt::format("head_dim must be one of {}", fmt::join(kHeadDims, ", "));
  }
  const std::int64_t queries = mul(mul(tile.q_rows, tile.heads), tile.head_dim);
  const std::int64_t keys = mul(mul(tile.k_rows, 2 * tile.kv_heads), tile.head_dim);
  if (std::max(queries, keys) >= kElements) {
    return "its operands must have less than 2^31 elements; shorter chunks have fewer";
  }
  return {};
}

ForwardTensors add_forward(Graph& graph, const AttentionTile& tile) {
  const Shapes shapes(tile, 1, tile.heads);
  const std::int64_t width = tile.heads * tile.head_dim;
  const Shape query_strides = strides_in_rows(tile.q_rows, tile.head_dim, width);
  ForwardTensors result;
  result.q = graph.real(kBf16, shapes.queries, query_strides);
  result.k = graph.real(kBf16, transposed(shapes.keys), transposed(shapes.key_strides));
  result.v = graph.real(kBf16, shapes.keys, shapes.key_strides);
  result.o = graph.real(kBf16, shapes.queries, query_strides);
  result.lse = graph.real(kF32, shapes.row, row_major(shapes.row));
  const auto score = [&] { return graph.intermediate(kF32, shapes.scores); };
  const auto row = [&] { return graph.intermediate(kF32, shapes.row); };

  const Tensor products = graph.matmul(result.q, result.k, score());
  const Tensor scores =
      masked(graph, tile, shapes.scores, scaled(graph, tile, shapes.scores, products));
  const Tensor maximum = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, row());
  const Tensor below = graph.pointwise(CUDNN_POINTWISE_SUB, {scores, maximum}, score());
  const Tensor weights = graph.pointwise(CUDNN_POINTWISE_EXP, {below}, score());
  const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, row());
  const Tensor log = graph.pointwise(CUDNN_POINTWISE_LOG, {sum}, row());
  graph.pointwise(CUDNN_POINTWISE_ADD, {maximum, log}, result.lse);
  const Tensor p = graph.pointwise(CUDNN_POINTWISE_DIV, {weights, sum},
                                   graph.intermediate(kBf16, shapes.scores));
  graph.matmul(p, result.v, result.o);
  return result;
}

BackwardTensors add_backward(Graph& graph, const AttentionTile& tile) {
  const std::int64_t group = div_exact(tile.heads, tile.kv_heads);
  const Shapes shapes(tile, tile.members, tile.kv_heads);
  // Strides of rows that hold `apart` members of each KV head side by side.
  const auto of_members = [&](std::int64_t apart) -> Shape {
    const std::int64_t head = apart * tile.head_dim;
    return {tile.head_dim, head, tile.kv_heads * head, 1};
  };
  Shape shared = shapes.key_strides;
  shared[0] = 0;
  BackwardTensors result;
  result.q = graph.real(kBf16, shapes.queries, of_members(group));
  result.k = graph.real(kBf16, transposed(shapes.keys), transposed(shared));
  result.v = graph.real(kBf16, transposed(shapes.keys), transposed(shared));
  result.dout = graph.real(kBf16, shapes.queries, of_members(group));
  result.o = graph.real(kBf16, shapes.queries, of_members(tile.members));
  result.lse = graph.real(kF32, shapes.row, row_major(shapes.row));
  result.delta = graph.real(kF32, shapes.row, row_major(shapes.row));
  result.dq_sum = graph.real(kF32, shapes.queries, row_major(shapes.queries));
  result.dq = graph.real(kBf16, shapes.queries, of_members(tile.members));
  result.dk = graph.real(kBf16, shapes.keys, shapes.key_strides);
  result.dv = graph.real(kBf16, shapes.keys, shapes.key_strides);
  const auto score = [&] { return graph.intermediate(kF32, shapes.scores); };

  const Tensor dots = graph.pointwise(CUDNN_POINTWISE_MUL, {result.dout, result.o},
                                      graph.intermediate(kF32, shapes.queries));
  const Tensor dot =
      graph.reduce(CUDNN_REDUCE_TENSOR_ADD, dots, graph.intermediate(kF32, shapes.row));
  graph.pointwise(CUDNN_POINTWISE_MUL, {dot, graph.scalar(1.0F)}, result.delta);

  const Tensor products = graph.matmul(result.q, result.k, score());
  const Tensor scores = scaled(graph, tile, shapes.scores, products);
  const Tensor logs = graph.pointwise(CUDNN_POINTWISE_SUB, {scores, result.lse}, score());
  const Tensor p =
      graph.pointwise(CUDNN_POINTWISE_EXP, {masked(graph, tile, shapes.scores, logs)}, score());
  graph.matmul(flipped(graph, shapes.scores, p), result.dout, result.dv);

  const Tensor dp = graph.matmul(result.dout, result.v, score());
  const Tensor centred = graph.pointwise(CUDNN_POINTWISE_SUB, {dp, result.delta}, score());
  const Tensor weighted = graph.pointwise(CUDNN_POINTWISE_MUL, {centred, p}, score());
  const Tensor ds = scaled(graph, tile, shapes.scores, weighted);
  graph.matmul(flipped(graph, shapes.scores, ds), result.q, result.dk);

  const Tensor keys = graph.reshape(result.k, graph.intermediate(kBf16, shapes.keys, shared));
  graph.matmul(ds, keys, result.dq_sum);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, {result.dq_sum}, result.dq);
  return result;
}

}  // namespace fpdt::cuda
