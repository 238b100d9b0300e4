// The models, clusters and strategies that flags may name, as tables and as an object. The tables
// show what the object holds.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/units.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/strategy_file.h"

#include "common/command.h"
#include "common/share.h"
#include "plan/answer.h"
#include "plan/verbs.h"

namespace fpdt {
namespace {

Json model_json(const std::string& file) {
  const ModelSpec model = load_model(file);
  return {{"name", model.name},
          {"family", word(model.family)},
          {"layers", model.layers},
          {"pattern", pattern_in_words(model)},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"parameters", parameter_count(model)},
          {"active_parameters", active_parameter_count(model)},
          {"source", model.source}};
}

Json cluster_json(const std::string& file) {
  const ClusterSpec cluster = load_cluster(file);
  return {{"name", cluster.name},
          {"devices", cluster.devices()},
          {"nodes", cluster.nodes},
          {"device_memory_bytes", cluster.device_memory.value},
          {"host_memory_bytes_per_node", cluster.host_memory.value},
          {"peak_flops", cluster.rates.peak_flops},
          {"plan_only", cluster.plan_only.empty() ? Json() : Json(cluster.plan_only)},
          {"source", cluster.source}};
}

Json strategy_row_json(const std::string& name, const std::string& file) {
  const Strategy strategy = load_strategy(file);
  return {{"name", name},
          {"chunk_tokens", strategy.tiles.chunk_tokens},
          {"backward_order", word(strategy.tiles.backward_order)},
          {"optimizer_offload", strategy.offloads_states()}};
}

Json rows_of(Shelf shelf) {
  Json rows = Json::array();
  for (const std::string& name : shared_names(shelf)) {
    const std::string file = shared_file(shelf, name);
    rows.push_back(shelf == Shelf::models     ? model_json(file)
                   : shelf == Shelf::clusters ? cluster_json(file)
                                              : strategy_row_json(name, file));
    rows.back()["file"] = file;
  }
  return rows;
}

struct Column {
  std::string_view heading;
  std::function<std::string(const Json&)> cell;
};

// "8.03 B", as people name models.
std::string parameters_text(const Json& row) {
  const auto count = row["parameters"].get<double>();
  if (count >= 999.5e6) return fmt::format("{:.3g} B", 1e-9 * count);  // rounds to a billion
  return count >= 1e6 ? fmt::format("{:.3g} M", 1e-6 * count)
                      : fmt::format("{:.3g} K", 1e-3 * count);
}

// The first of the sources, why nothing runs there, and kinds of layers.
std::string source_text(const Json& row) {
  const auto all = row["source"].get<std::string>();
  const std::string first = all.substr(0, all.find_first_of(",;"));
  if (const std::string pattern = row.value("pattern", ""); !pattern.empty()) {
    return fmt::format("{}; {}", first, pattern);
  }
  const auto reason = row.find("plan_only");
  if (reason == row.end() || reason->is_null()) return first;
  return fmt::format("{}; plan only: {}", first, reason->get<std::string>());
}

std::vector<Column> columns_of(Shelf shelf) {
  const auto text = [](const char* key) {
    return [key](const Json& row) { return row[key].get<std::string>(); };
  };
  const auto number = [](const char* key) {
    return [key](const Json& row) { return fmt::format("{}", row[key].get<std::int64_t>()); };
  };
  const auto bytes = [](const char* key) {
    return [key](const Json& row) { return format_bytes(Bytes{row[key].get<std::int64_t>()}); };
  };
  const Column name{"", text("name")}, source{"source", source_text};
  if (shelf == Shelf::models) {
    return {name,
            {"parameters", parameters_text},
            {"layers", number("layers")},
            {"heads",
             [](const Json& row) {
               return fmt::format("{} / {}", row["heads"].get<std::int64_t>(),
                                  row["kv_heads"].get<std::int64_t>());
             }},
            {"family", text("family")},
            source};
  }
  if (shelf == Shelf::clusters) {
    return {name,
            {"GPUs", number("devices")},
            {"each", bytes("device_memory_bytes")},
            {"host", bytes("host_memory_bytes_per_node")},
            {"TFLOP/s",
             [](const Json& row) {
               return fmt::format("{:.4g}", 1e-12 * row["peak_flops"].get<double>());
             }},
            source};
  }
  return {name,
          {"chunk",
           [](const Json& row) { return format_tokens(row["chunk_tokens"].get<std::int64_t>()); }},
          {"backward", text("backward_order")}};
}

// Columns as wide as their longest cell. The last one is wrapped.
std::string table(std::string_view title, const Json& rows, const std::vector<Column>& columns) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns) lines[0].emplace_back(column.heading);
  lines[0][0] = title;
  for (const Json& row : rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const Column& column : columns) line.push_back(column.cell(row));
  }
  std::vector<std::size_t> widths(columns.size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string key = fmt::format("{:<{}}", line[0], widths[0]);
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {
      key += fmt::format("  {:>{}}", line[i], widths[i]);
    }
    text += wrapped(key, line.back(), key.size() + 1);
  }
  return text;
}

constexpr std::array<std::pair<std::string_view, Shelf>, 3> kShelves{
    {{"models", Shelf::models}, {"clusters", Shelf::clusters}, {"strategies", Shelf::strategies}}};

}  // namespace

Command declare_list(Options& options) {
  struct Flags {
    std::string what;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  options.value("WHAT", flags->what, "models, clusters or strategies; default: all")
      .one_of({"models", "clusters", "strategies"});
  options.flag("--json", flags->json, "Print one JSON object");
  return [flags] {
    Json object{{"schema", "fpdt.list/1"}};
    std::string text;
    for (const auto& [name, shelf] : kShelves) {
      if (!flags->what.empty() && flags->what != name) continue;
      const Json& rows = object[std::string(name)] = rows_of(shelf);
      text += (text.empty() ? "" : "\n") + table(name, rows, columns_of(shelf));
    }
    print_result(flags->json ? json_line(object) : text);
    return static_cast<int>(ExitCode::done);
  };
}

}  // namespace fpdt
