// Checkpoints in and out.
#include "fpdt/train/checkpoint.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/io/json.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/safetensors.h"
#include "fpdt/train/states.h"

namespace fpdt {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::int64_t kTrainerFileMax = 1 << 20;

std::string state_file(const std::string& path) { return path + "/fpdt_state.safetensors"; }
std::string trainer_file(const std::string& path) { return path + "/trainer.json"; }

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string print_progress(const Progress& progress) {
  return fmt::format(
      "{{\"fpdt_checkpoint\":{},\"step\":{},\"cursor\":{},\"seed\":\"{}\",\"schedule\":{},"
      "\"ranks\":{}}}\n",
      kFormat, progress.step, progress.cursor, progress.seed, json_string(progress.schedule),
      progress.ranks);
}

Progress parse_progress(const std::string& text, const std::string& file_name) {
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings);
  Progress progress;
  std::int64_t format = 0;
  std::string seed;
  Fields fields(root, "", findings);
  fields.required("fpdt_checkpoint", format);
  fields.required("step", progress.step);
  fields.required("cursor", progress.cursor);
  fields.required("seed", seed);
  fields.required("schedule", progress.schedule);
  fields.required("ranks", progress.ranks);
  fields.done();
  findings.raise();
  if (format != kFormat) {
    throw InputError(fmt::format("{}: expected a checkpoint of format {}, found {}", file_name,
                                 kFormat, format));
  }
  const bool digits = !seed.empty() && seed.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || seed.size() > 19 || progress.step < 0 || progress.cursor < 0) {
    throw InputError(
        fmt::format("{}: step, cursor and seed must be counts of 0 or more", file_name));
  }
  progress.seed = std::stoull(seed);
  return progress;
}

// What the two models disagree on, where it bears on the mathematics.
std::string difference(const ModelSpec& ours, const ModelSpec& theirs) {
  std::string text;
  const auto compare = [&](const char* field, const auto& a, const auto& b) {
    if (a != b) text += fmt::format("\n  {}: the schedule has {}, the directory {}", field, a, b);
  };
  compare("layers", ours.layers, theirs.layers);
  compare("hidden", ours.hidden, theirs.hidden);
  compare("heads", ours.heads, theirs.heads);
  compare("kv_heads", ours.kv_heads, theirs.kv_heads);
  compare("head_dim", ours.head_dim, theirs.head_dim);
  compare("feed_forward", ours.feed_forward, theirs.feed_forward);
  compare("vocabulary", ours.vocabulary, theirs.vocabulary);
  compare("norm", word(ours.norm), word(theirs.norm));
  compare("norm_epsilon", ours.norm_epsilon, theirs.norm_epsilon);
  compare("activation", word(ours.activation), word(theirs.activation));
  compare("qkv_bias", ours.qkv_bias, theirs.qkv_bias);
  compare("bias", ours.bias, theirs.bias);
  compare("qk_norm", ours.qk_norm, theirs.qk_norm);
  compare("parallel_residual", ours.parallel_residual, theirs.parallel_residual);
  compare("learned_positions", ours.learned_positions, theirs.learned_positions);
  compare("rotary_dim", ours.rotary_dim(), theirs.rotary_dim());
  compare("tied_embeddings", ours.tied_embeddings, theirs.tied_embeddings);
  if (ours.rotary_dim() == 0) return text;
  compare("rotary.magnitude", ours.rotary.magnitude, theirs.rotary.magnitude);
  compare("rotary.theta", ours.rotary.theta, theirs.rotary.theta);
  compare("rotary.factor", ours.rotary.factor, theirs.rotary.factor);
  if (ours.rotary.factor == 1) return text;
  compare("rotary.scaling", word(ours.rotary.scaling), word(theirs.rotary.scaling));
  if (ours.rotary.scaling == RotaryScaling::linear) return text;
  compare("rotary.low_frequency_factor", ours.rotary.low_frequency_factor,
          theirs.rotary.low_frequency_factor);
  compare("rotary.high_frequency_factor", ours.rotary.high_frequency_factor,
          theirs.rotary.high_frequency_factor);
  compare("rotary.original_positions", ours.rotary.original_positions,
          theirs.rotary.original_positions);
  return text;
}

void require_same_model(const std::string& path, const ModelSpec& model) {
  const std::string found = difference(model, load_model(path));
  if (!found.empty()) {
    throw InputError(
        fmt::format("{}: holds another model than the schedule trains:{}", path, found));
  }
}

