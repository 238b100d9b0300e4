// Draws cases from the product of their choices.
#include "tensor_cases.h"

#include <array>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/spec/edits.h"

namespace fpdt {
namespace {

struct Grid {
  std::int64_t ranks, tensor, ring = 1, replicas = 1;
};
constexpr std::array kGrids{Grid{2, 2},       Grid{4, 4},       Grid{4, 2},      Grid{4, 2, 2},
                            Grid{6, 2, 3},    Grid{4, 2, 1, 2}, Grid{8, 2, 2},   Grid{8, 4, 2},
                            Grid{8, 2, 2, 2}, Grid{12, 2, 3},   Grid{8, 4, 1, 2}};

// Divides the number, and returns the rest.
std::int64_t digit(std::int64_t& number, std::int64_t base) {
  const std::int64_t rest = number % base;
  number /= base;
  return rest;
}

Case case_of(const Grid& grid, ModelSpec model, std::int64_t number) {
  model.tied_embeddings = digit(number, 2) == 1;
  const bool ragged = digit(number, 2) == 1;
  const bool chunked = digit(number, 3) > 0;
  Case one =
      make_case(model, grid.ranks, ragged ? 45 : 48, round_up(chunked ? 20 : 48, grid.ranks));
  Strategy& strategy = one.strategy;
  strategy.mesh.replicas = grid.replicas;
  strategy.mesh.tensor = grid.tensor;
  strategy = with_ring(strategy, grid.ring);
  if (grid.ring > 1) {
    if (digit(number, 2) == 1) strategy.keys = Keys::ring;
    if (digit(number, 2) == 1) strategy.layout = Layout::zigzag;
  }
  one.problem.documents = digit(number, 3) > 0;
  strategy.layer_classes.front().recompute = static_cast<Recompute>(digit(number, 3));
  strategy.layer_classes.front().keep.fill(0.5 * static_cast<double>(digit(number, 3)));
  strategy.zero = digit(number, 4);
  strategy.tiles.backward_order = static_cast<BackwardOrder>(digit(number, 2));
  strategy.tiles.ffn_rows = digit(number, 2) * 3;
  strategy.micro_batches = 1 + digit(number, 2);
  strategy.copies.overlap_all_to_all = digit(number, 2) == 1;
  strategy.offload_states(digit(number, 3) == 1);
  strategy.copies.optimizer_tile = 1024;
  if (digit(number, 4) == 3) strategy.storage = Storage::bf16;
  if (!chunked && digit(number, 2) == 1) strategy.extent = Extent::whole;
  return one;
}

}  // namespace

std::vector<Case> tensor_cases(std::size_t each) {
  // A step through the product that has no factor in common with it.
  constexpr std::int64_t kStep = 7'368'787;
  constexpr std::int64_t kProduct = std::int64_t{1} << 40;
  std::vector<Case> cases;
  std::size_t number = 0;
  for (const Grid& grid : kGrids) {
    for (const ModelSpec& family : {tiny_llama(), tiny_gpt(), tiny_qwen3(), tiny_neox()}) {
      for (const std::int64_t kv_heads : {4, 2, 1}) {
        for (int draw = 0; draw < 4; ++draw, ++number) {
          ModelSpec model = family;
          model.kv_heads = kv_heads;
          Case one = case_of(grid, model, static_cast<std::int64_t>(number) * kStep % kProduct);
          if (number % each != 0 || !check(one.problem, one.strategy).empty()) continue;
          const Mesh& mesh = one.strategy.mesh;
          one.name =
              fmt::format("{}_{}_kv{}_ranks{}_tensor{}_ring{}_dp{}", number, model.name.substr(5),
                          kv_heads, grid.ranks, mesh.tensor, mesh.ring, mesh.replicas);
          cases.push_back(std::move(one));
        }
      }
    }
  }
  return cases;
}

std::vector<Case> whole_tensor_product() {
  std::vector<Case> cases;
  for (std::int64_t number = 0; number < 3 * 2 * 3 * 2 * 3 * 4 * 16; ++number) {
    std::int64_t rest = number;
    const std::int64_t tensor = std::int64_t{1} << digit(rest, 3), heads = 1 + digit(rest, 2);
    const std::int64_t ring = 1 + digit(rest, 3), replicas = 1 + digit(rest, 2);
    const std::int64_t kv_heads = std::array{4, 2, 1}[static_cast<std::size_t>(digit(rest, 3))];
    ModelSpec model = std::array{tiny_llama, tiny_gpt, tiny_qwen3,
                                 tiny_neox}[static_cast<std::size_t>(digit(rest, 4))]();
    model.kv_heads = kv_heads;
    model.tied_embeddings = digit(rest, 2) == 1;
    if (digit(rest, 2) == 1) model.qkv_bias = !model.qkv_bias;
    const std::int64_t ranks = tensor * heads * ring * replicas;
    const std::int64_t unit = ranks / replicas;
    Case one = make_case(model, ranks, digit(rest, 2) == 1 ? 31 : 32, round_up(12, unit));
    one.problem.documents = digit(rest, 2) == 1;
    Strategy& strategy = one.strategy;
    strategy.mesh.tensor = tensor;
    strategy.mesh.replicas = replicas;
    strategy = with_ring(strategy, ring);
    // What lies in every combination with the rest of the strategy is drawn by tensor_cases.
    if (ring > 1 && number % 2 == 0) strategy.keys = Keys::ring;
    strategy.layer_classes.front().recompute = static_cast<Recompute>(number % 3);
    strategy.zero = number % 4;
    if (!check(one.problem, strategy).empty()) continue;
    one.name = fmt::format("{}_{}_kv{}_tensor{}_heads{}_ring{}_dp{}", number, model.name.substr(5),
                           kv_heads, tensor, heads, ring, replicas);
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace fpdt
