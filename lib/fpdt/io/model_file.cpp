// Decides which of the two forms a path holds, and reads the YAML form.
#include "fpdt/io/model_file.h"

#include <filesystem>

#include <fmt/format.h>

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_reader.h"
#include "fpdt/io/json.h"
#include "fpdt/io/safetensors.h"
#include "fpdt/io/yaml.h"

namespace fpdt {
namespace {

// The Hugging Face config that a path refers to; "" for a YAML file.
std::string config_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::path given(path);
  if (std::filesystem::is_directory(given, error)) return (given / "config.json").string();
  return given.extension() == ".json" ? path : "";
}

}  // namespace

ModelSpec load_model(const std::string& path, std::vector<std::string>* notes) {
  const std::string file = config_file(path);
  if (file.empty()) return parse_model(read_file(path, kYamlBytesMax), path);
  std::vector<std::string> ignored;
  return parse_hf_config(read_file(file, kConfigBytesMax), file,
                         notes != nullptr ? *notes : ignored);
}

std::string note_positions(const std::string& path, std::int64_t seq_len) {
  const std::string file = config_file(path);
  if (file.empty()) return "";
  FileFindings findings(file);
  const Node root = parse_json(read_file(file, kConfigBytesMax), findings);
  const Node* const of_text = text_config(root);
  const Node* const positions =
      (of_text != nullptr ? *of_text : root).find("max_position_embeddings");
  std::int64_t count = 0;
  if (positions == nullptr || !convert(*positions, count) || seq_len <= count) return "";
  return fmt::format(
      "{}: max_position_embeddings is {}: its weights may not have been trained on sequences of {}",
      file, count, seq_len);
}

std::string weights_beside(const std::string& path) {
  const std::string file = config_file(path);
  if (file.empty()) return "";
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const std::string directory = folder.empty() ? "." : folder;
  return has_safetensors(directory) ? directory : "";
}

ModelSpec parse_model(std::string_view text, std::string_view file_name) {
  FileFindings findings(file_name);
  const Node root = parse_yaml(text, findings);
  ModelSpec model;
  std::int64_t parameters = 0;
  Fields fields(root, "", findings);
  describe(model, fields);
  fields.required("parameters", parameters);
  fields.done();
  findings.raise();
  if (!fields.has("kv_heads")) model.kv_heads = model.heads;
  if (!fields.has("head_dim")) {
    model.head_dim = model.heads > 0 ? model.hidden / model.heads : 0;
    if (model.heads > 0 && model.hidden % model.heads != 0) {
      findings.add("Y106", *root.find("hidden"),
                   fmt::format("hidden: {} is not a multiple of heads ({}); give head_dim",
                               model.hidden, model.heads));
    }
  }
  findings.append(check(model));
  findings.raise();
  if (parameters != parameter_count(model)) {
    findings.add("Y106", *root.find("parameters"),
                 fmt::format("parameters: the file says {}, its sizes make {}", parameters,
                             parameter_count(model)));
  }
  findings.raise();
  return model;
}

}  // namespace fpdt
