// Shortens every loop of a step.
#include "fpdt/plan/thumbnail.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/lowering/groups.h"
#include "fpdt/plan/lowering/sharding.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

constexpr std::int64_t kHops = 3;
constexpr std::int64_t kChunks = 4;    // three on the host and one on the device
constexpr std::int64_t kHosted = 3;    // chunks on the host
constexpr std::int64_t kRepeated = 3;  // chunks whose attention is repeated
constexpr std::int64_t kRows = 2;      // of a chunk on one rank: a tile each
constexpr std::int64_t kSlices = 2;    // of experts

// The fraction of `few` parts on the device: all, none, the last, or some of the first `repeated`
// as well. Where more are on the host, no less is alive.
double shortened(const Geometry::Parts& parts, std::int64_t few, std::int64_t repeated) {
  if (parts.kept == 0) return 0;
  if (parts.kept == parts.all) return 1;
  const std::int64_t hosted = parts.all - parts.kept;
  return fraction_of(hosted < repeated ? few - std::min(hosted, kHosted) : 1, few);
}

bool is_output(TensorClass tensor) {
  return tensor == TensorClass::attention_output || tensor == TensorClass::lse;
}

// Classes that keep different fractions of a tensor have homes of their own for it, so that the
// fractions stay different. A little more keeps no other chunk.
void tell_apart(const Strategy& strategy, Strategy& few) {
  constexpr double kLittle = 1e-4;
  const std::vector<LayerClass>& all = strategy.layer_classes;
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    if (is_output(static_cast<TensorClass>(k))) continue;  // each class has a home of its own
    for (std::size_t c = 1; c < all.size(); ++c) {
      double& here = few.layer_classes[c].keep[k];
      for (std::size_t before = 0; before < c; ++before) {
        const double there = few.layer_classes[before].keep[k];
        if (all[c].keep[k] == all[before].keep[k]) {
          here = there;
          break;
        }
        if (here == there) here = std::min(here + kLittle, 1.0);
      }
    }
  }
}

// Chunks before those that are all stored: none, or repeated ones, with one more where some of them
// are on the device.
std::int64_t repeated_chunks(const Geometry& shape, const Strategy& strategy) {
  std::int64_t most = 0;
  for (const LayerClass& one : strategy.layer_classes) {
    const std::int64_t repeated = one.repeated(0);
    if (repeated == 0) continue;
    most = std::max(most, kRepeated);
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const auto tensor = static_cast<TensorClass>(k);
      const Geometry::Parts parts = shape.parts(one, tensor);
      const std::int64_t hosted = parts.all - parts.kept;
      if (!is_output(tensor) && 0 < hosted && hosted < repeated) return kRepeated + 1;
    }
  }
  return most;
}

// Repeated chunks, stored ones, and what is kept of each tensor. Few chunks of either need nothing
// that more do not. Classes that keep the same fraction share a home, and one may repeat more.
void shorten_chunks(const Geometry& shape, const Geometry& few, Strategy& strategy,
                    std::int64_t repeated) {
  const std::vector<LayerClass> whole = strategy.layer_classes;
  const auto most_repeated = [&](std::size_t k, double kept) {
    std::int64_t most = 0;
    for (const LayerClass& one : whole) {
      if (one.keep[k] == kept) most = std::max(most, one.repeated(0));
    }
    return most;
  };
  for (std::size_t c = 0; c < whole.size(); ++c) {
    LayerClass& one = strategy.layer_classes[c];
    std::int64_t& first = one.first_stored_chunk;
    if (few.chunks < shape.chunks && first > 0) {
      first = first == shape.chunks ? few.chunks : repeated;
    }
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const auto tensor = static_cast<TensorClass>(k);
      one.keep[k] = shortened(shape.parts(whole[c], tensor), few.parts(one, tensor).all,
                              is_output(tensor) ? 0 : most_repeated(k, whole[c].keep[k]));
    }
  }
}

void shorten_tiles(const Geometry& shape, const ModelSpec& model, Tiles& tiles) {
  tiles.ffn_rows =
      tiles.ffn_rows > 0 && tiles.ffn_rows < shape.product_rows(0) ? shape.tensor_ranks : 0;
  tiles.loss_rows = tiles.loss_rows > 0 && tiles.loss_rows < shape.local_rows(0) ? 1 : 0;
  const bool words = tiles.loss_vocabulary > 0 && tiles.loss_vocabulary < model.vocabulary;
  tiles.loss_vocabulary = words ? div_ceil(model.vocabulary, kRows) : 0;
  if (tiles.expert_slices % kSlices == 0) tiles.expert_slices = kSlices;
}

