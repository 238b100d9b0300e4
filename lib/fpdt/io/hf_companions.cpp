// Selects the companion files.
#include "fpdt/io/hf_companions.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_reader.h"
#include "fpdt/io/json.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

// The largest tokenizers today have some 35 MB. Contents are held, since the directory may be gone
// when a checkpoint is saved.
constexpr std::int64_t kFileBytesMax = 64 << 20;
constexpr std::int64_t kAllBytesMax = 128 << 20;
constexpr std::size_t kFilesMax = 100;

constexpr std::array<std::string_view, 16> kWeights{
    ".safetensors", ".bin",  ".pt",        ".pth", ".ckpt", ".h5",     ".msgpack", ".gguf",
    ".ggml",        ".onnx", ".onnx_data", ".ot",  ".npz",  ".tflite", ".keras",   ".index.json"};

bool is_weights(std::string_view name) {
  return std::any_of(kWeights.begin(), kWeights.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

// Whether a config is for images as well: it would not fit weights of text.
bool is_of_images(std::string_view config) {
  FileFindings findings("config.json");
  return text_config(parse_json(config, findings)) != nullptr;
}

std::string config_of(const std::string& path) {
  std::string config = read_file(path, kConfigBytesMax);
  return is_of_images(config) ? std::string() : config;
}

}  // namespace

HfCompanions read_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  return {exists(path) ? config_of(path) : std::string(), {}, {}};
}

HfCompanions read_companions(const std::string& directory,
                             const std::vector<std::string_view>& not_these) {
  const auto path_of = [&](const std::string& name) { return directory + "/" + name; };
  HfCompanions found;
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    const bool is_other = name.starts_with('.') || is_weights(name) ||
                          std::find(not_these.begin(), not_these.end(), name) != not_these.end();
    if (!is_other && entry->is_regular_file(ignored)) names.push_back(name);
  }
  if (error) throw IoError(fmt::format("{}: cannot list: {}", directory, error.message()));
  std::sort(names.begin(), names.end());  // so that the same are left out everywhere
  std::int64_t room = kAllBytesMax;
  for (const std::string& name : names) {
    require_within_directory(path_of(name));
    if (name == "config.json") {
      found.config = config_of(path_of(name));
      continue;
    }
    const std::int64_t most = std::min(room, kFileBytesMax);
    if (found.files.size() == kFilesMax || RandomAccessFile(path_of(name)).size() > most) {
      found.left_out.push_back(name);
      continue;
    }
    found.files[name] = read_file(path_of(name), most);
    room -= std::ssize(found.files[name]);
  }
  return found;
}

std::string config_for_weights(std::string_view text, std::string_view dtype) {
  const std::string_view word = dtype == "BF16" ? "bfloat16" : "float32";
  FileFindings findings("config.json");
  Node root = parse_json(text, findings);
  findings.raise();
  // transformers before version 5 wrote torch_dtype; version 5 reads both keys.
  bool is_there = false;
  bool is_same = true;
  for (Node& item : root.items) {
    if (item.key != "dtype" && item.key != "torch_dtype") continue;
    is_there = true;
    is_same = is_same && item.kind == NodeKind::text && item.text == word;
    item.kind = NodeKind::text;
    item.text = word;
  }
  const auto quantised = [](const Node& item) { return item.key == "quantization_config"; };
  const bool decoded = std::erase_if(root.items, quantised) > 0;
  if (is_there && is_same && !decoded) return std::string(text);
  if (!is_there) {
    Node& added = root.items.emplace_back();
    added.key = "dtype";
    added.kind = NodeKind::text;
    added.text = word;
  }
  std::string lines;
  for (const Node& item : root.items) {
    lines += fmt::format("{}\n  {}: {}", lines.empty() ? "" : ",", json_string(item.key),
                         json_text(item));
  }
  return fmt::format("{{{}\n}}\n", lines);
}

}  // namespace fpdt