// Names of one tensor in the state file.
std::string stored(std::string_view kind, std::string_view tensor) {
  return fmt::format("{}.{}", kind, tensor);
}

void write_states(const std::string& path, const Trainer& trainer) {
  struct Row {
    std::string tensor, kind;
  };
  std::vector<Row> rows;
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& spec : model_tensors(trainer.problem().model)) {
    for (const char* kind : {"master", "moment1", "moment2"}) {
      if (find_state(trainer.schedule(), spec.name, kind) == nullptr) continue;
      rows.push_back({spec.name, kind});
      entries.push_back({stored(kind, spec.name), "F32", spec.shape});
    }
  }
  SafetensorsWriter writer(path, std::move(entries), {{"format", "fpdt"}});
  for (const Row& row : rows) writer.write_f32(trainer.tensor(row.tensor, row.kind));
  writer.commit();
}

// The values of an entry of the state file; InputError when it is missing or mis-shaped.
std::vector<float> read_stored(const SafetensorsFile& file, std::string_view kind,
                               const TensorSpec& spec) {
  const std::string name = stored(kind, spec.name);
  const SafetensorsEntry* const entry = file.find(name);
  if (entry == nullptr || entry->shape != spec.shape) {
    throw InputError(fmt::format("{}: {} is {}; the checkpoint is of another model or incomplete",
                                 file.path(), name,
                                 entry == nullptr ? "missing" : "of another shape"));
  }
  std::vector<float> values(static_cast<std::size_t>(spec.elements()));
  file.read_f32(name, 0, values);
  return values;
}

// Nothing is at `path`, or a checkpoint.
void require_replaceable(const std::string& path) {
  std::error_code ignored;
  const auto found = std::filesystem::symlink_status(path, ignored);
  if (std::filesystem::exists(found) && !exists(trainer_file(path))) {
    throw InputError(
        fmt::format("{}: exists and is not a checkpoint; name a directory that does not", path));
  }
}

}  // namespace

void require_saveable(const std::string& path, const ModelSpec& model) {
  static_cast<void>(hf_family(model));
  require_replaceable(path);
  const StagedDirectory attempt(path);
}

void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress) {
  const ModelSpec& model = trainer.problem().model;
  require_replaceable(path);
  StagedDirectory directory(path);
  bool bf16 = false;
  for (const State& state : trainer.schedule().states) {
    if (state.kind != "parameter") continue;
    bf16 = trainer.schedule().buffers[static_cast<std::size_t>(state.buffer)].dtype == Dtype::bf16;
  }
  write_hf_model(directory.stage(), model, bf16 ? "BF16" : "F32",
                 [&](const std::string& name) { return trainer.tensor(name, "parameter"); });
  write_states(state_file(directory.stage()), trainer);
  write_file_atomically(trainer_file(directory.stage()), print_progress(progress));
  directory.commit();
}

Progress load_checkpoint(const std::string& given, Trainer& trainer) {
  const std::string path = StagedDirectory::find(given);
  const ModelSpec& model = trainer.problem().model;
  if (!exists(trainer_file(path))) {
    throw InputError(
        fmt::format("{}: no trainer.json, so this is no checkpoint of fpdt-run; to start from "
                    "a model's weights use --init",
                    path));
  }
  require_same_model(path, model);
  const Progress progress =
      parse_progress(read_file(trainer_file(path), kTrainerFileMax), trainer_file(path));
  const HfWeights weights(path, model);
  const SafetensorsFile states(state_file(path));
  for (const TensorSpec& spec : model_tensors(model)) {
    const bool master = states.find(stored("master", spec.name)) != nullptr;
    trainer.set_tensor(spec.name, "weight",
                       master ? read_stored(states, "master", spec) : weights.read(spec.name));
    for (const char* kind : {"moment1", "moment2"}) {
      trainer.set_tensor(spec.name, kind, read_stored(states, kind, spec));
    }
  }
  trainer.set_steps_done(progress.step);
  return progress;
}

void load_weights(const std::string& path, Trainer& trainer) {
  const ModelSpec& model = trainer.problem().model;
  std::error_code ignored;
  if (exists(path) && !std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: expected a Hugging Face directory", path));
  }
  require_same_model(path, model);
  const HfWeights weights(path, model);
  trainer.set_parameters([&](const TensorSpec& spec) { return weights.read(spec.name); });
}

}  // namespace fpdt
