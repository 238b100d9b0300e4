// One row for each choice.
#include "fpdt/spec/choices.h"

#include <fmt/format.h>

#include "fpdt/spec/choice_members.h"
#include "fpdt/spec/choice_values.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

std::vector<Choice> rows_of_mesh() {
  return {
      {.key = "mesh",
       .meaning = "ranks as a grid, whose sides multiply to the number of devices; the last varies "
                  "fastest"},
      {.key = "mesh.replicas",
       .meaning = "ranks that train other sequences: data parallelism",
       .member = at(&Strategy::mesh, &Mesh::replicas),
       .turn = 16,
       .others = other_replicas,
       .says = says_replicas,
       .simplest = "one replica",
       .simplify = without_side(&Mesh::replicas)},
      {.key = "mesh.ring",
       .meaning = "ranks that share the queries of a head; keys and values travel between them",
       .member = at(&Strategy::mesh, &Mesh::ring),
       .label = "mesh.ring",
       .turn = 13,
       .others = other_rings,
       .take =
           [](const Problem&, Strategy& to, const Strategy& from) {
             if (to.mesh.ring != from.mesh.ring) to = with_ring(std::move(to), from.mesh.ring);
           },
       .simplest = "no ring",
       .simplify =
           [](Problem& problem, Strategy& s) {
             leave_ranks(problem, s.mesh.ring);
             s = with_ring(std::move(s), 1);
           }},
      {.key = "mesh.heads",
       .meaning = "ranks that exchange tokens for heads by all-to-all",
       .member = at(&Strategy::mesh, &Mesh::heads),
       .form = Form::rest},
      {.key = "mesh.tensor",
       .meaning = "ranks that share each product, and the rows between products",
       .member = at(&Strategy::mesh, &Mesh::tensor),
       .turn = 22,
       .others = other_tensors,
       .simplest = "no shared products",
       .simplify = without_side(&Mesh::tensor)},
  };
}

std::vector<Choice> rows_of_keys() {
  return {
      {.key = "keys",
       .meaning = "where the keys of an attention tile come from: chunks of this rank, a "
                  "neighbour, or all ranks",
       .member = at(&Strategy::keys),
       .turn = 14,
       .unused =
           [](const Problem&, const Strategy& s, const LayerClass&, const Geometry& shape) {
             return unless(s.keys == Keys::resident || shape.ring > 1, "mesh.ring is 1");
           }},
      {.key = "layout",
       .meaning = "which tokens a rank holds: a run of each chunk; the same with every second "
                  "chunk in the opposite order of the ranks of a ring",
       .member = at(&Strategy::layout),
       .turn = 15,
       .words =
           [](const Problem&, const Strategy&, const Geometry& shape) {
             return unless(!shape.zigzag, "zigzag order in every second chunk");
           },
       .simplest = "no zigzag",
       .simplify = set(&Strategy::layout, Layout::interleaved),
       .unused =
           [](const Problem&, const Strategy& s, const LayerClass&, const Geometry& shape) {
             return unless(s.layout == Layout::interleaved || shape.zigzag,
                           "it needs a ring and several chunks");
           }},
      {.key = "extent",
       .meaning = "rows of norms and products: those of a chunk, or all of the rank",
       .member = at(&Strategy::extent),
       .words =
           [](const Problem&, const Strategy& s, const Geometry&) {
             return unless(s.extent == Extent::chunk, "norms and products over all rows of a rank");
           },
       .simplest = "norms and products by chunk",
       .simplify = set(&Strategy::extent, Extent::chunk)},
  };
}

