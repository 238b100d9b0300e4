// Segments of layers, thresholds of stored chunks, and classes with homes of their own: gradients
// are those of the reference, and no bit differs from a step that stores all attention outputs.
#include <array>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/spec/edits.h"

#include "against_reference.h"
#include "cases.h"

namespace fpdt {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kCases = 12;  // up to ten times slower each
#else
constexpr std::int64_t kCases = 70;  // each residency on each grid
#endif
constexpr std::int64_t kLayers = 6;
constexpr std::int64_t kChunks = 8;

struct Stored {
  std::int64_t layers;  // 0: the rest
  Recompute recompute;
  std::int64_t first = 0;  // stored chunk
};
struct Residency {
  const char* name;
  std::vector<std::int64_t> segments;
  std::vector<Stored> classes;
};

constexpr auto kInput = Recompute::from_input;
constexpr auto kAttention = Recompute::keep_attention;
const std::array kResidencies{
    Residency{"pairs", {2}, {{0, kAttention}}},
    Residency{"threes_from_3", {3}, {{0, kAttention, 3}}},
    Residency{"sixes_of_none", {6}, {{0, kAttention, kChunks}}},
    Residency{"twos_from_input", {2}, {{0, kInput}}},
    Residency{"threes_then_ones", {3, 1}, {{3, kAttention, 5}, {0, kAttention}}},
    Residency{"growing", {3, 2, 1}, {{2, kAttention, 4}, {0, kAttention, 1}}},
    Residency{"repeated_then_everything", {4, 1}, {{4, kInput}, {0, Recompute::keep_all}}},
    Residency{"mixed", {2, 4}, {{3, kInput}, {0, kAttention, 7}}},
    Residency{"ones_between",
              {1, 2, 1, 2},
              {{1, Recompute::keep_all, 2}, {3, kAttention, kChunks}, {0, kAttention, 6}}},
    Residency{"ones_in_classes", {1}, {{2, kAttention, 2}, {2, kInput}, {0, kAttention, 7}}}};

std::int64_t digit(std::int64_t& number, std::int64_t base) {
  const std::int64_t rest = number % base;
  number /= base;
  return rest;
}

// Ranks that share a sequence, as rings, heads and products.
struct Grid {
  std::int64_t ranks;
  std::int64_t ring = 1;
  Keys keys = Keys::resident;
  std::int64_t tensor = 1;
};
constexpr std::array kGrids{Grid{1},
                            Grid{2},
                            Grid{4},
                            Grid{2, 2, Keys::ring},
                            Grid{4, 2, Keys::gathered},
                            Grid{4, 4, Keys::ring},
                            Grid{4, 1, Keys::resident, 2}};

// The residency of a number in every grid, beside all that meets them.
Case case_of(std::int64_t number) {
  std::int64_t rest = number;
  const Residency& residency = kResidencies[index(digit(rest, std::ssize(kResidencies)))];
  const Grid& grid = kGrids[index(digit(rest, std::ssize(kGrids)))];
  ModelSpec model =
      std::array{tiny_llama, tiny_gpt, tiny_qwen3, tiny_neox}[index(digit(rest, 4))]();
  model.layers = kLayers;
  Case one = make_case(model, grid.ranks, digit(rest, 2) == 0 ? 31 : 32, 4);
  one.problem.documents = digit(rest, 2) == 0;
  Strategy& strategy = one.strategy;
  strategy = with_ring(strategy, grid.ring);
  strategy.keys = grid.keys;
  strategy.mesh.tensor = grid.tensor;
  strategy.zero = digit(rest, 4);
  strategy.tiles.backward_order = static_cast<BackwardOrder>(digit(rest, 2));
  strategy.copies.overlap_all_to_all = digit(rest, 2) == 0;
  strategy.micro_batches = 1 + digit(rest, 2);
  if (digit(rest, 3) == 2) strategy.storage = Storage::bf16;
  if (grid.ring > 1 && digit(rest, 2) == 0) strategy.layout = Layout::zigzag;
  strategy.tiles.serpentine = digit(rest, 3) == 0;
  if (grid.ring == 1) strategy.tiles.long_tiles = digit(rest, 2) == 0;
  strategy.copies.duplex = digit(rest, 2) == 0;
  strategy.segments = residency.segments;
  strategy.layer_classes.clear();
  const std::int64_t kept = digit(rest, 3);
  for (const Stored& stored : residency.classes) {
    LayerClass& made = strategy.layer_classes.emplace_back();
    made.layers = stored.layers;
    made.recompute = stored.recompute;
    made.first_stored_chunk = stored.first;
    made.keep.fill(0.5 * static_cast<double>(kept));
    const auto input = static_cast<std::size_t>(TensorClass::layer_input);
    made.keep[input] = 0.5 * static_cast<double>(digit(rest, 3));
  }
  std::int64_t homes = digit(rest, std::ssize(kStateHomes));
  do {
    strategy.keep = kStateHomes[index(homes)];
  } while (!check(one.problem, strategy).empty() && homes-- > 0);
  strategy.gradients = digit(rest, 2) == 0 ? Storage::bf16 : Storage::f32;
  if (!check(one.problem, strategy).empty()) strategy.gradients = Storage::f32;
  if (digit(rest, 2) == 0) strategy.layer_gradients = LayerGradients::in_inputs;
  if (digit(rest, 2) == 0) strategy.queries = Queries::again;
  if (grid.tensor == 1 && model.qk_norm && digit(rest, 2) == 0) {
    one.problem.model.joint_qk_norm = one.problem.model.post_norms = true;
    one.problem.model.pre_norms = false;
  }
  one.name = fmt::format("{}_{}_{}_ranks{}_ring{}_tensor{}_zero{}", number, residency.name,
                         model.name.substr(5), grid.ranks, grid.ring, grid.tensor, strategy.zero);
  return one;
}

// A step through the product that has no factor in common with it. With FPDT_WHOLE_PRODUCT, many
// more cases, by hand.
std::vector<Case> cases() {
  constexpr std::int64_t kStep = 7'368'787;
  const std::int64_t count = std::getenv("FPDT_WHOLE_PRODUCT") != nullptr ? 20'000 : kCases;
  std::vector<Case> made;
  for (std::int64_t draw = 0; draw < count; ++draw) {
    // Each residency meets each grid in turn.
    const std::int64_t pairs = std::ssize(kResidencies) * std::ssize(kGrids);
    made.push_back(case_of(draw % pairs + draw * kStep % (std::int64_t{1} << 40) * pairs));
  }
  return made;
}

class Residencies : public testing::TestWithParam<Case> {};

TEST_P(Residencies, EqualReferenceAndChangeNoBits) {
  const Case& one = GetParam();
  ASSERT_EQ(format_diagnostics(check(one.problem, one.strategy)), "");
  expect_equals_reference(one);
  Case plain = one;
  plain.strategy.segments = {1};
  plain.strategy.keep = kStateHomes.front();
  plain.strategy.layer_gradients = LayerGradients::apart;
  plain.strategy.queries = Queries::stored;
  plain.strategy.layer_classes.resize(1);
  plain.strategy.layer_classes[0] = LayerClass{};
  plain.strategy.layer_classes[0].recompute = kAttention;
  Rig some(one, Rig::in_order()), all(plain, Rig::in_order());
  const auto samples = random_samples(one.problem, some.trainer.samples_per_step(), 1);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(some.trainer.step(samples, 1e-2).loss, all.trainer.step(samples, 1e-2).loss);
  }
  EXPECT_EQ(all_of(some.trainer, "parameter"), all_of(all.trainer, "parameter"));
}

