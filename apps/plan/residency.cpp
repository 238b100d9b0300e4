// Layers that are alike share a line, unless a segment begins.
#include "plan/residency.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/report/axis.h"
#include "fpdt/report/residency_svg.h"

#include "plan/answer.h"

namespace fpdt {
namespace {

// By kind: its name, and its window if it has one. Empty where all layers are of one kind.
std::vector<std::string> names_of_kinds(const ModelSpec& model) {
  std::vector<std::string> names;
  for (const LayerKind& kind : model.kinds) {
    names.push_back(kind.window > 0 ? fmt::format("{} ({})", kind.name, kind.window) : kind.name);
  }
  if (names.size() == 1) names.clear();
  return names;
}

// Layers in a row: alike, or of one segment, of which only the first stores its input.
struct Alike {
  std::int64_t first = 0, last = 0;
  LayerResidency of;  // of the first
};

// "52 window, 10 full"
std::string kinds_text(const ModelSpec& model, const Alike& layers) {
  std::vector<std::int64_t> counts(model.kinds.size());
  for (std::int64_t layer = layers.first; layer <= layers.last; ++layer) {
    ++counts[static_cast<std::size_t>(model.kind_at(layer))];
  }
  std::string text;
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[kind], model.kinds[kind].name);
  }
  return text;
}

std::vector<Alike> alike_layers(const Problem& problem, const Strategy& strategy) {
  std::vector<Alike> all;
  std::int64_t number = 0;
  for (LayerResidency& layer : residencies(problem, strategy)) {
    const bool single = layer.place.length == 1;
    const bool same = !all.empty() && all.back().of.output == layer.output &&
                      (single ? all.back().of.input == layer.input : !layer.place.first()) &&
                      (all.back().of.place.length == 1) == single;
    if (same) {
      all.back().last = number;
    } else {
      all.push_back({number, number, std::move(layer)});
    }
    ++number;
  }
  return all;
}

// "host", or "20 again, 38 host, 6 device".
std::string runs_text(const std::vector<ChunkRun>& runs) {
  if (runs.size() == 1) return std::string(word(runs.front().fate));
  std::string text;
  for (const ChunkRun& run : runs) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", run.chunks, word(run.fate));
  }
  return text;
}

std::string input_text(const Alike& layers) {
  std::string text = runs_text(layers.of.input);
  const bool others = layers.of.place.length > 1 && layers.last > layers.first;
  if (others && layers.of.place.first()) {
    text = fmt::format("of {}: {}; others again", layers.first, text);
  }
  return text;
}

Json runs_json(const std::vector<ChunkRun>& runs) {
  Json list = Json::array();
  for (const ChunkRun& run : runs) {
    list.push_back({{"chunks", run.chunks}, {"fate", word(run.fate)}});
  }
  return list;
}

}  // namespace

std::string residency_text(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  std::string text = fmt::format(
      "\nfrom forward to backward, by chunks ({} of {}{} tokens): on the host, on the device, or "
      "again\n",
      shape.chunks, shape.ragged() ? "up to " : "", format_tokens(shape.chunk_rows));
  const bool kinds = problem.model.kinds.size() > 1;
  const auto line = [&](std::string_view layers, std::string_view of_kinds, std::string_view input,
                        std::string_view output) {
    text += fmt::format("{:<7} ", layers);
    if (kinds) text += fmt::format("{:<23} ", of_kinds);
    text += fmt::format("{:<39} {}\n", input, output);
  };
  line("layers", "kinds", "input", "attention output");
  for (const Alike& one : alike_layers(problem, strategy)) {
    line(one.first == one.last ? fmt::format("{}", one.first)
                               : fmt::format("{}-{}", one.first, one.last),
         kinds_text(problem.model, one), input_text(one), runs_text(one.of.output));
  }
  return text;
}

Json residency_json(const Problem& problem, const Strategy& strategy) {
  Json list = Json::array();
  for (const LayerResidency& layer : residencies(problem, strategy)) {
    list.push_back({{"segment", layer.place.segment},
                    {"input", runs_json(layer.input)},
                    {"attention_output", runs_json(layer.output)}});
    const std::string& kind = problem.model.kinds[index(layer.kind)].name;
    if (!kind.empty()) list.back()["kind"] = kind;
  }
  return list;
}

void draw_residency(const std::string& path, const Problem& problem, const Plan& plan,
                    const PictureFlags& flags) {
  ResidencyPicture picture;
  picture.title = fmt::format("{}, {} tokens on {}", problem.model.name,
                              format_tokens(problem.seq_len), problem.cluster.name);
  picture.lines = {fmt::format(
      "What becomes of each layer's input and attention output from forward to backward. A step "
      "takes {}, {:.1f} % causal MFU",
      format_nanoseconds(plan.simulation.nanoseconds),
      100 * plan.throughput[static_cast<std::size_t>(RateEnd::typical)].mfu_causal)};
  picture.layers = residencies(problem, plan.strategy);
  picture.chunk_tokens = geometry(problem, plan.strategy).chunk_rows;
  picture.tokens = problem.seq_len;
  picture.kinds = names_of_kinds(problem.model);
  write_picture(path, picture, flags);
}

}  // namespace fpdt
