// Sharded weights: the index names the file of each tensor.
#include <filesystem>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/printable.h"
#include "fpdt/io/json.h"
#include "fpdt/io/safetensors.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kIndexBytesMax = 16 << 20;

// Throws when a name of the index is more than the name of a file.
void require_plain(const std::string& index, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find_first_of("/\\") == std::string::npos && printable(name) == name;
  if (plain) return;
  throw InputError(fmt::format("{}: weight_map: expected plain file names, found {}", index,
                               json_string(name.substr(0, 200))));
}

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kWeightsIndex = "model.safetensors.index.json";

// Throws; the message says which files are needed, and how to convert the older format.
[[noreturn]] void refuse_without_safetensors(const fs::path& directory) {
  std::error_code error;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!fs::exists(directory / name, error)) continue;
    throw InputError(
        fmt::format("{0}: has {1}, which is not read since such files can run code; expected "
                    "model.safetensors. To convert it: python3 -c 'from transformers import "
                    "AutoModelForCausalLM as M, AutoTokenizer as T; M.from_pretrained(\"{0}\", "
                    "dtype=\"auto\").save_pretrained(\"converted\"); "
                    "T.from_pretrained(\"{0}\").save_pretrained(\"converted\")'",
                    directory.string(), name));
  }
  throw IoError(fmt::format(
      "{}: no weights: expected model.safetensors or model.safetensors.index.json beside "
      "config.json",
      directory.string()));
}

}  // namespace

bool has_safetensors(const std::string& directory) {
  std::error_code error;
  return fs::exists(fs::path(directory) / kWeights, error) ||
         fs::exists(fs::path(directory) / kWeightsIndex, error);
}

SafetensorsSet::SafetensorsSet(const std::string& path) : path_(path) {
  const fs::path directory(path);
  const fs::path index = directory / kWeightsIndex;
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    files_.emplace_back(path);
  } else if (fs::exists(directory / kWeights, error)) {
    files_.emplace_back((directory / kWeights).string());
  } else if (fs::exists(index, error)) {
    read_index(index.string(),
               [&](const std::string& name) { return (directory / name).string(); });
    return;
  } else {
    refuse_without_safetensors(directory);
  }
  for (const SafetensorsEntry& entry : files_.front().entries()) file_of_[entry.name] = 0;
}

SafetensorsSet::SafetensorsSet(const std::string& index, const Locate& locate) : path_(index) {
  read_index(index, locate);
}

void SafetensorsSet::read_index(const std::string& path, const Locate& locate) {
  FileFindings findings(path);
  const Node root = parse_json(read_file(path, kIndexBytesMax), findings);
  Fields fields(root, "", findings);
  fields.find("metadata");
  const Node* map = fields.find("weight_map");
  fields.done();
  if (map == nullptr || map->kind != NodeKind::map) fields.missing("weight_map");
  findings.raise();
  std::map<std::string, std::size_t, std::less<>> opened;
  for (const Node& item : map->items) {
    std::string name;
    if (!convert(item, name)) fields.wrong(item, item.key, "a file name");
    findings.raise();
    if (!opened.contains(name)) {
      require_plain(path, name);
      const std::string located = locate(name);
      require_within_directory(located);
      opened[name] = files_.size();
      files_.emplace_back(located);
    }
    const std::size_t file = opened[name];
    if (files_[file].find(item.key) == nullptr) {
      findings.add("T102", item, fmt::format("{}: is not in {}", item.key, name));
    }
    file_of_[item.key] = file;
  }
  findings.raise();
}

std::vector<std::string> SafetensorsSet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const SafetensorsEntry* SafetensorsSet::find(std::string_view name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : files_[found->second].find(name);
}

const SafetensorsFile& SafetensorsSet::file_of(std::string_view name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    throw InputError(fmt::format("{}: no tensor \"{}\"", path_, name));
  }
  return files_[found->second];
}

}  // namespace fpdt
