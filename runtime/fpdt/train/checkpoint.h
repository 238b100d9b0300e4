// A training run on disk: a directory that is a Hugging Face model and also holds what resuming
// needs.
//
//   config.json, model.safetensors   the model, for everybody
//   fpdt_state.safetensors           masters where they differ from the parameters, moments; f32
//   trainer.json                     step, cursor in the tokens, seed, what made it, its course
//
// Tensors are stored whole, so another number of ranks or another strategy may go on from it; with
// the same schedule the same bits follow. Every tensor has a checksum; trainer.json holds those of
// the two headers, and its own. Values that are not finite are neither written nor read. How one
// checkpoint replaces another is in checkpoint_directory.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fpdt/io/hf_companions.h"
#include "fpdt/train/checkpoint_directory.h"
#include "fpdt/train/trainer.h"

namespace fpdt {

// What trainer.json says.
struct Progress {
  std::int64_t step = 0;    // steps done
  std::int64_t cursor = 0;  // of the next window of the training data
  std::uint64_t seed = 0;
  std::string schedule;  // content hash of the schedule that ran
  std::int64_t ranks = 1;
  std::string course = {};  // as print_course writes it; "": unknown
  bool operator==(const Progress&) const = default;
};

// Writes a pending checkpoint: what the directory held stays until confirm. `companions` come from
// the directory that the run started from; files that already exist are not replaced. NumericError
// when a value is not finite.
void save_checkpoint(CheckpointDirectory& directory, const Trainer& trainer,
                     const Progress& progress, const HfCompanions& companions);

// The same without waiting for a proof, for callers that make no further step.
void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress);

// The step of the proven checkpoint in a directory, if there is one.
std::optional<std::int64_t> saved_step(const std::string& path);

// What the newest checkpoint, pending or not, records of its run.
Progress load_progress(const std::string& path);

// The files that every checkpoint of a run takes along from the directory that it starts from.
HfCompanions companions_of(const std::string& path);

// Loads the newest checkpoint, pending or not. InputError when it is damaged or of another model.
Progress load_checkpoint(const std::string& path, Trainer& trainer);

// Weights of a Hugging Face directory, which has no history. InputError when it holds another
// model.
void load_weights(const std::string& path, Trainer& trainer);

}  // namespace fpdt