INSTANTIATE_TEST_SUITE_P(Drawn, Residencies, testing::ValuesIn(cases()),
                         [](const auto& which) { return which.param.name; });

// Sums that leave the device, or are rounded, come back for each micro-batch.
TEST(MicroBatches, AddToSumsWhereverTheseAre) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    for (const std::int64_t layers : {1, 3}) {
      ModelSpec model = tiny_llama();
      model.layers = layers;
      Case one = make_case(model, ranks, 24, 8);
      one.strategy.micro_batches = 3;
      one.strategy.zero = layers == 1 ? 2 : 3;
      one.strategy.mesh.replicas = ranks == 4 ? 2 : 1;
      one.name = fmt::format("{} ranks, {} layers", ranks, layers);
      Case hosted = one;
      hosted.strategy.keep = kStateHomes[2];
      Rig here(one, Rig::in_order()), there(hosted, Rig::in_order());
      const auto samples = random_samples(one.problem, here.trainer.samples_per_step(), 1);
      for (int step = 0; step < 2; ++step) {
        EXPECT_EQ(here.trainer.step(samples, 1e-2).loss, there.trainer.step(samples, 1e-2).loss);
      }
      EXPECT_EQ(all_of(here.trainer, "parameter"), all_of(there.trainer, "parameter")) << one.name;
      Case whole = one;
      whole.strategy.zero = 1;
      for (Case* rounded : {&one, &hosted, &whole}) {
        rounded->strategy.storage = Storage::bf16;
        rounded->strategy.gradients = Storage::bf16;
        ASSERT_EQ(format_diagnostics(check(rounded->problem, rounded->strategy)), "");
        expect_equals_reference(*rounded);
      }
    }
  }
}

}  // namespace
}  // namespace fpdt