std::vector<Choice> rows_of_steps() {
  return {
      {.key = "zero",
       .meaning = "ZeRO stage: 1 shards the states of the optimizer, 2 also gradients, 3 also "
                  "parameters",
       .member = at(&Strategy::zero),
       .turn = 12,
       .others = other_stages,
       .words =
           [](const Problem&, const Strategy& s, const Geometry&) {
             return s.zero == Strategy{}.zero ? "" : fmt::format("ZeRO stage {}", s.zero);
           },
       .simplest = "nothing sharded",
       .simplify = set<std::int64_t>(&Strategy::zero, 0),
       .unused = unused_zero},
      {.key = "zero_groups",
       .meaning =
           "gathers and sums of ZeRO over all ranks at once; over those of a node, then over "
           "nodes; hybrid: the same, and at stage 3 each node has all parameters",
       .member = at(&Strategy::zero_groups),
       .turn = 12,
       .others = other_zero_groups,
       .words = words_of_zero_groups,
       .simplest = "flat ZeRO",
       .simplify = set(&Strategy::zero_groups, ZeroGroups::flat),
       .unused = unused_zero_groups,
       .instead = with_plain_zero_groups},
      {.key = "micro_batches",
       .meaning = "sequences that a replica trains one after the other in a step",
       .member = at(&Strategy::micro_batches),
       .set_by = "replicas",
       .simplest = "one micro-batch",
       .simplify = set<std::int64_t>(&Strategy::micro_batches, 1)},
      {.key = "head_stages",
       .meaning = "groups of heads that attention takes one after the other",
       .member = at(&Strategy::head_stages)},
  };
}

std::vector<Choice> rows_of_formats() {
  return {
      {.key = "key_gradients",
       .meaning = "the format of gradients of keys on their way around a ring",
       .member = at(&Strategy::key_gradients),
       .simplest = "f32 gradients of keys",
       .simplify = set(&Strategy::key_gradients, Storage::f32),
       .unused =
           [](const Problem&, const Strategy& s, const LayerClass&, const Geometry& shape) {
             return unless(
                 s.key_gradients == Storage::f32 || (shape.hops > 1 && s.storage != Storage::f32),
                 "it needs keys: ring and storage: bf16");
           }},
      {.key = "layer_gradients",
       .meaning =
           "where the gradient of the residual stream waits between layers: in memory of its "
           "own, or in the slots of layer inputs that backward has read",
       .member = at(&Strategy::layer_gradients),
       .label = "layer_gradients",
       .turn = 10,
       .others = other_layer_gradients,
       .words =
           [](const Problem&, const Strategy& s, const Geometry&) {
             return unless(s.layer_gradients == LayerGradients::apart,
                           "layer gradients in place of layer inputs");
           },
       .simplest = "layer gradients apart",
       .simplify = set(&Strategy::layer_gradients, LayerGradients::apart)},
      {.key = "queries",
       .meaning = "whether backward stores the queries of a layer until their tiles, or projects "
                  "them again at their row",
       .member = at(&Strategy::queries),
       .label = "queries",
       .turn = 10,
       .others = other_queries,
       .words =
           [](const Problem&, const Strategy& s, const Geometry&) {
             return unless(s.queries == Queries::stored, "queries recomputed in backward");
           },
       .simplest = "stored queries",
       .simplify = set(&Strategy::queries, Queries::stored),
       .unused =
           [](const Problem&, const Strategy& s, const LayerClass& one, const Geometry&) {
             return s.queries == Queries::stored ? "" : std::string(why_queries_stored(s, one));
           }},
      {.key = "gradients",
       .meaning =
           "the format of gradients of layers between micro-batches and until the update; bf16 "
           "rounds each sum, and the search has it only with --gradients bf16",
       .member = at(&Strategy::gradients),
       .words =
           [](const Problem&, const Strategy& s, const Geometry&) {
             return unless(s.gradients == Storage::f32, "gradients in bf16");
           },
       .simplest = "f32 gradients",
       .simplify = set(&Strategy::gradients, Storage::f32)},
      {.key = "storage",
       .meaning = "of parameters and activations; sums are f32",
       .member = at(&Strategy::storage),
       .simplest = "f32 storage",
       .simplify = set(&Strategy::storage, Storage::f32)},
  };
}

Choice row_of_home(StateClass one, std::string_view simplest) {
  return {.key = fmt::format("keep.{}", word(one)),
          .member = [one](Strategy& s,
                          LayerClass&) { return member_of(s.keep[static_cast<std::size_t>(one)]); },
          .label = fmt::format("keep {}", word(one)),
          .turn = 11,
          .others = [one](const Problem&, const Strategy& s,
                          const Fits&) { return other_home_of(one, s); },
          .says = [one](const Problem&, const Strategy&,
                        const Strategy& to) { return says_home_of(one, to); },
          .simplest = simplest,
          .simplify = [one](Problem&, Strategy& s) { s.offload(one, false); }};
}

