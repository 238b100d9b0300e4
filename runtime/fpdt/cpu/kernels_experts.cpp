// The router of experts, rows on their way to experts and back, and the products of experts.
//
// Every sum has one order: of a row over its choices, of a matrix over its pairs.
#include <cmath>
#include <limits>

#include "fpdt/cpu/kernels_matmul.h"
#include "fpdt/cpu/routes.h"

namespace fpdt::cpu {
namespace {

constexpr float kLeastLogit = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kTile = 128;   // rows and columns of a tile of a product
constexpr std::int64_t kDepth = 384;  // terms at a time
static_assert(2 * kTile * kDepth + kTile * kTile + kPiece <= kThreadFloats);
static_assert(5 * kExpertsMost + kActiveMost <= kThreadFloats);

// Chooses the experts of a row, those of the largest values. `taken` has a mark for each expert.
void choose(const float* values, std::int64_t experts, std::int64_t active, std::int32_t* chosen,
            float* taken) {
  std::fill_n(taken, experts, 0.0F);
  for (std::int64_t j = 0; j < active; ++j) {
    std::int64_t best = -1;
    float most = kLeastLogit;
    for (std::int64_t e = 0; e < experts; ++e) {
      const float value = std::isnan(values[e]) ? kLeastLogit : values[e];
      if (taken[e] != 0 || (best >= 0 && !(value > most))) continue;
      best = e;
      most = value;
    }
    taken[best] = 1;
    chosen[j] = static_cast<std::int32_t>(best);
  }
}

// The probability of each expert. A NaN makes all of them NaN.
// Returns log sum exp(logits).
float softmax(const float* logits, std::int64_t experts, float* p) {
  float most = kLeastLogit, sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) most = std::max(most, logits[e]);
  for (std::int64_t e = 0; e < experts; ++e) sum += p[e] = exponential(logits[e] - most);
  for (std::int64_t e = 0; e < experts; ++e) p[e] /= sum;
  return most + std::log(sum);
}

// What Route and its gradient make weights of: the softmax, of which it returns the log of the sum,
// or sigmoids.
template <class Op>
float scores(const Op& op, const float* logits, float* p) {
  if (!op.sigmoid) return softmax(logits, op.experts, p);
  for (std::int64_t e = 0; e < op.experts; ++e) p[e] = 1 / (1 + exponential(-logits[e]));
  return 0;
}

// Entries in order of expert, then row: a counting sort. `slots` holds the choices before.
void sort_entries(std::int32_t* sources, std::int32_t* slots, std::int32_t* ends,
                  std::int64_t pairs, std::int64_t experts) {
  std::fill_n(ends, experts, 0);
  for (std::int64_t i = 0; i < pairs; ++i) ++ends[slots[i]];
  std::int32_t before = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int32_t count = ends[e];
    ends[e] = before;  // where the next pair of the expert goes
    before += count;
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int32_t pair = ends[slots[i]]++;
    sources[pair] = static_cast<std::int32_t>(i);
    slots[i] = pair;
  }
}

struct GroupedOperands {
  View a, b, out, bias{};
};

// A tile of one expert's product, over the whole of k in order.
void multiply_tile(const GroupedMatmul& op, const GroupedOperands& views, std::int64_t expert,
                   Range rows, Range columns, float* scratch) {
  const std::int64_t matrix = expert - op.slice.first;
  float* const a_buffer = scratch;
  float* const b_buffer = a_buffer + kTile * kDepth;
  float* const sums = b_buffer + kTile * kDepth;
  const Layout layout = op.transpose_b ? Layout::transposed : Layout::plain;
  for (std::int64_t at = 0; at < op.k; at += kDepth) {
    const std::int64_t depth = std::min(kDepth, op.k - at);
    const Block a = block_of(views.a, op.k, rows.first, rows.count(), at, depth, a_buffer);
    const Block b = op.transpose_b ? block_of(views.b, op.k, matrix * op.n + columns.first,
                                              columns.count(), at, depth, b_buffer)
                                   : block_of(views.b, op.n, matrix * op.k + at, depth,
                                              columns.first, columns.count(), b_buffer);
    const auto sum = at == 0 ? multiply : multiply_add;
    sum(Layout::plain, a, layout, b, rows.count(), columns.count(), depth, sums, columns.count());
  }
  const float* bias = nullptr;
  if (present(views.bias)) {
    bias = load(views.bias, expert * op.n + columns.first, columns.count(), b_buffer);
  }
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    float* const sum = sums + i * columns.count();
    for (std::int64_t j = 0; bias != nullptr && j < columns.count(); ++j) sum[j] += bias[j];
    store(views.out, (rows.first + i) * op.n + columns.first, columns.count(), sum);
  }
}

