// Saves a checkpoint. Process 0 writes all files; the others send it what their ranks hold.
//
// More writers would not be faster: a process sends or writes, and while one writes a tensor, the
// others wait with their pieces of it.
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_model_writer.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/train/checkpoint.h"
#include "fpdt/train/finite.h"
#include "fpdt/train/states.h"

namespace fpdt {
namespace {

// Together: hands a state to `write`, on the process that speaks. Throws NumericError when a value
// is not finite.
template <class Write>
void save_state(const Trainer& trainer, const StateEntries& entries, Write write) {
  agree(trainer.ranks().world(), [&] {
    const std::string name =
        fmt::format("{} of {}", entries.front()->kind, entries.front()->tensor);
    stream_state(trainer.ranks(), entries, 0,
                 [&](std::int64_t first, std::span<const float> values) {
                   const std::string found = non_finite(values, first, name);
                   if (found.empty()) return write(values);
                   throw NumericError(
                       fmt::format("step {}: {}, so it is not saved. Lower the learning rate or "
                                   "lengthen the warm-up",
                                   trainer.steps_done(), found));
                 });
  });
}

std::vector<std::string> digits(const std::vector<std::uint64_t>& checksums) {
  std::vector<std::string> texts;
  for (const std::uint64_t sum : checksums) texts.push_back(checksum_digits(sum));
  return texts;
}

// Together: writes config.json and the weights. Returns the checksums of headers, on the process
// that speaks.
std::vector<std::string> save_model(const std::string& stage, const Trainer& trainer,
                                    std::string_view config, std::int64_t shard_bytes) {
  World& world = trainer.ranks().world();
  const ModelSpec& model = trainer.problem().model;
  const Schedule& schedule = trainer.schedule();
  const bool bf16 =
      schedule.buffers[index(states_of(schedule, "embed.weight", "parameter").front()->buffer)]
          .dtype == Dtype::bf16;
  std::optional<HfModelWriter> writer;
  agree(world, [&] {
    if (world.speaks()) writer.emplace(stage, model, bf16 ? "BF16" : "F32", config, shard_bytes);
  });
  for (const TensorSpec& tensor : model_tensors(model)) {
    save_state(trainer, states_of(schedule, tensor.name, "parameter"),
               [&](std::span<const float> values) { writer->write(values); });
  }
  return agreed(world,
                [&] { return digits(writer ? writer->commit() : std::vector<std::uint64_t>()); });
}

// Whether the file of weights has the bits of a tensor: Gemma's norms are stored less one, which
// rounds.
bool keeps_bits(const ModelSpec& model, const TensorSpec& tensor) {
  return hf_pieces(model, tensor.name).front().less == 0;
}

// Together: writes masters where there are some, and moments. Parameters without masters count as
// such where the file of weights does not keep their bits.
std::vector<std::string> save_states(const std::string& stage, const Trainer& trainer,
                                     std::int64_t shard_bytes) {
  World& world = trainer.ranks().world();
  std::vector<StateEntries> all;
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : model_tensors(trainer.problem().model)) {
    for (const char* kind : {"master", "moment1", "moment2"}) {
      StateEntries states = states_of(trainer.schedule(), tensor.name, kind);
      if (states.empty() && kind == std::string_view("master") &&
          !keeps_bits(trainer.problem().model, tensor)) {
        states = states_of(trainer.schedule(), tensor.name, "parameter");
      }
      if (states.empty()) continue;
      all.push_back(std::move(states));
      entries.push_back({stored_name(kind, tensor.name), "F32", tensor.shape});
    }
  }
  std::optional<ShardedWriter> writer;
  agree(world, [&] {
    if (!world.speaks()) return;
    writer.emplace(stage, kStatesStem, std::move(entries),
                   std::map<std::string, std::string>{{"format", "fpdt"}}, shard_bytes);
  });
  for (const StateEntries& states : all) {
    save_state(trainer, states, [&](std::span<const float> values) { writer->write_f32(values); });
  }
  return agreed(world,
                [&] { return digits(writer ? writer->commit() : std::vector<std::uint64_t>()); });
}

}  // namespace

void save_checkpoint(CheckpointDirectory* directory, const Trainer& trainer,
                     const Progress& progress, const HfCompanions& companions,
                     std::int64_t shard_bytes) {
  World& world = trainer.ranks().world();
  FPDT_ASSERT((directory != nullptr) == world.speaks());
  const std::string stage =
      agreed(world, [&] { return directory ? directory->begin() : std::string(); });
  TrainerFile file{progress};
  file.model = save_model(stage, trainer, companions.config, shard_bytes);
  file.states = save_states(stage, trainer, shard_bytes);
  agree(world, [&] {
    if (!directory) return;
    write_file_atomically(stage + "/trainer.json", print_trainer_file(file));
    for (const auto& [name, text] : companions.files) {
      const bool is_there = exists(fmt::format("{}/{}", directory->path(), name));
      if (!is_there) write_file_atomically(fmt::format("{}/{}", stage, name), text);
    }
    directory->finish();
  });
}

void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress,
                     std::int64_t shard_bytes) {
  World& world = trainer.ranks().world();
  auto directory = agreed(world, [&] {
    return world.speaks() ? std::make_unique<CheckpointDirectory>(path) : nullptr;
  });
  save_checkpoint(directory.get(), trainer, progress, {}, shard_bytes);
  agree(world, [&] {
    if (directory) directory->confirm();
  });
}

}  // namespace fpdt