std::vector<Choice> rows_of_homes() {
  Choice states = row_of_home(StateClass::states, "optimizer on the device");
  states.words = words_of_homes;  // of all three
  return {
      {.key = "keep",
       .meaning = "the fraction of each that stays on the device: 0 or 1; parameters and gradients "
                  "are those of layers, states are master weights and moments",
       .member = at(&Strategy::keep)},
      std::move(states),
      row_of_home(StateClass::gradients, "gradients on the device"),
      row_of_home(StateClass::parameters, "parameters on the device"),
      {.key = "segments",
       .meaning = "layers of each segment from the input on, of which the last repeats; only the "
                  "input of the first layer of a segment is stored",
       .member = at(&Strategy::segments),
       .turn = 4,
       .others = other_segments,
       .says = says_segments},
  };
}

std::vector<Choice> rows_of_order() {
  return {
      {.key = "tiles.backward_order",
       .meaning = "whether the outer loop of backward attention goes over chunks of keys or of "
                  "queries",
       .member = at(&Strategy::tiles, &Tiles::backward_order),
       .turn = 5,
       .words = [](const Problem&, const Strategy& s, const Geometry&) -> std::string {
         return s.tiles.backward_order == BackwardOrder::q_outer ? "backward query-outer"
                                                                 : "backward KV-outer";
       },
       .simplest = "the other backward order",
       .simplify =
           [](Problem&, Strategy& s) {
             BackwardOrder& order = s.tiles.backward_order;
             order = order == BackwardOrder::kv_outer ? BackwardOrder::q_outer
                                                      : BackwardOrder::kv_outer;
           }},
      {.key = "tiles.serpentine",
       .meaning = "whether every other row runs backwards, and begins with what is still on the "
                  "device",
       .member = at(&Strategy::tiles, &Tiles::serpentine),
       .turn = 7,
       .simplest = "serpentine off",
       .simplify = set(&Strategy::tiles, &Tiles::serpentine, false)},
      {.key = "tiles.long_tiles",
       .meaning = "whether one attention op covers all keys of a row that are on the device",
       .member = at(&Strategy::tiles, &Tiles::long_tiles),
       .turn = 6,
       .words =
           [](const Problem&, const Strategy& s, const Geometry&) {
             return unless(!s.tiles.long_tiles, "one attention tile over all keys on the device");
           },
       .simplest = "long_tiles off",
       .simplify = set(&Strategy::tiles, &Tiles::long_tiles, false),
       .unused = unused_long_tiles},
  };
}

std::vector<Choice> rows_of_copies() {
  return {
      {.key = "copies", .meaning = "what runs beside attention"},
      {.key = "copies.prefetch_depth",
       .meaning = "how many chunks fetches run ahead of their use, 0 to 64",
       .member = at(&Strategy::copies, &Copies::prefetch_depth),
       .turn = 8,
       .others = other_depths,
       .simplest = "no prefetch",
       .simplify = set<Copies, std::int64_t>(&Strategy::copies, &Copies::prefetch_depth, 0)},
      {.key = "copies.duplex",
       .meaning = "whether each direction of copies has its own lane",
       .member = at(&Strategy::copies, &Copies::duplex),
       .turn = 9,
       .simplest = "one copy lane",
       .simplify = set(&Strategy::copies, &Copies::duplex, false)},
      {.key = "copies.overlap_all_to_all",
       .meaning = "whether chunk i+1 is exchanged while chunk i is in attention",
       .member = at(&Strategy::copies, &Copies::overlap_all_to_all),
       .turn = 10,
       .simplest = "overlap_all_to_all off",
       .simplify = set(&Strategy::copies, &Copies::overlap_all_to_all, false)},
      {.key = "copies.optimizer_tile",
       .meaning = "elements of one piece of a tensor that the optimizer streams",
       .member = at(&Strategy::copies, &Copies::optimizer_tile),
       .form = Form::tokens,
       .unused =
           [](const Problem&, const Strategy& s, const LayerClass&, const Geometry&) {
             const bool set = s.copies.optimizer_tile != Copies{}.optimizer_tile;
             return unless(!set || s.offloads_states(), "it needs keep: {states: host}");
           }},
  };
}

