// The gradient of an attention tile (Dao et al., arXiv 2205.14135, algorithm 4):
//
//   p = exp(scale q k^T - lse),  dv += p^T do,  ds = scale p (do v^T - delta),  dq += ds k,  dk +=
//   ds^T q.
//
// With a cap, scale q k^T passes it before all else, and ds has its slope as a factor.
//
// dq and dkv are summed in place. Blocks of queries and keys meet as in a Latin square: in round r,
// the keys of block j meet the queries of block (j + r) mod n. Within a round, no two tasks touch
// the same rows of the same KV head's group, and rounds follow each other. So every sum has one
// order for any number of threads, and nothing is computed twice.
#include <limits>

#include "fpdt/cpu/kernels_attention.h"

namespace fpdt::cpu {
namespace {

constexpr std::int64_t kRows = 128;  // rows of a block of queries or keys
static_assert(4 * kRows * kHeadMax + 2 * kRows * kRows + kPiece <= kThreadFloats);

struct BackwardTile {
  const AttentionBackward& op;
  View q, kv, dout, lse, delta, dq, dkv;
  Mask mask;

  [[nodiscard]] std::int64_t q_width() const { return op.heads * op.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return 2 * op.kv_heads * op.head_dim; }
};

// Buffers of one task, in its thread's scratch memory.
struct Buffers {
  Buffers(float* scratch, std::int64_t size)
      : p(scratch),
        ds(p + kRows * kRows),
        q(ds + kRows * kRows),
        dout(q + kRows * size),
        k(dout + kRows * size),
        v(k + kRows * size) {}
  float *p, *ds, *q, *dout, *k, *v;
};

// Turns one row of scores into p, and do v^T into ds.
void differentiate_row(float* p, float* ds, std::int64_t columns, Range visible,
                       const AttentionBackward& op, float lse, float delta) {
  const auto scale = static_cast<float>(op.scale), cap = static_cast<float>(op.cap);
  const std::int64_t first = std::min(visible.first, columns);
  const std::int64_t end = std::max(visible.end, first);
  std::fill_n(p, first, 0.0F);
  std::fill_n(ds, first, 0.0F);
  std::fill_n(p + end, columns - end, 0.0F);
  std::fill_n(ds + end, columns - end, 0.0F);
  if (cap > 0) {
    for (std::int64_t j = first; j < end; ++j) {
      const float score = p[j] * scale;
      p[j] = exponential(soft_capped(score, cap) - lse);
      ds[j] = p[j] * (ds[j] - delta) * scale * slope_of_cap(score, cap);
    }
    return;
  }
  for (std::int64_t j = first; j < end; ++j) {
    p[j] = exponential(p[j] * scale - lse);
    ds[j] = p[j] * (ds[j] - delta) * scale;
  }
}

// The address of the first row of `rows` in an f32 target, checked against the view.
float* rows_of(const View& view, std::int64_t width, Range rows, std::int64_t column) {
  FPDT_ASSERT(view.dtype == Dtype::f32 && rows.end * width <= view.elements);
  return reinterpret_cast<float*>(view.data) + rows.first * width + column;
}

void differentiate(const BackwardTile& tile, std::int64_t head, Range queries, Range keys, Block k,
                   Block v, const Buffers& b) {
  const AttentionBackward& op = tile.op;
  const std::int64_t size = op.head_dim;
  const std::int64_t kv_head = head / (op.heads / op.kv_heads);
  const std::int64_t rows = queries.count();
  const std::int64_t columns = keys.count();
  const Block q = head_block(tile.q, tile.q_width(), head * size, size, queries, b.q);
  const Block dout = head_block(tile.dout, tile.q_width(), head * size, size, queries, b.dout);
  multiply(Layout::plain, q, Layout::transposed, k, rows, columns, size, b.p, columns);
  multiply(Layout::plain, dout, Layout::transposed, v, rows, columns, size, b.ds, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = (queries.first + i) * op.heads + head;
    const float lse = load_scalar(tile.lse, at);
    Range seen = tile.mask.visible(queries.first + i, keys);
    if (!(lse > -std::numeric_limits<float>::infinity())) seen.end = seen.first;
    differentiate_row(b.p + i * columns, b.ds + i * columns, columns,
                      {seen.first - keys.first, seen.end - keys.first}, op, lse,
                      load_scalar(tile.delta, at));
  }
  const std::int64_t value_column = (op.kv_heads + kv_head) * size;
  float* dk = rows_of(tile.dkv, tile.kv_width(), keys, kv_head * size);
  float* dv = rows_of(tile.dkv, tile.kv_width(), keys, value_column);
  float* dq = rows_of(tile.dq, tile.q_width(), queries, head * size);
  const Block p{b.p, columns};
  const Block ds{b.ds, columns};
  multiply_add(Layout::transposed, p, Layout::plain, dout, columns, size, rows, dv,
               tile.kv_width());
  multiply_add(Layout::transposed, ds, Layout::plain, q, columns, size, rows, dk, tile.kv_width());
  multiply_add(Layout::plain, ds, Layout::plain, k, rows, size, columns, dq, tile.q_width());
}

// Adds the gradients of one block of queries and one of keys, for all query heads of a KV head's
// group.
void meet(const BackwardTile& tile, std::int64_t kv_head, Range queries, Range keys,
          const Buffers& b) {
  if (tile.mask.visible(queries, keys).empty()) return;
  const AttentionBackward& op = tile.op;
  const std::int64_t size = op.head_dim;
  const std::int64_t group = op.heads / op.kv_heads;
  const Block k = head_block(tile.kv, tile.kv_width(), kv_head * size, size, keys, b.k);
  const Block v =
      head_block(tile.kv, tile.kv_width(), (op.kv_heads + kv_head) * size, size, keys, b.v);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    differentiate(tile, head, queries, keys, k, v, b);
  }
}

}  // namespace

void execute(const AttentionBackward& op, const Frame& frame) {
  FPDT_ASSERT(op.head_dim <= kHeadMax && op.heads % op.kv_heads == 0);
  const BackwardTile tile{op,
                          frame.view(op, op.q),
                          frame.view(op, op.kv),
                          frame.view(op, op.dout),
                          frame.view(op, op.lse),
                          frame.view(op, op.delta),
                          frame.view(op, op.dq),
                          frame.view(op, op.dkv),
                          Mask(op, frame)};
  clear_written(frame, tile.dq, op.q_rows * tile.q_width());
  clear_written(frame, tile.dkv, op.k_rows * tile.kv_width());
  if (tile.mask.visible({0, op.q_rows}, {0, op.k_rows}).empty()) return;
  const std::int64_t key_blocks = div_ceil(op.k_rows, kRows);
  const std::int64_t blocks = std::max(key_blocks, div_ceil(op.q_rows, kRows));
  for (std::int64_t round = 0; round < blocks; ++round) {
    frame.pool.for_each(op.kv_heads * key_blocks, [&](std::int64_t task, std::int32_t worker) {
      const std::int64_t block = task % key_blocks;
      const Range keys = block_range(block, kRows, op.k_rows);
      const Range queries = block_range((block + round) % blocks, kRows, op.q_rows);
      meet(tile, task / key_blocks, queries, keys, Buffers(frame.scratch(worker), op.head_dim));
    });
  }
}

}  // namespace fpdt::cpu
