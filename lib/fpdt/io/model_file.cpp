// Which of the two forms a path holds, and the YAML form.
#include "fpdt/io/model_file.h"

#include <filesystem>

#include <fmt/format.h>

#include "fpdt/io/description.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/yaml.h"

namespace fpdt {
namespace {

constexpr std::int64_t kConfigBytesMax = 1 << 20;

}  // namespace

ModelSpec load_model(const std::string& path, std::vector<std::string>* notes) {
  std::error_code error;
  const std::filesystem::path given(path);
  const bool is_directory = std::filesystem::is_directory(given, error);
  if (!is_directory && given.extension() != ".json") {
    return parse_model(read_file(path, kYamlBytesMax), path);
  }
  const std::string file = is_directory ? (given / "config.json").string() : path;
  std::vector<std::string> ignored;
  return parse_hf_config(read_file(file, kConfigBytesMax), file,
                         notes != nullptr ? *notes : ignored);
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
                   fmt::format("hidden: {} is no multiple of heads ({}); give head_dim",
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