// Adds the terms of an expert's pairs to a tile of the sum of its matrix.
void add_tile(const GroupedGradient& op, const GroupedOperands& views, std::int64_t expert,
              Range pairs, Range rows, Range columns, float* scratch) {
  float* const a_buffer = scratch;
  float* const b_buffer = a_buffer + kTile * kDepth;
  float* const sums = b_buffer + kTile * kDepth;
  for (std::int64_t at = pairs.first; at < pairs.end; at += kDepth) {
    const std::int64_t depth = std::min(kDepth, pairs.end - at);
    const Block dy = block_of(views.a, op.n, at, depth, rows.first, rows.count(), a_buffer);
    const Block x = block_of(views.b, op.k, at, depth, columns.first, columns.count(), b_buffer);
    const auto sum = at == pairs.first ? multiply : multiply_add;
    sum(Layout::transposed, dy, Layout::plain, x, rows.count(), columns.count(), depth, sums,
        columns.count());
  }
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    const std::int64_t row = (expert - op.slice.first) * op.n + rows.first + i;
    store(views.out, row * op.k + columns.first, columns.count(), sums + i * columns.count());
  }
}

}  // namespace

void execute(const Route& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View weights = frame.view(op, op.weights);
  const View routes = frame.view(op, op.routes);
  const View bias = frame.view(op, op.bias);
  const std::int64_t pairs = op.rows * op.active;
  const auto scale = static_cast<float>(op.scale);
  FPDT_ASSERT(routes.dtype == Dtype::i32 && routes.elements >= 2 * pairs + op.experts);
  auto* const sources = reinterpret_cast<std::int32_t*>(routes.data);
  std::int32_t* const slots = sources + pairs;
  for_each_row(frame, op.rows, op.experts, [&](std::int64_t row, std::int32_t worker) {
    float* const p = frame.scratch(worker);
    float* const w = p + op.experts;
    std::int32_t* const own = slots + row * op.active;
    const float* values = load(logits, row * op.experts, op.experts, w + op.active);
    if (op.sigmoid) {
      float* const keys = w + op.active + op.experts;
      scores(op, values, keys);
      for (std::int64_t e = 0; e < op.experts; ++e) keys[e] += load_scalar(bias, e);
      choose(keys, op.experts, op.active, own, p);
    } else {
      choose(values, op.experts, op.active, own, p);
    }
    scores(op, values, p);
    float sum = 0;
    for (std::int64_t j = 0; j < op.active; ++j) sum += w[j] = p[own[j]];
    const float divisor = op.normalised ? sum : 1;
    for (std::int64_t j = 0; j < op.active; ++j) w[j] = scale * (w[j] / divisor);
    store(weights, row * op.active, op.active, w);
  });
  sort_entries(sources, slots, slots + pairs, pairs, op.experts);
}

