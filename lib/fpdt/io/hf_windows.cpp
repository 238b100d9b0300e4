// Reads which layers see a window of tokens.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/io/hf_reader.h"

namespace fpdt {
namespace {

// Whether layers see a window, if the config lists them; else empty.
std::vector<bool> read_layer_types(ConfigReader& config, const ModelSpec& model) {
  std::vector<bool> windowed;
  const Node* types = config.find("layer_types");
  if (types == nullptr) return windowed;
  for (const Node& item : types->items) {
    if (item.text != "full_attention" && item.text != "sliding_attention") {
      config.refuse("layer_types", fmt::format("\"{}\" is not supported", item.text));
      return {};
    }
    windowed.push_back(item.text == "sliding_attention");
  }
  if (std::ssize(windowed) == model.layers) return windowed;
  config.refuse("layer_types",
                fmt::format("expected {} layers, found {}", model.layers, windowed.size()));
  return {};
}

// The kinds of layers that differ in their window alone, and the shortest pattern.
void set_kinds(ModelSpec& model, const std::vector<bool>& windowed, std::int64_t window) {
  const auto count = std::count(windowed.begin(), windowed.end(), true);
  if (count == 0 || count == std::ssize(windowed)) {
    model.kinds.front().window = count > 0 ? window : 0;
    return;
  }
  model.kinds.resize(2, model.kinds.front());
  model.kinds[0].name = "window";
  model.kinds[0].window = window;
  model.kinds[1].name = "full";
  const auto repeats = [&](std::int64_t period) {
    return std::equal(windowed.begin() + period, windowed.end(), windowed.begin());
  };
  std::int64_t period = 1;
  while (!repeats(period)) ++period;
  model.pattern.clear();
  for (std::int64_t layer = 0; layer < period; ++layer) {
    model.pattern.push_back(windowed[static_cast<std::size_t>(layer)] ? 0 : 1);
  }
}

}  // namespace

// Mistral and Phi have a window in all layers or in none, Qwen in those from max_window_layers on
// or in those that it lists. An explicit null means no window.
void read_windows(ConfigReader& config, std::string_view type, ModelSpec& model) {
  constexpr std::int64_t kStandard = 4096;
  const bool absent =
      !config.has("sliding_window") && (type == "mistral" || type.starts_with("qwen"));
  std::int64_t window = config.value("sliding_window", absent ? kStandard : 0);
  std::int64_t first = 0;  // layer with a window
  if (type.starts_with("qwen")) {
    if (!config.value("use_sliding_window", false)) window = 0;
    first = config.value("max_window_layers", std::int64_t{28});
  } else if (type == "llama" && window != 0) {
    return config.refuse("sliding_window", "llama has no windows, expected null");
  }
  if (window < 0) {
    return config.refuse("sliding_window", "expected a number of tokens");
  }
  if (model.layers < 1 || model.layers > kLayersMost) return;  // `check` refuses it
  std::vector<bool> windowed = read_layer_types(config, model);
  const bool listed = !windowed.empty();
  if (!listed) {
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      windowed.push_back(window > 0 && layer >= first);
    }
  }
  const auto count = std::count(windowed.begin(), windowed.end(), true);
  const bool some = count > 0 && count < std::ssize(windowed);
  if (count > 0 && window == 0) {
    return config.refuse("layer_types", "lists layers with windows, but there is no window");
  }
  if (!type.starts_with("qwen") && listed && (some || (count == 0 && window > 0))) {
    return config.refuse("layer_types", "disagrees with sliding_window");
  }
  set_kinds(model, windowed, window);
}

// Every `each`-th layer sees all tokens and the others a window, unless the config lists them.
// `standard` is the window of a config that leaves it out; an explicit null is refused. Returns
// whether the kinds of the model are set.
bool read_periodic_windows(ConfigReader& config, std::int64_t standard, std::int64_t each,
                           ModelSpec& model) {
  const bool null = config.has("sliding_window") && config.find("sliding_window") == nullptr;
  const std::int64_t window = null ? 0 : config.value("sliding_window", standard);
  if (window < 1 || each < 1) {
    config.refuse("sliding_window", "expected a number of tokens, and a pattern of layers");
    return false;
  }
  if (model.layers < 1 || model.layers > kLayersMost) return false;  // `check` refuses it
  std::vector<bool> windowed = read_layer_types(config, model);
  for (std::int64_t layer = std::ssize(windowed); layer < model.layers; ++layer) {
    windowed.push_back((layer + 1) % each != 0);
  }
  set_kinds(model, windowed, window);
  return true;
}

}  // namespace fpdt
