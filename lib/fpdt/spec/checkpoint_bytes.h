// Host memory that weights and checkpoints take on their way between files and ranks, beside the
// arenas.
//
// To load, each process reads what its ranks hold. To save, one process writes all files, and the
// others send it what they hold. Tensors pass in pieces, whose sizes are here: the readers, the
// writers and the planner take them from this file. What no model determines is not counted: the
// program itself, and the tokenizer's files, which the process that writes copies.
#pragma once

#include <cstdint>

#include "fpdt/base/units.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// Elements of a piece: 16 MiB in f32, long enough for disks and networks.
inline constexpr std::int64_t kStreamElements = 4 << 20;
// Elements of a run: files and tensors that differ in type or order are converted run by run.
inline constexpr std::int64_t kRunElements = 1 << 16;

// The bytes of one process that loads: a piece in f32, the same piece in the type of its state (f32
// at most) on its way to a device, a run in f64, and the names of all tensors.
Bytes loading_bytes(const ModelSpec& model);

// The bytes of one process that saves: a piece in f32, the same piece in bf16, a run in f64, and
// the names of all tensors.
Bytes saving_bytes(const ModelSpec& model);

// The additional bytes of the process that writes: Hugging Face stores the matrices of gpt's layers
// transposed or interleaved, and so those of gpt-oss's experts, so that one of them is held whole,
// in f32. 0 for llama.
Bytes reordering_bytes(const ModelSpec& model);

}  // namespace fpdt