// Rows in order, in runs whose sums are added up, so that f32 is enough.
void execute(const ExpertLoads& op, const Frame& frame) {
  constexpr std::int64_t kRun = 64;
  const View logits = frame.view(op, op.logits);
  const View chances = frame.view(op, op.chances);
  const View loads = frame.view(op, op.loads);
  const std::int32_t* labels = integers(frame.view(op, op.labels), 0, op.rows);
  const Routes routes(op, frame);
  frame.pool.for_each(1, [&](std::int64_t, std::int32_t worker) {
    float* const p = frame.scratch(worker);
    float* const run = p + op.experts;
    float* const sum = run + op.experts;
    float* const load_sum = sum + op.experts + 1;  // after the squares
    float* const buffer = load_sum + op.experts;
    std::fill_n(sum, 2 * op.experts + 1, 0.0F);
    for (std::int64_t first = 0; first < op.rows; first += kRun) {
      std::fill_n(run, op.experts, 0.0F);
      float squares = 0;
      for (std::int64_t row = first; row < std::min(op.rows, first + kRun); ++row) {
        if (labels[row] < 0) continue;
        const float log_sum =
            softmax(load(logits, row * op.experts, op.experts, buffer), op.experts, p);
        squares += log_sum * log_sum;
        for (std::int64_t e = 0; e < op.experts; ++e) run[e] += p[e];
        for (std::int64_t j = 0; j < op.active; ++j) {
          load_sum[routes.expert_of(row * op.active + j)] += 1;
        }
      }
      for (std::int64_t e = 0; e < op.experts; ++e) sum[e] += run[e];
      sum[op.experts] += squares;
    }
    store(chances, 0, op.experts + 1, sum);
    store(loads, 0, op.experts, load_sum);
  });
}

void execute(const BalanceLoss& op, const Frame& frame) {
  const View chances = frame.view(op, op.chances);
  const View loads = frame.view(op, op.loads);
  double rows = 0, sum = 0;
  for (std::int64_t e = 0; e < op.experts; ++e) {
    const auto chosen = static_cast<double>(load_scalar(loads, e));
    rows += chosen / static_cast<double>(op.active);
    sum += chosen * static_cast<double>(load_scalar(chances, e));
  }
  const auto squares = static_cast<double>(load_scalar(chances, op.experts));
  const double loss = rows > 0 ? op.balance * sum / rows / rows + op.z * squares / rows : 0;
  const auto term = static_cast<float>(loss);
  store(frame.view(op, op.loss), 0, 1, &term);
}

namespace {

// Adds the gradient of BalanceLoss with respect to the logits of a row, whose softmax is p.
void add_balance(const RouteBackward& op, const View& loads, const float* p, float log_sum,
                 float* dlogits) {
  float rows = 0, mean = 0;
  for (std::int64_t e = 0; e < op.experts; ++e) rows += load_scalar(loads, e);
  rows /= static_cast<float>(op.active);
  if (!(rows > 0)) return;
  for (std::int64_t e = 0; e < op.experts; ++e) mean += p[e] * (load_scalar(loads, e) / rows);
  const float factor = static_cast<float>(op.balance) / rows;
  const float square = static_cast<float>(2 * op.z) / rows * log_sum;
  for (std::int64_t e = 0; e < op.experts; ++e) {
    dlogits[e] += p[e] * (factor * (load_scalar(loads, e) / rows - mean) + square);
  }
}

}  // namespace

