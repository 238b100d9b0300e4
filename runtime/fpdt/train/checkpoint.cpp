// Writes and reads the files of a checkpoint.
#include "fpdt/train/checkpoint.h"

#include <bit>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_model_writer.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/io/json.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/safetensors_writer.h"
#include "fpdt/train/checkpoint_directory.h"
#include "fpdt/train/states.h"

namespace fpdt {
namespace {

constexpr std::int64_t kFormat = 2;  // format 1 had no checksums
constexpr std::string_view kBeforeChecksum = ",\"checksum\":\"";

// The contents of trainer.json. `model` and `states` are the checksums of the headers of the two
// other files; each header holds the checksums of its tensors.
struct TrainerFile {
  Progress progress;
  std::string model, states;  // "" in format 1
};

std::string print_progress(const TrainerFile& file) {
  const Progress& progress = file.progress;
  const std::string text = fmt::format(
      "{{\"fpdt_checkpoint\":{},\"step\":{},\"cursor\":{},\"seed\":\"{}\",\"schedule\":{},"
      "\"ranks\":{},\"model\":\"{}\",\"states\":\"{}\"{}",
      kFormat, progress.step, progress.cursor, progress.seed, json_string(progress.schedule),
      progress.ranks, file.model, file.states,
      progress.course.empty() ? "" : fmt::format(",\"course\":{}", progress.course));
  return fmt::format("{}{}{}\"}}\n", text, kBeforeChecksum, checksum_digits(checksum(text)));
}

// Compares trainer.json with its own checksum: a changed digit of the cursor would give another
// run.
void require_intact(std::string_view text, const std::string& file_name) {
  const std::size_t at = text.rfind(kBeforeChecksum);
  if (at == std::string_view::npos) return;
  const std::string expected = checksum_digits(checksum(text.substr(0, at)));
  if (text.substr(at + kBeforeChecksum.size()).starts_with(expected)) return;
  throw InputError(fmt::format(
      "{}: does not match its checksum: it was damaged, or edited (if edited, remove the "
      "checksum from it) [T104]",
      file_name));
}

TrainerFile parse_progress(const std::string& text, const std::string& file_name) {
  require_intact(text, file_name);
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings);
  TrainerFile file;
  Progress& progress = file.progress;
  std::int64_t format = 0;
  std::string seed, sum;
  Fields fields(root, "", findings);
  fields.required("fpdt_checkpoint", format);
  fields.required("step", progress.step);
  fields.required("cursor", progress.cursor);
  fields.required("seed", seed);
  fields.required("schedule", progress.schedule);
  fields.required("ranks", progress.ranks);
  fields.optional("model", file.model);
  fields.optional("states", file.states);
  fields.optional("checksum", sum);
  if (const Node* const course = fields.find("course")) progress.course = json_text(*course);
  fields.done();
  findings.raise();
  if (format < 1 || format > kFormat) {
    throw InputError(fmt::format("{}: expected a checkpoint of format 1 to {}, found {}", file_name,
                                 kFormat, format));
  }
  const bool digits = !seed.empty() && seed.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || seed.size() > 19 || progress.step < 0 || progress.cursor < 0) {
    throw InputError(
        fmt::format("{}: step, cursor and seed must be counts of 0 or more", file_name));
  }
  progress.seed = std::stoull(seed);
  return file;
}

// One line for each field of the mathematics in which the two models differ.
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

bool is_finite(float value) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  return (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
}

// "moment1 of embed.weight: element 3 is nan", or "". The first pass has no branches, for speed.
std::string non_finite(std::span<const float> values, std::string_view name) {
  bool all_finite = true;
  for (const float value : values) all_finite &= is_finite(value);
  for (std::size_t i = 0; !all_finite && i < values.size(); ++i) {
    if (is_finite(values[i])) continue;
    return fmt::format("{}: element {} is {}", name, i,
                       std::isnan(values[i]) ? "nan"
                       : values[i] > 0       ? "inf"
                                             : "-inf");
  }
  return {};
}

