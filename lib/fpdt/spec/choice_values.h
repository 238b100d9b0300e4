// The functions that rows of the table of choices need.
#pragma once

#include "fpdt/spec/choices.h"
#include "fpdt/spec/edits.h"

namespace fpdt {

using Strategies = std::vector<Strategy>;

// Other values of a choice.
Strategies other_chunks(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_slices(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_depths(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_segments(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_home_of(StateClass one, const Strategy& strategy);
// Memory of its own is worth most on the device.
Strategies other_layer_gradients(const Problem& problem, const Strategy& strategy,
                                 const Fits& fits);
Strategies other_queries(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_stages(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_tensors(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_rings(const Problem& problem, const Strategy& strategy, const Fits& fits);
Strategies other_replicas(const Problem& problem, const Strategy& strategy, const Fits& fits);
// Other numbers of layers that store something, and of chunks of a tensor class on the device:
// none, all, one more or less, and as many as fit.
Strategies other_stored(const Problem& problem, const Strategy& strategy, const Fits& fits,
                        std::int64_t StoredLayers::*which);
Strategies other_kept(const Problem& problem, const Strategy& strategy, const Fits& fits,
                      TensorClass tensor);
// Half and twice a tile. 0 stands for `whole`.
Strategies other_tiles(const Strategy& strategy, std::int64_t Tiles::*tile, std::int64_t whole);

Strategies other_zero_groups(const Problem& problem, const Strategy& strategy, const Fits& fits);
// Chunks of which any class repeats attention though it stores that of others.
std::int64_t most_repeated(const Strategy& strategy);
Strategies other_first_chunks(const Problem& problem, const Strategy& strategy, const Fits& fits);

// The problem on one of `divisor` equal groups of its ranks.
void leave_ranks(Problem& problem, std::int64_t divisor);

// Leaves out the other ranks of a side of the grid.
std::function<void(Problem&, Strategy&)> without_side(std::int64_t Mesh::*side);

// Why a choice has no effect beside others; empty if it has one.
std::string unused_zero(const Problem& problem, const Strategy& strategy, const LayerClass& layers,
                        const Geometry& shape);
// Sets the groups that say the same as those without effect.
void with_plain_zero_groups(const Problem& problem, Strategy& strategy);
std::string unused_zero_groups(const Problem& problem, const Strategy& strategy,
                               const LayerClass& layers, const Geometry& shape);
std::string unused_long_tiles(const Problem& problem, const Strategy& strategy,
                              const LayerClass& layers, const Geometry& shape);

// Clauses of a sentence.
std::string words_of_stored(const Problem& problem, const Strategy& strategy,
                            const Geometry& shape);
std::string words_of_kept(const Problem& problem, const Strategy& strategy, const Geometry& shape);
std::string words_of_first_chunks(const Problem& problem, const Strategy& strategy,
                                  const Geometry& shape);
std::string words_of_zero_groups(const Problem& problem, const Strategy& strategy,
                                 const Geometry& shape);
std::string words_of_homes(const Problem& problem, const Strategy& strategy, const Geometry& shape);
// Changes in words.
std::string says_home_of(StateClass one, const Strategy& to);
std::string says_segments(const Problem& problem, const Strategy& from, const Strategy& to);
std::string says_replicas(const Problem& problem, const Strategy& from, const Strategy& to);
std::string says_first_chunks(const Problem& problem, const Strategy& from, const Strategy& to);
std::string change_of_stored(const Problem& problem, const Strategy& from, const Strategy& to);
std::string change_of_kept(const Problem& problem, const Strategy& to, TensorClass tensor);

}  // namespace fpdt
