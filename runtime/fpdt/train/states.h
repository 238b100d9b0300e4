// Reads and writes tensors of a schedule's state table on the ranks.
//
// The entries of a tensor of one kind hold it together, cut into pieces (state_piece.h). Tensors
// pass through host memory in parts of at most kStreamElements: what each holder has of a part
// passes at once, and the parts are put together where they arrive.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/cpu/pool.h"
#include "fpdt/io/safetensors.h"
#include "fpdt/spec/checkpoint_bytes.h"
#include "fpdt/spec/model.h"
#include "fpdt/train/ranks.h"
#include "fpdt/train/state_piece.h"

namespace fpdt {

// All entries of a tensor of one kind; of several kinds where a function says so.
using StateEntries = std::vector<const State*>;

// Empty: the table has none. Kinds: parameter, master, moment1, moment2, gradient.
StateEntries states_of(const Schedule& schedule, std::string_view tensor, std::string_view kind);
// What a weight sets: the parameter, and its master if there is one.
StateEntries weight_states(const Schedule& schedule, std::string_view tensor);

// Throws InputError when the table and the model name different tensors, or their shapes differ.
void require_states(const Schedule& schedule, const ModelSpec& model);

// Together: hands the tensor, row-major, to `sink` on one process. The lowest rank that holds an
// element sends it. A sink that throws ends nothing early: the error is thrown when the tensor has
// passed, and only there. Preconditions: the world is complete, and there is an entry.
void stream_state(const Ranks& ranks, const StateEntries& entries, std::int64_t process,
                  const TensorSink& sink);

// Together: the whole tensor, on every process.
std::vector<float> read_state(const Ranks& ranks, const StateEntries& entries);

// What the present ranks hold of a tensor, ascending and apart from each other. Entries may be of
// several kinds. Columns of a matrix lie in many short runs: the ranges go on through gaps of up to
// kReadThrough, which cost less to read than another access to a file.
inline constexpr std::int64_t kReadThrough = kRunElements;
std::vector<ElementRange> held_ranges(const Ranks& ranks, const StateEntries& entries);

// Sets the elements from `first` on, on every present rank that holds them, rounded to the buffer's
// type. Zeros follow the last element that a rank holds. Entries may be of several kinds.
// Precondition: there is an entry.
void write_range(const Ranks& ranks, const StateEntries& entries, std::int64_t first,
                 std::span<const float> values);

// Writes the elements of a tensor from `first` on into `values`. Many threads call it at once, each
// for its own part.
using Elements = std::function<void(std::int64_t first, std::span<float> values)>;

// Sets the tensor from `elements`, which is asked only for those that present ranks hold. If the
// host can address the slots, they are written in place. Entries may be of several kinds.
void fill_state(const Ranks& ranks, const StateEntries& entries, Pool& pool,
                const Elements& elements);

}  // namespace fpdt