// Returns the values read from `path`. Throws InputError when one is not finite.
std::vector<float> finite(std::vector<float> values, std::string_view name,
                          const std::string& path) {
  const std::string found = non_finite(values, name);
  if (found.empty()) return values;
  throw InputError(
      fmt::format("{}: {}; training cannot continue from it; use an earlier one", path, found));
}

// Returns a tensor to save. Throws NumericError when a value is not finite.
std::vector<float> finite_tensor(const Trainer& trainer, const std::string& name,
                                 std::string_view kind) {
  std::vector<float> values = trainer.tensor(name, kind);
  const std::string found = non_finite(values, fmt::format("{} of {}", kind, name));
  if (found.empty()) return values;
  throw NumericError(
      fmt::format("step {}: {}, so it is not saved. Lower the learning rate or "
                  "lengthen the warm-up",
                  trainer.steps_done(), found));
}

// The name of a tensor in the state file.
std::string stored(std::string_view kind, std::string_view tensor) {
  return fmt::format("{}.{}", kind, tensor);
}

std::uint64_t write_states(const std::string& path, const Trainer& trainer) {
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
  for (const Row& row : rows) writer.write_f32(finite_tensor(trainer, row.tensor, row.kind));
  return writer.commit();
}

std::vector<float> read_weight(const HfWeights& weights, const TensorSpec& spec) {
  std::vector<float> values;
  weights.stream(spec.name, [&](std::int64_t, std::span<const float> piece) {
    values.insert(values.end(), piece.begin(), piece.end());
  });
  return values;
}

// Returns the values of an entry of the state file. Throws InputError when it is missing or has the
// wrong shape.
std::vector<float> read_stored(const SafetensorsFile& file, std::string_view kind,
                               const TensorSpec& spec) {
  const std::string name = stored(kind, spec.name);
  const SafetensorsEntry* const entry = file.find(name);
  if (entry == nullptr || entry->shape != spec.shape) {
    throw InputError(
        fmt::format("{}: {} is {}; the checkpoint is of another model, or is incomplete",
                    file.path(), name, entry == nullptr ? "missing" : "of another shape"));
  }
  std::vector<float> values;
  file.stream_f32(name, [&](std::int64_t, std::span<const float> piece) {
    values.insert(values.end(), piece.begin(), piece.end());
  });
  return finite(std::move(values), name, file.path());
}

// While a checkpoint is being replaced, a reader may find files of two different ones.
void require_checksum(const std::string& found, const std::string& expected,
                      const std::string& path, const std::string& trainer) {
  if (expected.empty() || found == expected) return;
  throw InputError(fmt::format(
      "{}: its header has the checksum {}, but {} says {}: it was damaged, belongs to another "
      "checkpoint, or is being saved right now [T104]",
      path, found, trainer, expected));
}

TrainerFile read_trainer_file(const std::string& given) {
  const std::string file = CheckpointDirectory::file(given, "trainer.json");
  if (!exists(file)) {
    throw InputError(
        fmt::format("{}: no trainer.json, so this is not a checkpoint of fpdt-run; to start from "
                    "a model's weights, use --init",
                    given));
  }
  return parse_progress(read_file(file, kTrainerFileMax), file);
}

Progress load_files(const std::string& given, Trainer& trainer) {
  const ModelSpec& model = trainer.problem().model;
  const auto file = [&](const char* name) { return CheckpointDirectory::file(given, name); };
  const std::string trainer_file = file("trainer.json");
  const TrainerFile made = read_trainer_file(given);
  require_same_model(file("config.json"), model);
  const std::string model_file = file("model.safetensors");
  const HfWeights weights(SafetensorsSet(model_file), model);
  require_checksum(checksum_digits(SafetensorsFile(model_file).header_checksum()), made.model,
                   model_file, trainer_file);
  const SafetensorsFile states(file("fpdt_state.safetensors"));
  require_checksum(checksum_digits(states.header_checksum()), made.states, states.path(),
                   trainer_file);
  for (const TensorSpec& spec : model_tensors(model)) {
    // The weight is read even if its master replaces it, because reading compares the checksum.
    std::vector<float> weight = finite(read_weight(weights, spec), spec.name, model_file);
    if (states.find(stored("master", spec.name)) != nullptr) {
      weight = read_stored(states, "master", spec);
    }
    trainer.set_tensor(spec.name, "weight", weight);
    for (const char* kind : {"moment1", "moment2"}) {
      trainer.set_tensor(spec.name, kind, read_stored(states, kind, spec));
    }
  }
  trainer.set_steps_done(made.progress.step);
  return made.progress;
}