// The tile with which the longest tensor has two tiles.
std::int64_t optimizer_tile(const Problem& problem, const Strategy& strategy) {
  std::int64_t longest = 1;
  const auto meet = [&](const std::vector<SharedTensor>& tensors) {
    for (const SharedTensor& tensor : tensors) {
      longest = std::max(longest, tensor.sharding.states(tensor.elements));
    }
  };
  meet(shared_global_tensors(problem, strategy));
  for (const LayerRun& run : layer_runs(problem.model)) {
    meet(shared_layer_tensors(problem, strategy, run.model));
  }
  return div_ceil(longest, kRows);
}

// One node; or, where groups of a node share tensors, or their parts, nodes whose groups have two
// members. The number of replicas changes no block. Ranks that share all products are never fewer.
void shape_nodes(const Problem& problem, std::int64_t ranks, Strategy& few, ClusterSpec& cluster) {
  const Sharers sharers(problem, few);
  if (sharers.node == 0) {
    cluster.devices_per_node = ranks * few.mesh.replicas;
    return;
  }
  if (sharers.ways == sharers.ranks) {
    cluster.devices_per_node = problem.cluster.devices_per_node;
    cluster.nodes = problem.cluster.nodes;
    return;
  }
  few.mesh.replicas = 4;
  cluster.devices_per_node =
      sharers.here > 1 ? 2 * ranks : std::max<std::int64_t>(2, few.mesh.tensor);
  cluster.nodes = 4 * ranks / cluster.devices_per_node;
}

}  // namespace

Thumbnail thumbnail(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t repeated = repeated_chunks(shape, strategy);
  const std::int64_t chunks = std::min(shape.chunks, repeated + kChunks);
  Thumbnail made{{}, strategy, library_tiles(problem, strategy)};
  for (LibraryTiles& of_kind : made.library) of_kind.chunks = std::min(of_kind.chunks, chunks);
  made.problem.model = problem.model;
  made.problem.documents = problem.documents;
  Strategy& few = made.strategy;
  shorten_layers(few, made.problem.model);
  few.mesh.replicas = std::min<std::int64_t>(shape.data_parallel, 2);
  few.mesh.ring = std::min<std::int64_t>(shape.ring, shape.hops > 1 ? kHops : 2);
  few.mesh.heads = 0;
  few.micro_batches = std::min<std::int64_t>(strategy.micro_batches, 2);
  few.copies.prefetch_depth = std::min<std::int64_t>(strategy.copies.prefetch_depth, 2);
  const std::int64_t ranks = shape.head_ranks() * shape.tensor_ranks * few.mesh.ring;
  shape_nodes(problem, ranks, few, made.problem.cluster);
  few.tiles.chunk_tokens = ranks * kRows;
  made.problem.seq_len = chunks * few.tiles.chunk_tokens;
  shorten_chunks(shape, geometry(made.problem, few), few, repeated);
  tell_apart(strategy, few);
  shorten_tiles(shape, problem.model, few.tiles);
  // As many chunks before its own are seen as in the whole.
  for (LayerKind& kind : made.problem.model.kinds) {
    if (kind.window == 0) continue;
    const std::int64_t back = std::min(shape.chunks_back(kind), chunks);
    const std::int64_t most = made.problem.seq_len - (kind.window_in(problem.seq_len) > 0 ? 1 : 0);
    kind.window = std::min(1 + back * few.tiles.chunk_tokens, most);
  }
  few.copies.optimizer_tile =
      few.offloads_states() ? optimizer_tile(made.problem, few) : Copies{}.optimizer_tile;
  return made;
}

std::string stand_in(std::string_view buffer, const Thumbnail& small) {
  constexpr std::string_view kMatrices = ".weight.", kDigits = "0123456789";
  std::string name(buffer);
  const std::size_t matrices = name.find(kMatrices);
  if (matrices == name.npos) return name;
  const std::size_t begin = matrices + kMatrices.size();
  const std::size_t digits = std::min(name.find_first_not_of(kDigits, begin), name.size()) - begin;
  std::int64_t slice = 0;
  std::from_chars(&name[begin], &name[begin + digits], slice);
  const std::int64_t last = small.strategy.tiles.expert_slices - 1;
  return slice > last ? name.replace(begin, digits, fmt::format("{}", last)) : name;
}

}  // namespace fpdt
