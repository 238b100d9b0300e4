// Loads checkpoints and weights. Every process reads what its ranks hold. One of them reads all of
// a tensor, and compares its checksum.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/io/safetensors_writer.h"
#include "fpdt/train/checkpoint.h"
#include "fpdt/train/finite.h"
#include "fpdt/train/same_model.h"
#include "fpdt/train/states.h"

namespace fpdt {
namespace {

// A tensor of a file, and the states that it sets.
struct StoredTensor {
  std::string path, name;  // for messages
  std::int64_t elements = 0;
  StateEntries states;  // none: only its checksum is compared
  std::function<void(std::int64_t first, std::span<float> values)> read;
  std::function<void(const TensorSink&)> stream;  // all of it, and its checksum
  std::function<void()> verify;
};

// Sets `values`, which were read. Throws InputError when one is not finite.
void set(const Ranks& ranks, const StoredTensor& tensor, std::int64_t first,
         std::span<const float> values) {
  const std::string found = non_finite(values, first, tensor.name);
  if (!found.empty()) {
    throw InputError(fmt::format("{}: {}; training cannot continue from it; use an earlier one",
                                 tensor.path, found));
  }
  write_range(ranks, tensor.states, first, values);
}

void read_held(const Ranks& ranks, const StoredTensor& tensor) {
  std::vector<float> values(index(std::min(tensor.elements, kStreamElements)));
  for (const ElementRange& range : held_ranges(ranks, tensor.states)) {
    for (std::int64_t first = range.first; first < range.end; first += kStreamElements) {
      const auto piece =
          std::span(values).first(index(std::min(range.end - first, kStreamElements)));
      tensor.read(first, piece);
      set(ranks, tensor, first, piece);
    }
  }
}

// Sets the states of this process. Which process reads all of a tensor follows from the elements
// before it, so that each does its share.
void read_all(const Ranks& ranks, const std::vector<StoredTensor>& tensors) {
  const Place& place = ranks.world().place();
  std::int64_t all = 0, before = 0;
  for (const StoredTensor& tensor : tensors) all = add(all, tensor.elements);
  for (const StoredTensor& tensor : tensors) {
    const bool compares = mul(before, place.processes) / all == place.process;
    before += tensor.elements;
    if (!compares) {
      read_held(ranks, tensor);
    } else if (tensor.states.empty()) {
      tensor.verify();
    } else {
      tensor.stream([&](std::int64_t first, std::span<const float> values) {
        set(ranks, tensor, first, values);
      });
    }
  }
}

StoredTensor stored_weight(const HfWeights& weights, const TensorSpec& spec, StateEntries states) {
  return {weights.stored().path(),
          spec.name,
          spec.elements(),
          std::move(states),
          [&weights, name = spec.name](std::int64_t first, std::span<float> values) {
            weights.read(name, first, values);
          },
          [&weights, name = spec.name](const TensorSink& sink) { weights.stream(name, sink); },
          [&weights, name = spec.name] { weights.verify(name); }};
}

// Throws InputError when the tensor is missing or has the wrong shape.
StoredTensor stored_state(const SafetensorsSet& files, std::string_view kind,
                          const TensorSpec& spec, StateEntries states) {
  const std::string name = stored_name(kind, spec.name);
  const SafetensorsEntry* const entry = files.find(name);
  if (entry == nullptr || entry->shape != spec.shape) {
    throw InputError(
        fmt::format("{}: {} is {}; the checkpoint is of another model, or is incomplete",
                    files.path(), name, entry == nullptr ? "missing" : "of another shape"));
  }
  const SafetensorsFile& file = files.file_of(name);
  return {file.path(),
          name,
          spec.elements(),
          std::move(states),
          [&file, name](std::int64_t first, std::span<float> values) {
            file.read_f32(name, first, values);
          },
          [&file, name](const TensorSink& sink) { file.stream_f32(name, sink); },
          [&file, name] { file.verify(name); }};
}

TrainerFile read_trainer_file(const std::string& given) {
  const std::string file = CheckpointDirectory::file(given, "trainer.json");
  if (!exists(file)) {
    throw InputError(
        fmt::format("{}: no trainer.json, so this is not a checkpoint of fpdt-run; to start from "
                    "a model's weights, use --init",
                    given));
  }
  return parse_trainer_file(read_file(file, kTrainerFileMax), file);
}

// Opens the files of weights or states that trainer.json counts. `sums` are the checksums of their
// headers. Throws InputError when a file is of another checkpoint.
SafetensorsSet open_files(const std::string& given, std::string_view stem,
                          const std::vector<std::string>& sums) {
  const auto locate = [&](const std::string& name) {
    return CheckpointDirectory::file(given, name);
  };
  const std::vector<std::string> names = shard_names(stem, sums.size());
  SafetensorsSet set = names.size() == 1 ? SafetensorsSet(locate(names.front()))
                                         : SafetensorsSet(locate(index_name(stem)), locate);
  const std::string trainer = locate("trainer.json");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string path = locate(names[i]);
    const auto file =
        std::find_if(set.files().begin(), set.files().end(),
                     [&](const SafetensorsFile& opened) { return opened.path() == path; });
    if (file == set.files().end()) {
      throw InputError(
          fmt::format("{}: names no tensor of {}, one of the {} files that {} counts: "
                      "it was damaged, or belongs to another checkpoint [T104]",
                      set.path(), names[i], names.size(), trainer));
    }
    // While a checkpoint is being replaced, a reader may find files of two different ones.
    const std::string found = checksum_digits(file->header_checksum());
    if (sums[i].empty() || found == sums[i]) continue;
    throw InputError(fmt::format(
        "{}: its header has the checksum {}, but {} says {}: it was damaged, belongs to another "
        "checkpoint, or is being saved right now [T104]",
        path, found, trainer, sums[i]));
  }
  return set;
}

Progress load_files(const std::string& given, Trainer& trainer) {
  const ModelSpec& model = trainer.problem().model;
  const Schedule& schedule = trainer.schedule();
  const TrainerFile made = read_trainer_file(given);
  require_same_model(CheckpointDirectory::file(given, "config.json"), model);
  const HfWeights weights(open_files(given, kModelStem, made.model), model);
  const SafetensorsSet states = open_files(given, kStatesStem, made.states);
  std::vector<StoredTensor> tensors;
  for (const TensorSpec& spec : model_tensors(model)) {
    const bool has_master = states.find(stored_name("master", spec.name)) != nullptr;
    StateEntries weight = weight_states(schedule, spec.name);
    tensors.push_back(stored_weight(weights, spec, has_master ? StateEntries() : weight));
    if (has_master) tensors.push_back(stored_state(states, "master", spec, weight));
    for (const char* kind : {"moment1", "moment2"}) {
      tensors.push_back(stored_state(states, kind, spec, states_of(schedule, spec.name, kind)));
    }
  }
  read_all(trainer.ranks(), tensors);
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

// The weights of a checkpoint, or of a directory from elsewhere.
SafetensorsSet open_weights(const std::string& path) {
  const auto made = find_trainer_file(CheckpointDirectory::file(path, "trainer.json"));
  return made ? open_files(path, kModelStem, made->model) : SafetensorsSet(path);
}

// The weights of a Hugging Face directory for this model.
HfWeights weights_of(const std::string& path, const ModelSpec& model) {
  std::error_code ignored;
  if (exists(path) && !std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: expected a Hugging Face directory", path));
  }
  require_same_model(CheckpointDirectory::file(path, "config.json"), model);
  return {open_weights(path), model};
}

}  // namespace

std::optional<std::int64_t> saved_step(const std::string& path) {
  const auto file = find_trainer_file(path + "/trainer.json");
  return file ? std::optional(file->progress.step) : std::nullopt;
}

Progress load_progress(const std::string& path) {
  return of_newest(path, [&] { return read_trainer_file(path).progress; });
}

Progress load_checkpoint(const std::string& path, Trainer& trainer) {
  return agreed(trainer.ranks().world(),
                [&] { return of_newest(path, [&] { return load_files(path, trainer); }); });
}

HfCompanions companions_of(const std::string& path, bool same) {
  const std::vector<std::string_view> ours{"trainer.json"};
  const auto read = [&](const std::string& directory) {
    return same ? read_config(directory) : read_companions(directory, ours);
  };
  HfCompanions found = read(path);
  if (const std::string pending = CheckpointDirectory::pending(path); exists(pending)) {
    HfCompanions newer = read(pending);
    if (!newer.config.empty()) found.config = std::move(newer.config);
    found.files.merge(newer.files);
  }
  return found;
}

void require_weights(const std::string& path, const ModelSpec& model) {
  static_cast<void>(weights_of(path, model));
}

void load_weights(const std::string& path, Trainer& trainer) {
  const ModelSpec& model = trainer.problem().model;
  agree(trainer.ranks().world(), [&] {
    const HfWeights weights = weights_of(path, model);
    std::vector<StoredTensor> tensors;
    for (const TensorSpec& spec : model_tensors(model)) {
      tensors.push_back(stored_weight(weights, spec, weight_states(trainer.schedule(), spec.name)));
    }
    read_all(trainer.ranks(), tensors);
    trainer.reset_optimizer();
  });
}

}  // namespace fpdt
