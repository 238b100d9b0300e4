// The embedding of tokens, and cross-entropy over vocabulary tiles.
#include <cmath>

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {
namespace {

// Per row: the maximum, the sum of exponentials relative to it, the target's logit.
constexpr std::int64_t kStatistics = 3;
using RowStatistics = std::array<float, kStatistics>;

// The tokens of a chunk and their positions in their documents.
struct Tokens {
  const std::int32_t* ids;
  Documents documents;
  std::int64_t first;
  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return first + row - documents.start(first + row);
  }
};

template <class Op>
Tokens tokens_of(const Op& op, const Frame& frame) {
  const std::int64_t first = op.token_first.at(frame.rank);
  return {integers(frame.view(op, op.tokens), 0, op.rows),
          Documents(frame.view(op, op.documents), first, op.rows), first};
}

// Logits after their cap, in `buffer`, which may hold them.
const float* capped(const float* values, float cap, std::int64_t n, float* buffer) {
  if (cap == 0) return values;
  for (std::int64_t i = 0; i < n; ++i) buffer[i] = soft_capped(values[i], cap);
  return buffer;
}

// Maximum and sum of one row's tile, and the logit of the label if the tile has it.
RowStatistics tile_statistics(const View& logits, std::int64_t offset, std::int64_t width,
                              std::int64_t label, float cap, float* buffer) {
  RowStatistics result{kMinusInfinity, 0.0F, 0.0F};
  for_each_in_row(width, [&](std::int64_t at, std::int64_t n) {
    const float* values = capped(load(logits, offset + at, n, buffer), cap, n, buffer);
    const float maximum = lane_maximum(values, n, result[0]);
    if (maximum == kMinusInfinity) return;
    const float old = result[1] * exponential(result[0] - maximum);
    result[1] = old + lane_sum(n, [values, maximum](std::int64_t i) {
                  return exponential(values[i] - maximum);
                });
    result[0] = maximum;
  });
  if (label >= 0 && label < width) {
    const float target = load_scalar(logits, offset + label);
    result[2] = cap > 0 ? soft_capped(target, cap) : target;
  }
  return result;
}

RowStatistics merge(const RowStatistics& a, const RowStatistics& b) {
  const float maximum = std::max(a[0], b[0]);
  if (maximum == kMinusInfinity) return {maximum, 0.0F, a[2] + b[2]};
  return {maximum, a[1] * exponential(a[0] - maximum) + b[1] * exponential(b[0] - maximum),
          a[2] + b[2]};
}

// values * scale, in `buffer`, which may hold them.
const float* scaled(const float* values, float scale, std::int64_t n, float* buffer) {
  for (std::int64_t i = 0; i < n; ++i) buffer[i] = values[i] * scale;
  return buffer;
}

}  // namespace

void execute(const Embedding& op, const Frame& frame) {
  const Tokens tokens = tokens_of(op, frame);
  const View table = frame.view(op, op.table);
  const View positions = frame.view(op, op.positions);
  const View x = frame.view(op, op.x);
  for_each_row(frame, op.rows, op.width, [&](std::int64_t row, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    float* out = buffer + kPiece;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      const float* values = load(table, tokens.ids[row] * op.width + at, n, buffer);
      if (op.scale != 1) values = scaled(values, static_cast<float>(op.scale), n, buffer);
      if (present(positions)) {
        const float* word = values;
        const float* position = load(positions, tokens.position(row) * op.width + at, n, out);
        for (std::int64_t i = 0; i < n; ++i) out[i] = word[i] + position[i];
        values = out;
      }
      store(x, row * op.width + at, n, values);
    });
  });
}