Choice row_of_first_stored_chunk() {
  return {.key = "layer_classes[].first_stored_chunk",
          .meaning =
              "attention output and lse are stored from this chunk on; attention of the chunks "
              "before it is repeated",
          .member = at(&LayerClass::first_stored_chunk),
          .form = Form::sparse,
          .turn = 21,
          .others = other_first_chunks,
          .says = says_first_chunks,
          .words = words_of_first_chunks,
          .simplest = "attention stored from the first chunk on",
          .simplify = [](Problem&, Strategy& s) { s = with_first_stored(std::move(s), 0); },
          .unused =
              [](const Problem&, const Strategy&, const LayerClass& one, const Geometry&) {
                return unless(one.first_stored_chunk == 0 || one.recompute != Recompute::from_input,
                              "recompute: from_input stores no attention output");
              }};
}

Choice row_of_tensor(TensorClass tensor) {
  const auto k = static_cast<std::size_t>(tensor);
  return {.key = fmt::format("layer_classes[].keep.{}", word(tensor)),
          .member = [k](Strategy&, LayerClass& one) { return member_of(one.keep[k]); },
          .label = fmt::format("keep {}", word(tensor)),
          .turn = 17,
          .others = [tensor](const Problem& problem, const Strategy& s,
                             const Fits& fits) { return other_kept(problem, s, fits, tensor); },
          .says = [tensor](const Problem& problem, const Strategy&,
                           const Strategy& to) { return change_of_kept(problem, to, tensor); },
          .unused =
              [tensor](const Problem& problem, const Strategy& s, const LayerClass& one,
                       const Geometry&) {
                if (one.kept(tensor) == 0) return std::string();
                return std::string(why_unused(problem.model, s, one, tensor));
              }};
}

std::vector<Choice> rows_of_layers() {
  const auto stored = [](std::int64_t StoredLayers::*which) {
    return [which](const Problem& problem, const Strategy& s, const Fits& fits) {
      return other_stored(problem, s, fits, which);
    };
  };
  std::vector<Choice> rows{
      {.key = "layer_classes",
       .meaning = "one to four groups of consecutive layers, from the first layer on"},
      {.key = "layer_classes[].layers",
       .meaning = "how many layers; `rest` in the last class only",
       .member = at(&LayerClass::layers),
       .form = Form::rest,
       .set_by = "recompute attention"},
      {.key = "layer_classes[].recompute",
       .meaning = "what forward stores for backward",
       .member = at(&LayerClass::recompute),
       .label = "recompute attention",
       .turn = 2,
       .others = stored(&StoredLayers::attention),
       .take =
           [](const Problem& problem, Strategy& to, const Strategy& from) {
             const StoredLayers wanted = stored_layers(problem, from);
             if (stored_layers(problem, to) != wanted) to = with_stored(problem, to, wanted);
           },
       .says = change_of_stored,
       .words = words_of_stored,
       .simplest = "nothing recomputed",
       .simplify =
           [](Problem&, Strategy& s) {
             s.segments = {1};
             for (LayerClass& one : s.layer_classes) one.recompute = Recompute::keep_all;
           }},
      {.label = "recompute everything",
       .set_by = "recompute attention",
       .turn = 3,
       .others = stored(&StoredLayers::everything),
       .says = change_of_stored},
      row_of_first_stored_chunk(),
      {.key = "layer_classes[].keep",
       .meaning = "the fraction of the chunks that stays on the device ([strategy, section "
                  "5](../strategy.md#5-keep))",
       .member = at(&LayerClass::keep),
       .words = words_of_kept,
       .simplest = "nothing spilled",
       .simplify =
           [](Problem&, Strategy& s) {
             for (LayerClass& one : s.layer_classes) one.keep.fill(1);
           }},
  };
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    rows.push_back(row_of_tensor(static_cast<TensorClass>(k)));
  }
  return rows;
}

}  // namespace

const std::vector<Choice>& choices() {
  static const std::vector<Choice> table = [] {
    std::vector<Choice> all;
    for (const auto& rows :
         {rows_of_mesh(), rows_of_keys(), rows_of_steps(), rows_of_formats(), rows_of_homes(),
          rows_of_tiles(), rows_of_order(), rows_of_copies(), rows_of_layers()}) {
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return table;
}

}  // namespace fpdt
