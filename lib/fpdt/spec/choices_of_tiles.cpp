// The rows of tiles in the table of choices.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/spec/choice_members.h"
#include "fpdt/spec/choice_values.h"

namespace fpdt {
namespace {

// The rows of a chunk that tiles divide.
using RowsOfChunk = std::int64_t (Geometry::*)(std::int64_t chunk) const;

// The other values of a tile of rows, and why a tile has no effect.
auto halves_and_twice(std::int64_t Tiles::*tile, RowsOfChunk rows) {
  return [tile, rows](const Problem& problem, const Strategy& s, const Fits&) {
    return other_tiles(s, tile, (geometry(problem, s).*rows)(0));
  };
}
auto unused_rows(std::int64_t Tiles::*tile, RowsOfChunk rows) {
  return [tile, rows](const Problem&, const Strategy& s, const LayerClass&, const Geometry& shape) {
    const std::int64_t most = (shape.*rows)(0);
    return s.tiles.*tile < most ? "" : fmt::format("a chunk has {} rows on one rank", most);
  };
}

Choice row_of_expert_slices() {
  return {.key = "tiles.expert_slices",
          .meaning =
              "slices in which the experts of a layer are gathered one after another, and their "
              "gradients summed; 1: all at once, once a layer",
          .member = at(&Strategy::tiles, &Tiles::expert_slices),
          .form = Form::sparse,
          .usual = 1,
          .turn = 23,
          .others = other_slices,
          .words =
              [](const Problem&, const Strategy& s, const Geometry&) {
                return unless(s.tiles.expert_slices == 1,
                              fmt::format("experts in {} slices", s.tiles.expert_slices));
              },
          .simplest = "all experts at once",
          .simplify = set<Tiles, std::int64_t>(&Strategy::tiles, &Tiles::expert_slices, 1),
          .unused =
              [](const Problem& problem, const Strategy& s, const LayerClass&, const Geometry&) {
                return unless(problem.model.has_experts() || s.tiles.expert_slices == 1,
                              "the model has no experts");
              }};
}

Choice row_of_expert_loop() {
  return {
      .key = "tiles.expert_loop",
      .meaning =
          "outer loop of experts in slices: tiles of rows, each of which gathers all slices, or "
          "slices, each of which meets all tiles of a chunk, or of all rows",
      .member = at(&Strategy::tiles, &Tiles::expert_loop),
      .form = Form::sparse,
      .turn = 24,
      .words =
          [](const Problem&, const Strategy& s, const Geometry&) {
            return unless(s.tiles.expert_loop == ExpertLoop::tiles,
                          "slices of experts outside of tiles");
          },
      .simplest = "tiles outside of slices",
      .simplify = set<Tiles, ExpertLoop>(&Strategy::tiles, &Tiles::expert_loop, ExpertLoop::tiles),
      .unused = [](const Problem&, const Strategy& s, const LayerClass&,
                   const Geometry& shape) -> std::string {
        if (s.tiles.expert_loop == ExpertLoop::tiles) return "";
        if (s.tiles.expert_slices == 1) return "all experts come at once";
        const std::int64_t chunk = shape.product_rows(0), rows = s.tiles.ffn_rows;
        const std::int64_t tile = rows > 0 ? std::min(rows, chunk) : chunk;
        return unless(tile < shape.extent_product_rows(0), "one tile has all rows");
      }};
}

}  // namespace

std::vector<Choice> rows_of_tiles() {
  return {
      {.key = "tiles", .meaning = "lengths and order of the pieces of work"},
      {.key = "tiles.chunk_tokens",
       .meaning = "tokens of a chunk over all ranks",
       .member = at(&Strategy::tiles, &Tiles::chunk_tokens),
       .form = Form::tokens,
       .turn = 1,
       .others = other_chunks,
       .simplest = "one chunk",
       .simplify =
           [](Problem& problem, Strategy& s) {
             const Geometry shape = geometry(problem, s);
             if (shape.chunks > 1) s.tiles.chunk_tokens = shape.padded_tokens;
             s = with_first_stored(std::move(s), 0);
           }},
      {.key = "tiles.ffn_rows",
       .meaning = "rows of a tile of the feed-forward; 0: the chunk",
       .member = at(&Strategy::tiles, &Tiles::ffn_rows),
       .form = Form::tokens,
       .turn = 18,
       .others = halves_and_twice(&Tiles::ffn_rows, &Geometry::product_rows),
       .simplest = "whole tiles of feed-forward",
       .simplify = set<Tiles, std::int64_t>(&Strategy::tiles, &Tiles::ffn_rows, 0),
       .unused = unused_rows(&Tiles::ffn_rows, &Geometry::product_rows)},
      row_of_expert_slices(),
      row_of_expert_loop(),
      {.key = "tiles.loss_rows",
       .meaning = "rows of a tile of the loss; 0: the chunk",
       .member = at(&Strategy::tiles, &Tiles::loss_rows),
       .form = Form::tokens,
       .turn = 19,
       .others = halves_and_twice(&Tiles::loss_rows, &Geometry::local_rows),
       .simplest = "whole tiles of loss",
       .simplify = set<Tiles, std::int64_t>(&Strategy::tiles, &Tiles::loss_rows, 0),
       .unused = unused_rows(&Tiles::loss_rows, &Geometry::local_rows)},
      {.key = "tiles.loss_vocabulary",
       .meaning = "words of a tile of the loss; 0: the vocabulary",
       .member = at(&Strategy::tiles, &Tiles::loss_vocabulary),
       .form = Form::tokens,
       .turn = 20,
       .others =
           [](const Problem& problem, const Strategy& s, const Fits&) {
             return other_tiles(s, &Tiles::loss_vocabulary, problem.model.vocabulary);
           },
       .simplest = "one tile of the vocabulary",
       .simplify = set<Tiles, std::int64_t>(&Strategy::tiles, &Tiles::loss_vocabulary, 0),
       .unused =
           [](const Problem& problem, const Strategy& s, const LayerClass&, const Geometry&) {
             const std::int64_t words = problem.model.vocabulary;
             return s.tiles.loss_vocabulary < words
                        ? ""
                        : fmt::format("the vocabulary has {} words", words);
           }},
  };
}

}  // namespace fpdt