// Parallel over columns; each column adds its rows in token order.
void execute(const EmbeddingBackward& op, const Frame& frame) {
  const Tokens tokens = tokens_of(op, frame);
  const View dx = frame.view(op, op.dx);
  const View dtable = frame.view(op, op.dtable);
  const View dpositions = frame.view(op, op.dpositions);
  clear_written(frame, dtable, dtable.elements);
  clear_written(frame, dpositions, dpositions.elements);
  const View table_sum = accumulating(dtable);
  const View position_sum = accumulating(dpositions);
  for_each_column_block(
      frame, op.width, [&](std::int64_t first, std::int64_t count, std::int32_t worker) {
        for (std::int64_t row = 0; row < op.rows; ++row) {
          float* buffer = frame.scratch(worker);
          const float* values = load(dx, row * op.width + first, count, buffer);
          if (present(dpositions)) {
            store(position_sum, tokens.position(row) * op.width + first, count, values);
          }
          if (!present(dtable)) continue;
          if (op.scale != 1) values = scaled(values, static_cast<float>(op.scale), count, buffer);
          store(table_sum, tokens.ids[row] * op.width + first, count, values);
        }
      });
}

void execute(const LossStatistics& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View statistics = frame.view(op, op.statistics);
  const std::int32_t* labels = integers(frame.view(op, op.labels), 0, op.rows);
  const bool merges = statistics.access == Access::accumulate;
  View target = statistics;
  target.access = Access::write;
  for_each_row(frame, op.rows, op.vocab_count, [&](std::int64_t row, std::int32_t worker) {
    RowStatistics result{kMinusInfinity, 0.0F, 0.0F};
    if (labels[row] >= 0) {
      result = tile_statistics(logits, row * op.vocab_count, op.vocab_count,
                               labels[row] - op.vocab_first, static_cast<float>(op.cap),
                               frame.scratch(worker));
    }
    if (merges) {
      RowStatistics before{};
      const float* values = load(statistics, row * kStatistics, kStatistics, before.data());
      std::copy_n(values, kStatistics, before.data());
      result = merge(before, result);
    }
    store(target, row * kStatistics, kStatistics, result.data());
  });
}

// One logarithm per row: cheap enough to add in row order on one thread.
void execute(const LossSum& op, const Frame& frame) {
  const View statistics = frame.view(op, op.statistics);
  const std::int32_t* labels = integers(frame.view(op, op.labels), 0, op.rows);
  double sum = 0;
  for (std::int64_t row = 0; row < op.rows; ++row) {
    if (labels[row] < 0) continue;
    RowStatistics buffer{};
    const float* s = load(statistics, row * kStatistics, kStatistics, buffer.data());
    sum +=
        static_cast<double>(s[0]) + std::log(static_cast<double>(s[1])) - static_cast<double>(s[2]);
  }
  const float scale = load_scalar(frame.view(op, op.scale), 0);
  const auto loss = static_cast<float>(sum * static_cast<double>(scale));
  store(frame.view(op, op.loss), 0, 1, &loss);
}

void execute(const LossGradient& op, const Frame& frame) {
  const View logits = frame.view(op, op.logits);
  const View statistics = frame.view(op, op.statistics);
  const View dlogits = frame.view(op, op.dlogits);
  const std::int32_t* labels = integers(frame.view(op, op.labels), 0, op.rows);
  const float scale = load_scalar(frame.view(op, op.scale), 0);
  const auto cap = static_cast<float>(op.cap);
  for_each_row(frame, op.rows, op.vocab_count, [&](std::int64_t row, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    float* out = buffer + kPiece;
    const std::int64_t label = labels[row] - op.vocab_first;
    const bool counts = labels[row] >= 0;
    const float maximum = load_scalar(statistics, row * kStatistics);
    const float factor = counts ? scale / load_scalar(statistics, row * kStatistics + 1) : 0.0F;
    for_each_in_row(op.vocab_count, [&](std::int64_t at, std::int64_t n) {
      if (counts) {
        const float* raw = load(logits, row * op.vocab_count + at, n, buffer);
        const float* values = capped(raw, cap, n, out);
        for (std::int64_t i = 0; i < n; ++i) out[i] = exponential(values[i] - maximum) * factor;
        if (label >= at && label < at + n) out[label - at] -= scale;
        for (std::int64_t i = 0; cap > 0 && i < n; ++i) out[i] *= slope_of_cap(raw[i], cap);
      } else {
        std::fill_n(out, n, 0.0F);
      }
      store(dlogits, row * op.vocab_count + at, n, out);
    });
  });
}

}  // namespace fpdt::cpu
