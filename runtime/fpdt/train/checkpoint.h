// A training run on disk: a directory that is a Hugging Face model and holds what resuming needs
// besides.
//
//   config.json, model.safetensors   the model, for everybody
//   fpdt_state.safetensors           masters where they differ from the parameters, moments; f32
//   trainer.json                     step, cursor in the tokens, seed, and what made it
//
// Tensors are stored whole, so another number of ranks or another strategy may go on from it; with
// the same schedule the same bits follow. The directory appears whole or not at all.
#pragma once

#include <cstdint>
#include <string>

#include "fpdt/train/trainer.h"

namespace fpdt {

// What trainer.json says.
struct Progress {
  std::int64_t step = 0;    // steps done
  std::int64_t cursor = 0;  // of the next window of the training data
  std::uint64_t seed = 0;
  std::string schedule;  // content hash of the schedule that ran
  std::int64_t ranks = 1;
  bool operator==(const Progress&) const = default;
};

// `path` must not exist, or be a checkpoint, which is then replaced.
void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress);

// InputError when the directory holds another model.
Progress load_checkpoint(const std::string& path, Trainer& trainer);

// Weights of a Hugging Face directory, which has no history. InputError when it holds another
// model.
void load_weights(const std::string& path, Trainer& trainer);

// InputError or IoError unless a run of this model can save to `path`: the family has Hugging Face
// names, what is at `path`, if anything, is a checkpoint, and a directory can be made beside it.
void require_saveable(const std::string& path, const ModelSpec& model);

}  // namespace fpdt
