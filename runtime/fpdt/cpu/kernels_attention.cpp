// Exact attention by tiles (Dao et al., arXiv 2205.14135; Milakov and Gimelshein, arXiv
// 1805.02867).
//
// A task is one head and kQueryRows query rows. For each row it keeps the maximum m of the scores
// so far, the sum l of exp(score - m), and the sum o of exp(score - m) v. A tile that accumulates
// starts from the stored pair, as m = lse, l = 1, o, so merging needs no code of its own. A row
// that has seen no key has lse = -infinity and o = 0, which is m = -infinity and l = 0.
#include "fpdt/cpu/kernels_attention.h"

#include <cmath>

namespace fpdt::cpu {
namespace {

constexpr std::int64_t kQueryRows = 128;
constexpr std::int64_t kKeyRows = 256;
static_assert(2 * (kQueryRows + kKeyRows) * kHeadMax + kQueryRows * kKeyRows + 2 * kQueryRows <=
              kThreadFloats);

struct Tile {
  const AttentionForward& op;
  View q, kv, o, lse;
  Mask mask;
};

// The running softmax of one task, in its thread's scratch memory.
struct Running {
  Running(float* scratch, std::int64_t size)
      : maximum(scratch),
        sum(maximum + kQueryRows),
        o(sum + kQueryRows),
        scores(o + kQueryRows * size),
        q(scores + kQueryRows * kKeyRows),
        k(q + kQueryRows * size),
        v(k + kKeyRows * size) {}
  float *maximum, *sum, *o, *scores, *q, *k, *v;
};

void begin(const Tile& tile, std::int64_t head, Range queries, const Running& running) {
  const std::int64_t size = tile.op.head_dim;
  const bool merges = tile.o.access == Access::accumulate;
  for (std::int64_t i = 0; i < queries.count(); ++i) {
    const std::int64_t at = (queries.first + i) * tile.op.heads + head;
    running.maximum[i] = merges ? load_scalar(tile.lse, at) : kMinusInfinity;
    const bool seen = running.maximum[i] != kMinusInfinity;
    running.sum[i] = seen ? 1.0F : 0.0F;
    float* o = running.o + i * size;
    if (seen) {
      const float* stored = load(tile.o, at * size, size, o);
      if (stored != o) std::copy_n(stored, size, o);
    } else {
      std::fill_n(o, size, 0.0F);
    }
  }
}

// Turns a row's scores into exp(score - m) with a new maximum m, and rescales the earlier sums.
void absorb_row(float* scores, std::int64_t columns, Range visible, const AttentionForward& op,
                float& maximum, float& sum, float* o) {
  const auto scale = static_cast<float>(op.scale), cap = static_cast<float>(op.cap);
  const std::int64_t first = std::min(visible.first, columns);
  const std::int64_t end = std::max(visible.end, first);
  std::fill_n(scores, first, 0.0F);
  std::fill_n(scores + end, columns - end, 0.0F);
  if (visible.empty()) return;
  float* values = scores + first;
  const std::int64_t n = end - first;
  for (std::int64_t j = 0; j < n; ++j) values[j] *= scale;
  for (std::int64_t j = 0; cap > 0 && j < n; ++j) values[j] = soft_capped(values[j], cap);
  const float larger = lane_maximum(values, n, maximum);
  if (larger == kMinusInfinity) {
    std::fill_n(values, n, 0.0F);
    return;
  }
  for (std::int64_t j = 0; j < n; ++j) values[j] = exponential(values[j] - larger);
  const float fade = exponential(maximum - larger);
  sum = sum * fade + lane_sum(n, [values](std::int64_t j) { return values[j]; });
  for (std::int64_t j = 0; j < op.head_dim; ++j) o[j] *= fade;
  maximum = larger;
}

void absorb(const Tile& tile, std::int64_t head, Range queries, Block q, Range keys,
            const Running& running) {
  const AttentionForward& op = tile.op;
  const std::int64_t size = op.head_dim;
  const std::int64_t width = 2 * op.kv_heads * size;
  const std::int64_t kv_head = head / (op.heads / op.kv_heads);
  const Block k = head_block(tile.kv, width, kv_head * size, size, keys, running.k);
  const Block v = head_block(tile.kv, width, (op.kv_heads + kv_head) * size, size, keys, running.v);
  const std::int64_t columns = keys.count();
  multiply(Layout::plain, q, Layout::transposed, k, queries.count(), columns, size, running.scores,
           columns);
  for (std::int64_t i = 0; i < queries.count(); ++i) {
    const Range seen = tile.mask.visible(queries.first + i, keys);
    absorb_row(running.scores + i * columns, columns,
               {seen.first - keys.first, seen.end - keys.first}, op, running.maximum[i],
               running.sum[i], running.o + i * size);
  }
  multiply_add(Layout::plain, {running.scores, columns}, Layout::plain, v, queries.count(), size,
               columns, running.o, size);
}

void finish(const Tile& tile, std::int64_t head, Range queries, const Running& running) {
  const std::int64_t size = tile.op.head_dim;
  View o_target = tile.o;
  View lse_target = tile.lse;
  o_target.access = lse_target.access = Access::write;
  for (std::int64_t i = 0; i < queries.count(); ++i) {
    const std::int64_t at = (queries.first + i) * tile.op.heads + head;
    float* o = running.o + i * size;
    const float sum = running.sum[i];
    if (sum != 0.0F) {
      for (std::int64_t j = 0; j < size; ++j) o[j] /= sum;
    }
    const float lse = sum == 0.0F ? kMinusInfinity : running.maximum[i] + std::log(sum);
    store(o_target, at * size, size, o);
    store(lse_target, at, 1, &lse);
  }
}

}  // namespace

void execute(const AttentionForward& op, const Frame& frame) {
  FPDT_ASSERT(op.head_dim <= kHeadMax && op.heads % op.kv_heads == 0);
  const Tile tile{op,
                  frame.view(op, op.q),
                  frame.view(op, op.kv),
                  frame.view(op, op.o),
                  frame.view(op, op.lse),
                  Mask(op, frame)};
  FPDT_ASSERT(tile.o.access == tile.lse.access);
  const std::int64_t blocks = div_ceil(op.q_rows, kQueryRows);
  frame.pool.for_each(op.heads * blocks, [&](std::int64_t task, std::int32_t worker) {
    const std::int64_t head = task / blocks;
    const Range queries = block_range(task % blocks, kQueryRows, op.q_rows);
    const Range visible = tile.mask.visible(queries, {0, op.k_rows});
    if (visible.empty() && tile.o.access == Access::accumulate) return;
    const Running running(frame.scratch(worker), op.head_dim);
    begin(tile, head, queries, running);
    const Block q = head_block(tile.q, op.heads * op.head_dim, head * op.head_dim, op.head_dim,
                               queries, running.q);
    for (std::int64_t at = visible.first; at < visible.end; at += kKeyRows) {
      absorb(tile, head, queries, q, {at, std::min(visible.end, at + kKeyRows)}, running);
    }
    finish(tile, head, queries, running);
  });
}

}  // namespace fpdt::cpu
