// Which experts serve which rows, by plain loops: what the tests of the ops of experts share.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>

#include "kernel_case.h"

namespace fpdt {

// Rows, experts, and experts of a row.
struct Layer {
  std::int64_t rows, experts, active;

  [[nodiscard]] std::int64_t pairs() const { return rows * active; }
  template <class Op>
  void set(Op& op) const {
    op.rows = rows, op.experts = experts, op.active = active;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Layer& layer) {
  return out << layer.rows << " rows, " << layer.active << " of " << layer.experts << " experts";
}

// Which experts serve which rows, from logits.
struct Choices {
  std::vector<std::int64_t> expert_of_entry, entry_of_pair, pair_of_entry, end_of_expert;

  Choices(const Layer& layer, const std::vector<double>& logits) {
    for (std::int64_t row = 0; row < layer.rows; ++row) {
      const auto rank = [&](std::int64_t expert) {
        const double logit = logits[index(row * layer.experts + expert)];
        return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : logit;
      };
      std::vector<std::int64_t> order(index(layer.experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int64_t a, std::int64_t b) { return rank(a) > rank(b); });
      expert_of_entry.insert(expert_of_entry.end(), order.begin(), order.begin() + layer.active);
    }
    pair_of_entry.resize(expert_of_entry.size());
    for (std::int64_t expert = 0; expert < layer.experts; ++expert) {
      for (std::int64_t entry = 0; entry < layer.pairs(); ++entry) {
        if (expert_of_entry[index(entry)] != expert) continue;
        pair_of_entry[index(entry)] = static_cast<std::int64_t>(entry_of_pair.size());
        entry_of_pair.push_back(entry);
      }
      end_of_expert.push_back(static_cast<std::int64_t>(entry_of_pair.size()));
    }
  }

  [[nodiscard]] std::int64_t expert_of_pair(std::int64_t pair) const {
    return expert_of_entry[index(entry_of_pair[index(pair)])];
  }
  // As Route writes them.
  [[nodiscard]] std::vector<double> integers() const {
    std::vector<double> all;
    for (const auto& part : {entry_of_pair, pair_of_entry, end_of_expert}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

enum class Spread : std::uint8_t {
  even,      // over all experts
  together,  // all rows have the same choices; the other experts have no row
};

inline std::vector<double> logits_of(KernelCase& memory, const Layer& layer, Spread spread) {
  std::vector<double> logits = memory.random(layer.rows * layer.experts);
  for (std::int64_t i = 0; i < layer.rows * layer.experts; ++i) {
    logits[index(i)] *= 8;
    // The last `active` experts but one.
    const std::int64_t from_last = (layer.experts - i % layer.experts) % layer.experts;
    const bool favoured = from_last >= 2 && from_last < layer.active + 2;
    if (spread == Spread::together && favoured) logits[index(i)] += 20;
  }
  return memory.values(memory.put(Dtype::f32, logits));
}

// Calls f(slice) for slices of so many experts, the last one of what is left.
template <class F>
void each_slice(const Layer& layer, std::int64_t each, F&& f) {
  for (std::int64_t first = 0; first < layer.experts; first += each) {
    f(ExpertSlice{first, std::min(each, layer.experts - first)});
  }
}

// Memory, and choices of a layer in it.
struct ExpertsCase {
  ExpertsCase(const Layer& of, Spread spread)
      : layer(of), choices(layer, logits_of(memory, layer, spread)) {}
  // Sets what all ops after Route have.
  template <class Op>
  void set(Op& op) {
    layer.set(op);
    op.routes = memory.put(Dtype::i32, choices.integers());
  }
  Target target(Dtype dtype, std::int64_t count, bool accumulate) {
    return accumulate ? memory.accumulate(dtype, count) : memory.write(dtype, count);
  }
  Layer layer;
  KernelCase memory;
  Choices choices;
};

}  // namespace fpdt
