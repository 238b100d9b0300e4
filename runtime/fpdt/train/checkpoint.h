// A training run on disk: a Hugging Face model directory that also holds what resuming needs.
//
//   config.json, model.safetensors   the model, for everybody
//   fpdt_state.safetensors           masters where they differ from the parameters, moments; f32
//   trainer.json                     step, cursor in the tokens, seed, what made it, its course
//
// More than 5 GB of weights, or of states, are cut into several files (io/safetensors_writer.h).
// Tensors are stored whole, so a run may resume with another number of ranks or another strategy.
// With the same schedule it gives the same bits. Every tensor has a checksum. trainer.json holds
// the checksums of all headers and its own. Values that are not finite are neither written nor
// read. checkpoint_directory.h describes how one checkpoint replaces another.
//
// All processes of a job see the same directory. Tensors pass through host memory in pieces; a
// tensor is held whole only to be saved in an order of rows that is not ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fpdt/io/hf_companions.h"
#include "fpdt/io/safetensors_writer.h"
#include "fpdt/train/checkpoint_directory.h"
#include "fpdt/train/trainer.h"
#include "fpdt/train/trainer_file.h"

namespace fpdt {

// Together: writes a pending checkpoint; the directory keeps its previous contents until confirm.
// `directory`: of the process that speaks; null elsewhere. `companions` come from the directory
// that the run started from, and never replace existing files; only that process needs them. Files
// of tensors have at most `shard_bytes`. Throws NumericError when a value is not finite.
void save_checkpoint(CheckpointDirectory* directory, const Trainer& trainer,
                     const Progress& progress, const HfCompanions& companions,
                     std::int64_t shard_bytes = kShardBytes);

// Together: saves without waiting for a proof, for callers that take no further step.
void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress,
                     std::int64_t shard_bytes = kShardBytes);

// The step of the proven checkpoint in a directory; nothing if there is none.
std::optional<std::int64_t> saved_step(const std::string& path);

// The progress that the newest checkpoint records, pending or not.
Progress load_progress(const std::string& path);

// The files that every checkpoint of a run copies from the directory that the run started from;
// only its config where they go to the `same`.
HfCompanions companions_of(const std::string& path, bool same = false);

// Together: loads the newest checkpoint, pending or not. Throws InputError when it is damaged or
// belongs to another model.
Progress load_checkpoint(const std::string& path, Trainer& trainer);

// Throws what load_weights would throw of the names, sizes and types of the tensors in a directory.
void require_weights(const std::string& path, const ModelSpec& model);

// Together: loads the weights of a Hugging Face directory, which has no history. Throws InputError
// when it holds another model.
void load_weights(const std::string& path, Trainer& trainer);

}  // namespace fpdt
