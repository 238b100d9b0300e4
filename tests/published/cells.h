// Published measurements, and what fpdt predicts for the same runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/io/tree.h"
#include "fpdt/plan/methods/published.h"

namespace fpdt::test {

constexpr double kGiB = 1 << 30;

// One measurement: a method, a model, a machine and a length.
struct Cell {
  std::string panel;
  bool fitted = false;  // a constant was fitted to its panel
  const Method* method = nullptr;
  std::string model, cluster;
  std::int64_t vocabulary = 0;  // 0: the model's
  std::int64_t zero = 3;        // ZeRO stage
  bool plain = false;           // without activation checkpointing
  bool offload = false;         // layer inputs go to pinned host memory
  std::int64_t loss_rows = 0;   // of a tile of the loss; 0: the method's
  std::int64_t seq_len = 0;
  bool runs = true;         // false: the source says that it is out of memory
  double value = 0;         // MFU in percent over the full square, or a speed
  bool is_speed = false;    // tokens per second and GPU
  double device_bytes = 0;  // 0: not published
};

// All cells of one source.
struct Source {
  std::string name, text, read;
  std::vector<Cell> cells;
};

// A cell whose prediction is known to differ.
struct Miss {
  std::string panel, method, what, why;  // what: mfu, fits or memory
  std::int64_t seq_len = 0;
};

struct Predicted {
  Usage usage;
  bool fits = false;
  double published = 0;  // MFU in percent over the full square; 0: out of memory
  double mfu = 0;        // at typical rates
  double slow_mfu = 0, fast_mfu = 0;
};

// A file of this folder, and the text of a key; empty: it has none.
Node load(std::string_view name);
std::string text_of(const Node& node, std::string_view key);

std::vector<Source> load_sources();
std::vector<Miss> load_misses();
// nullptr: none is known.
const Miss* find_miss(const std::vector<Miss>& misses, const Cell& cell, std::string_view what);

Problem question(const Cell& cell);
// The published strategy in the configuration of the cell.
Strategy strategy_of(const Cell& cell, const Problem& problem);
Predicted predict(const Cell& cell);

}  // namespace fpdt::test