// Of the logit of a chosen expert: w (dw - sum of w dw). Where weights are not normalised, w is
// the probability, and that of every other expert takes part in the softmax as well. One expert
// alone, of weight 1, has no gradient, exactly. Of a sigmoid p, whose slope is p (1 - p), only the
// chosen have a gradient: (1 - p) times that of above, or p (1 - p) dw.
void execute(const RouteBackward& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View loads = frame.view(op, op.loads);
  const std::int32_t* labels =
      present(loads) ? integers(frame.view(op, op.labels), 0, op.rows) : nullptr;
  const View dweights = frame.view(op, op.dweights);
  const View dlogits = frame.view(op, op.dlogits);
  const auto scale = static_cast<float>(op.scale);
  const Routes routes(op, frame);
  for_each_row(frame, op.rows, op.experts, [&](std::int64_t row, std::int32_t worker) {
    float* const p = frame.scratch(worker);
    float* const dw = p + op.experts;  // of each expert
    float* const whole = dw + op.experts;
    const float log_sum = scores(op, load(logits, row * op.experts, op.experts, dw), p);
    std::copy_n(p, op.experts, whole);
    std::fill_n(dw, op.experts, 0.0F);
    float mass = 0, mean = 0;
    for (std::int64_t j = 0; j < op.active; ++j) mass += p[routes.expert_of(row * op.active + j)];
    for (std::int64_t j = 0; j < op.active; ++j) {
      const std::int64_t entry = row * op.active + j;
      const std::int64_t e = routes.expert_of(entry);
      dw[e] = scale * load_scalar(dweights, entry);
      if (op.normalised) p[e] /= mass;
      mean += p[e] * dw[e];
    }
    if (op.normalised) {
      for (std::int64_t j = 0; j < op.active; ++j) {
        const std::int64_t e = routes.expert_of(row * op.active + j);
        dw[e] = p[e] * (dw[e] - mean);
      }
    } else if (op.sigmoid) {
      for (std::int64_t e = 0; e < op.experts; ++e) dw[e] *= p[e];
    } else {
      for (std::int64_t e = 0; e < op.experts; ++e) dw[e] = p[e] * (dw[e] - mean);
    }
    for (std::int64_t e = 0; op.sigmoid && e < op.experts; ++e) dw[e] *= 1 - whole[e];
    if (labels != nullptr && labels[row] >= 0) add_balance(op, loads, whole, log_sum, dw);
    store(dlogits, row * op.experts, op.experts, dw);
  });
}

void execute(const Dispatch& op, const Frame& frame) {
  const View x = frame.view(op, op.x);
  const View y = frame.view(op, op.y);
  const Routes routes(op, frame);
  for_each_row(frame, routes.pairs_of(op.slice), op.width, [&](std::int64_t pair, auto worker) {
    const std::int64_t row = routes.sources[pair] / op.active;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      store(y, pair * op.width + at, n, load(x, row * op.width + at, n, frame.scratch(worker)));
    });
  });
}

void execute(const Combine& op, const Frame& frame) {
  const View x = frame.view(op, op.x);
  const View weights = frame.view(op, op.weights);
  const View addend = frame.view(op, op.addend);
  const View y = frame.view(op, op.y);
  const Routes routes(op, frame);
  const Range own = routes.pairs_of(op.slice);
  for_each_row(frame, op.rows, op.width, [&](std::int64_t row, std::int32_t worker) {
    float* const sum = frame.scratch(worker);
    float* const buffer = sum + kPiece;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      std::fill_n(sum, n, 0.0F);
      for (std::int64_t j = 0; j < op.active; ++j) {
        const std::int64_t entry = row * op.active + j;
        if (!own.contains(routes.slots[entry])) continue;
        const float* values = load(x, routes.slots[entry] * op.width + at, n, buffer);
        const float w = present(weights) ? load_scalar(weights, entry) : 1.0F;
        for (std::int64_t i = 0; i < n; ++i) sum[i] += w * values[i];
      }
      if (present(addend)) {
        const float* more = load(addend, row * op.width + at, n, buffer);
        for (std::int64_t i = 0; i < n; ++i) sum[i] += more[i];
      }
      store(y, row * op.width + at, n, sum);
    });
  });
}

void execute(const CombineBackward& op, const Frame& frame) {
  const View x = replacing(frame.view(op, op.x));
  const View dx = replacing(frame.view(op, op.dx));
  const View weights = frame.view(op, op.weights);
  const View dweights = frame.view(op, op.dweights);
  const View terms = frame.view(op, op.terms);
  const Routes routes(op, frame);
  if (op.slice.count > 0) clear_written(frame, dweights, routes.pairs);
  for_each_row(frame, routes.pairs_of(op.slice), op.width, [&](std::int64_t pair, auto worker) {
    float* const a_buffer = frame.scratch(worker);
    float* const b_buffer = a_buffer + kPiece;
    float* const out = b_buffer + kPiece;
    const std::int64_t entry = routes.sources[pair];
    const float w = load_scalar(weights, entry);
    float dot = 0;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      const float* a = load(x, pair * op.width + at, n, a_buffer);
      const float* b = load(dx, pair * op.width + at, n, b_buffer);
      dot += lane_sum(n, [a, b](std::int64_t i) { return a[i] * b[i]; });
      for (std::int64_t i = 0; i < n; ++i) out[i] = w * a[i];
      store(x, pair * op.width + at, n, out);
      for (std::int64_t i = 0; i < n; ++i) out[i] = w * b[i];
      store(dx, pair * op.width + at, n, out);
    });
    if (present(terms)) {
      dot += load_scalar(terms, entry / op.active * op.experts + routes.expert_of(entry));
    }
    store(dweights, entry, 1, &dot);
  });
}