// Calls `load`, which reads the newest checkpoint. If that one is damaged, the error says how to go
// on from the one before it.
template <class Load>
Progress of_newest(const std::string& path, Load&& load) {
  try {
    return load();
  } catch (const InputError& error) {
    const std::string pending = CheckpointDirectory::pending(path);
    // An incomplete pending directory is being moved into DIR, and both hold parts of one
    // checkpoint.
    const bool has_one_before = exists(path + "/trainer.json");
    if (!CheckpointDirectory::is_whole(pending) || !has_one_before) throw;
    throw InputError(fmt::format("{}; to continue from the checkpoint before it, remove {}",
                                 error.what(), pending));
  }
}

}  // namespace

void save_checkpoint(CheckpointDirectory& directory, const Trainer& trainer,
                     const Progress& progress, const HfCompanions& companions) {
  const std::string stage = directory.begin();
  bool bf16 = false;
  for (const State& state : trainer.schedule().states) {
    if (state.kind != "parameter") continue;
    bf16 = trainer.schedule().buffers[static_cast<std::size_t>(state.buffer)].dtype == Dtype::bf16;
  }
  const ModelSpec& spec = trainer.problem().model;
  HfModelWriter writer(stage, spec, bf16 ? "BF16" : "F32", companions.config);
  for (const TensorSpec& tensor : model_tensors(spec)) {
    writer.write(finite_tensor(trainer, tensor.name, "parameter"));
  }
  const std::uint64_t model = writer.commit().front();
  const std::uint64_t states = write_states(stage + "/fpdt_state.safetensors", trainer);
  write_file_atomically(stage + "/trainer.json", print_progress({progress, checksum_digits(model),
                                                                 checksum_digits(states)}));
  for (const auto& [name, text] : companions.files) {
    const bool is_there = exists(fmt::format("{}/{}", directory.path(), name));
    if (!is_there) write_file_atomically(fmt::format("{}/{}", stage, name), text);
  }
  directory.finish();
}

void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress) {
  CheckpointDirectory directory(path);
  save_checkpoint(directory, trainer, progress, {});
  directory.confirm();
}

std::optional<std::int64_t> saved_step(const std::string& path) {
  const std::string trainer_file = path + "/trainer.json";
  try {
    if (!exists(trainer_file)) return {};
    return parse_progress(read_file(trainer_file, kTrainerFileMax), trainer_file).progress.step;
  } catch (const InputError&) {
    return {};  // a damaged file has no step
  }
}

Progress load_progress(const std::string& path) {
  return of_newest(path, [&] { return read_trainer_file(path).progress; });
}

Progress load_checkpoint(const std::string& path, Trainer& trainer) {
  return of_newest(path, [&] { return load_files(path, trainer); });
}

HfCompanions companions_of(const std::string& path) {
  const std::vector<std::string_view> ours(kCheckpointFiles.begin(), kCheckpointFiles.end());
  HfCompanions found = read_companions(path, ours);
  if (const std::string pending = CheckpointDirectory::pending(path); exists(pending)) {
    HfCompanions newer = read_companions(pending, ours);
    if (!newer.config.empty()) found.config = std::move(newer.config);
    found.files.merge(newer.files);
  }
  return found;
}

void load_weights(const std::string& path, Trainer& trainer) {
  const ModelSpec& model = trainer.problem().model;
  std::error_code ignored;
  if (exists(path) && !std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: expected a Hugging Face directory", path));
  }
  require_same_model(CheckpointDirectory::file(path, "config.json"), model);
  // The directory may also split its weights over several files.
  const std::string file = CheckpointDirectory::file(path, "model.safetensors");
  const HfWeights weights(SafetensorsSet(exists(file) ? file : path), model);
  trainer.set_parameters([&](const TensorSpec& spec) {
    return finite(read_weight(weights, spec), spec.name, exists(file) ? file : path);
  });
}

}  // namespace fpdt
