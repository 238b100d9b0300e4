// Reads the files of measurements, and plans each run.
#include "cells.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/yaml.h"
#include "fpdt/plan/fit.h"

namespace fpdt::test {
namespace {

constexpr std::string_view kOutOfMemory = "out of memory";

std::int64_t tokens(const std::string& text) {
  const auto parsed = parse_tokens(text);
  if (!parsed) throw InputError(fmt::format("\"{}\" is no number of tokens", text));
  return *parsed;
}

const Node& list_of(const Node& root, std::string_view key) {
  const Node* found = root.find(key);
  if (found == nullptr) throw InputError(fmt::format("no {}", key));
  return *found;
}

// One cell for each length of a method.
void add_cells(std::vector<Cell>& cells, const Cell& like, const Node& panel) {
  const Node* values = panel.find(like.method->name);
  if (values == nullptr) return;
  const Node* memory = panel.find(fmt::format("{}_memory", like.method->name));
  for (const Node& value : values->items) {
    Cell cell = like;
    cell.seq_len = tokens(value.key);
    cell.runs = value.text != kOutOfMemory;
    if (cell.runs) cell.value = std::stod(value.text);
    const Node* bytes = memory == nullptr ? nullptr : memory->find(value.key);
    if (bytes != nullptr) cell.device_bytes = kGiB * std::stod(bytes->text);
    cells.push_back(cell);
  }
}

}  // namespace

Node load(std::string_view name) {
  const std::string path = fmt::format("{}/tests/published/{}.yaml", FPDT_SOURCE_DIR, name);
  FileFindings findings(path);
  Node root = parse_yaml(read_file(path, kYamlBytesMax), findings);
  findings.raise();
  return root;
}

std::string text_of(const Node& node, std::string_view key) {
  const Node* found = node.find(key);
  return found == nullptr ? "" : found->text;
}

std::vector<Source> load_sources() {
  constexpr std::array<std::string_view, 4> kNames{"fpdt-figure4", "fpdt-table", "upipe", "trl"};
  std::vector<Source> sources;
  for (const std::string_view name : kNames) {
    const Node root = load(name);
    Source& source = sources.emplace_back();
    source.name = name;
    source.text = text_of(root, "source");
    source.read = text_of(root, "read");
    for (const Node& panel : list_of(root, "panels").items) {
      Cell like;
      like.panel = text_of(panel, "name");
      like.model = text_of(panel, "model");
      like.cluster = text_of(panel, "cluster");
      like.fitted = text_of(panel, "fitted") == "true";
      like.is_speed = root.find("unit") != nullptr;
      like.plain = text_of(panel, "plain") == "true";
      like.offload = text_of(panel, "offload") == "true";
      if (panel.find("loss_rows") != nullptr) like.loss_rows = tokens(text_of(panel, "loss_rows"));
      if (panel.find("zero") != nullptr) like.zero = tokens(text_of(panel, "zero"));
      if (panel.find("vocabulary") != nullptr) {
        like.vocabulary = tokens(text_of(panel, "vocabulary"));
      }
      for (const Method* method : methods()) {
        like.method = method;
        add_cells(source.cells, like, panel);
      }
    }
  }
  return sources;
}

std::vector<Miss> load_misses() {
  std::vector<Miss> misses;
  const Node root = load("misses");
  for (const Node& one : list_of(root, "misses").items) {
    misses.push_back({text_of(one, "panel"), text_of(one, "method"), text_of(one, "what"),
                      text_of(one, "why"), tokens(text_of(one, "seq_len"))});
  }
  return misses;
}

const Miss* find_miss(const std::vector<Miss>& misses, const Cell& cell, std::string_view what) {
  for (const Miss& miss : misses) {
    if (miss.panel == cell.panel && miss.method == cell.method->name && miss.what == what &&
        miss.seq_len == cell.seq_len) {
      return &miss;
    }
  }
  return nullptr;
}

Problem question(const Cell& cell) {
  Problem problem;
  problem.model = load_model(fmt::format("{}/models/{}.yaml", FPDT_SOURCE_DIR, cell.model));
  if (cell.vocabulary > 0) problem.model.vocabulary = cell.vocabulary;
  problem.cluster =
      load_cluster(fmt::format("{}/configs/clusters/{}.yaml", FPDT_SOURCE_DIR, cell.cluster));
  problem.documents = problem.cluster.attention == AttentionKernels::own;  // as fpdt-plan chooses
  problem.seq_len = cell.seq_len;
  problem.device_budget = problem.cluster.device_memory;
  problem.host_budget = problem.cluster.host_available();
  return problem;
}

Strategy strategy_of(const Cell& cell, const Problem& problem) {
  Strategy strategy = cell.method->published(problem, 1);
  strategy.zero = cell.zero;
  // DeepSpeed's gradients have the format of the parameters. At stage 3 its users may choose, and
  // the sources do not say.
  if (cell.zero == 1 || cell.zero == 2) strategy.gradients = Storage::bf16;
  if (cell.plain) {
    strategy.layer_classes.front().recompute = Recompute::keep_all;
    strategy.layer_classes.front().keep.fill(1);
  }
  if (cell.offload) strategy = with_kept(strategy, TensorClass::layer_input, 0);
  if (cell.loss_rows > 0) strategy.tiles.loss_rows = cell.loss_rows;
  return canonical(problem, strategy);
}

Predicted predict(const Cell& cell) {
  const Problem problem = question(cell);
  const Plan plan = published_plan(problem, *cell.method, strategy_of(cell, problem)).plan;
  const auto& [slow, typical, fast] = plan.throughput;
  Predicted found;
  found.usage = plan.usage;
  found.fits = within(problem, plan.usage);
  found.mfu = 100 * typical.mfu_full;
  found.slow_mfu = 100 * slow.mfu_full;
  found.fast_mfu = 100 * fast.mfu_full;
  found.published =
      cell.is_speed ? cell.value * found.mfu / typical.tokens_per_second_per_gpu : cell.value;
  return found;
}

}  // namespace fpdt::test