void execute(const GroupedMatmul& op, const Frame& frame) {
  const GroupedOperands views{frame.view(op, op.a), frame.view(op, op.b), frame.view(op, op.out),
                              frame.view(op, op.bias)};
  const Routes routes(op, frame);
  const std::int64_t column_tiles = div_ceil(op.n, kTile), experts = op.slice.of(op.experts);
  frame.pool.for_each(experts * column_tiles, [&](std::int64_t task, std::int32_t worker) {
    const std::int64_t expert = op.slice.first + task / column_tiles;
    const Range pairs = routes.pairs_of(expert);
    const Range columns = block_range(task % column_tiles, kTile, op.n);
    for (std::int64_t at = pairs.first; at < pairs.end; at += kTile) {
      multiply_tile(op, views, expert, {at, std::min(pairs.end, at + kTile)}, columns,
                    frame.scratch(worker));
    }
  });
}

void execute(const GroupedGradient& op, const Frame& frame) {
  const GroupedOperands views{frame.view(op, op.dy), frame.view(op, op.x), frame.view(op, op.sum)};
  const Routes routes(op, frame);
  const std::int64_t experts = op.slice.of(op.experts);
  clear_written(frame, views.out, experts * op.n * op.k);
  const std::int64_t row_tiles = div_ceil(op.n, kTile), column_tiles = div_ceil(op.k, kTile);
  const std::int64_t tiles = row_tiles * column_tiles;
  frame.pool.for_each(experts * tiles, [&](std::int64_t task, std::int32_t worker) {
    const std::int64_t expert = op.slice.first + task / tiles;
    const Range pairs = routes.pairs_of(expert);
    if (pairs.empty()) return;
    const Range rows = block_range(task % tiles / column_tiles, kTile, op.n);
    const Range columns = block_range(task % column_tiles, kTile, op.k);
    add_tile(op, views, expert, pairs, rows, columns, frame.scratch(worker));
  });
}

void execute(const GroupedSum& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  const View weights = frame.view(op, op.weights);
  const View sum = frame.view(op, op.sum);
  const Routes routes(op, frame);
  const std::int64_t experts = op.slice.of(op.experts);
  clear_written(frame, sum, experts * op.width);
  const std::int64_t blocks = div_ceil(op.width, kColumns);
  frame.pool.for_each(experts * blocks, [&](std::int64_t task, std::int32_t worker) {
    const std::int64_t matrix = task / blocks;
    const Range pairs = routes.pairs_of(op.slice.first + matrix);
    if (pairs.empty()) return;
    const Range columns = block_range(task % blocks, kColumns, op.width);
    std::array<double, kColumns> sums{};
    for (std::int64_t pair = pairs.first; pair < pairs.end; ++pair) {
      const double w = present(weights) ? load_scalar(weights, routes.sources[pair]) : 1.0F;
      const float* values =
          load(source, pair * op.width + columns.first, columns.count(), frame.scratch(worker));
      for (std::int64_t i = 0; i < columns.count(); ++i) {
        sums[static_cast<std::size_t>(i)] += w * static_cast<double>(values[i]);
      }
    }
    std::array<float, kColumns> rounded{};
    std::copy(sums.begin(), sums.end(), rounded.begin());
    store(accumulating(sum), matrix * op.width + columns.first, columns.count(), rounded.data());
  });
}

}  // namespace fpdt::cpu
