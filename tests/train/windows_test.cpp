// Attention windows and kinds of layers against the reference: windows around the edges of chunks,
// over meshes, layouts, loops and residencies.
#include <algorithm>
#include <array>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/spec/edits.h"

#include "against_reference.h"
#include "cases.h"

namespace fpdt {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kDrawn = 60;  // up to ten times slower each
#else
constexpr std::size_t kDrawn = 300;
#endif
constexpr std::int64_t kChunk = 12, kTokens = 41;  // the last chunk is ragged

struct Grid {
  std::int64_t ranks, ring, tensor = 1, replicas = 1;
};
constexpr std::array kGrids{Grid{1, 1}, Grid{2, 1}, Grid{4, 1},    Grid{2, 2},    Grid{3, 3},
                            Grid{4, 2}, Grid{4, 4}, Grid{2, 1, 2}, Grid{4, 2, 2}, Grid{4, 1, 1, 2}};
// A token itself, around one chunk, two, several, and beyond the sequence.
constexpr std::array<std::int64_t, 10> kWindows{1, 2, 7, 11, 12, 13, 14, 25, 38, 100};

ModelSpec of_kinds(ModelSpec model, std::int64_t window, std::int64_t form) {
  model.layers = 3;
  model.kinds.front().window = window;
  if (form == 0) return model;
  // A window and another rotary base beside layers that see everything, or a second window.
  LayerKind other = model.kinds.front();
  model.kinds.front().name = "window";
  other.name = "full";
  other.window = form == 1 ? 0 : window + 5;
  other.rotary.theta = 500;
  model.kinds.push_back(other);
  model.pattern = {0, 1};
  return model;
}

// One of everything, drawn; `check` may refuse it.
Case draw(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto of = [&](const auto& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::uint32_t>(list.size())))];
  };
  constexpr std::array<std::int64_t, 3> kHalves{0, 1, 2}, kHeads{4, 2, 1}, kSegments{1, 2, 3};
  const Grid grid = of(kGrids);
  const std::int64_t window = of(kWindows), form = below(3);
  const std::int64_t family = below(6);
  ModelSpec model = family == 0   ? tiny_gpt()
                    : family == 1 ? tiny_qwen3()
                    : family == 2 ? tiny_neox()
                    : family == 3 ? (form == 0 ? tiny_olmo() : tiny_llama())
                    : family == 4 ? tiny_gemma2()
                                  : tiny_gemma();
  if (family != 0 && family != 2) model.kv_heads = of(kHeads);
  if (model.learned_positions > 0) model.learned_positions = 48;
  Case one = make_case(of_kinds(std::move(model), window, form), grid.ranks, kTokens, kChunk);
  one.problem.documents = below(3) > 0;
  Strategy& strategy = one.strategy;
  strategy.mesh.replicas = grid.replicas;
  strategy.mesh.tensor = grid.tensor;
  strategy.mesh.ring = grid.ring;
  if (grid.ring > 1) {
    strategy.keys = below(2) == 0 ? Keys::ring : Keys::gathered;
    if (below(2) == 0) strategy.layout = Layout::zigzag;
  }
  if (below(6) == 0) strategy.tiles.chunk_tokens = 48;
  strategy.tiles.ffn_rows = 2 * below(2);
  strategy.zero = below(4);
  strategy.micro_batches = 1 + below(2);
  strategy.tiles.backward_order = below(2) == 0 ? BackwardOrder::kv_outer : BackwardOrder::q_outer;
  strategy.tiles.serpentine = below(2) == 0;
  strategy.tiles.long_tiles = below(2) == 0 && strategy.keys != Keys::ring;
  strategy.copies.prefetch_depth = below(3);
  strategy.copies.duplex = below(2) == 0;
  strategy.copies.overlap_all_to_all = below(2) == 0;
  if (below(5) == 0) strategy.extent = Extent::whole;
  if (below(4) == 0) strategy.storage = Storage::bf16;
  if (below(3) == 0) strategy.queries = Queries::again;
  if (below(3) == 0) strategy.layer_gradients = LayerGradients::in_inputs;
  strategy.segments = {of(kSegments)};
  strategy.layer_classes.assign(static_cast<std::size_t>(1 + below(2)), LayerClass{});
  if (strategy.layer_classes.size() == 2) strategy.layer_classes.front().layers = 1;
  for (LayerClass& layers : strategy.layer_classes) {
    layers.recompute = static_cast<Recompute>(below(3));
    layers.first_stored_chunk = below(3) == 0 ? 1 : 0;
    for (double& kept : layers.keep) kept = static_cast<double>(of(kHalves)) / 2;
  }
  one.name = fmt::format("window{}_form{}_ranks{}_ring{}_tensor{}", window, form, grid.ranks,
                         grid.ring, grid.tensor);
  return one;
}

class Windows : public testing::TestWithParam<Case> {};

TEST_P(Windows, EqualReference) { expect_equals_reference(GetParam()); }

// About every second one has sinks as well. No Gemma has them.
Case draw_with_sinks(std::mt19937& random) {
  Case one = draw(random);
  std::mt19937 aside = random;  // without sinks the cases would be the same
  one.problem.model.sinks = aside() % 2 == 0 && one.problem.model.family != Family::gemma;
  if (one.problem.model.sinks) one.name += "_sinks";
  return one;
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Drawn, Windows,
                         testing::ValuesIn(drawn_cases(kDrawn, 20261126, draw_with_sinks)),
                         name_of);

std::int64_t tiles_of(const Schedule& schedule, std::string_view block) {
  const auto found = std::find_if(schedule.blocks.begin(), schedule.blocks.end(),
                                  [&](const Block& one) { return one.name == block; });
  return std::count_if(found->ops.begin(), found->ops.end(), [](const Op& op) {
    return std::holds_alternative<AttentionForward>(op.body) ||
           std::holds_alternative<AttentionBackward>(op.body);
  });
}

// With chunks of at least the window, a row has two tiles.
TEST(WindowTiles, AreThoseOfTheBand) {
  for (const auto& [window, forward] : {std::pair{1, 4}, {2, 7}, {13, 7}, {14, 9}, {100, 10}}) {
    for (const BackwardOrder order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
      Case one = make_case(of_kinds(tiny_llama(), window, 0), 2, kTokens, kChunk);
      one.strategy.tiles.backward_order = order;
      one.strategy.layer_classes.front().recompute = Recompute::keep_attention;
      const Lowered lowered = lower(one.problem, one.strategy);
      EXPECT_EQ(tiles_of(lowered.schedule.schedule(), "forward"), forward) << window;
      EXPECT_EQ(tiles_of(lowered.schedule.schedule(), "backward"), forward) << window;
    }
  }
}

// Bytes that a rank sends to the next members of its ring in a block.
std::int64_t bytes_around(const Schedule& schedule, const Block& block) {
  std::int64_t sum = 0;
  for (const Op& op : block.ops) {
    const auto* exchange = std::get_if<Exchange>(&op.body);
    if (exchange == nullptr) continue;
    const Buffer& buffer = schedule.buffers[index(exchange->send.front().buffer)];
    const std::int64_t rows = exchange->send.front().rows;
    sum += buffer.slot_bytes().value / buffer.shape[0] * (rows < 0 ? buffer.shape[0] : rows);
  }
  return sum;
}

// Keys go on to as many members of the ring as see some of them, all keys of a run or its halo: a
// run of a chunk has 3 tokens. What they send is known in closed form.
TEST(WindowHops, ReachAsFarAsTheWindow) {
  for (const auto& [window, hops] : {std::pair{1, 0}, {2, 1}, {4, 1}, {5, 2}, {8, 3}, {100, 3}}) {
    Case one = make_case(of_kinds(tiny_llama(), window, 0), 4, 48, kChunk);
    one.strategy.mesh.ring = 4;
    one.strategy.keys = Keys::ring;
    const Schedule lowered = lower(one.problem, one.strategy).schedule.schedule();
    const ModelSpec& model = one.problem.model;
    const std::int64_t run = 4 * 2 * model.kv_heads * model.head_dim * std::min(window - 1, 3);
    for (const Block& block : lowered.blocks) {
      if (block.name != "forward" && block.name != "backward") continue;
      // Keys of four chunks. Backward repeats forward, brings them again and gives gradients home.
      const std::int64_t times = block.name == "forward" ? 4 : 12;
      EXPECT_EQ(bytes_around(lowered, block), times * hops * run) << window << block.name;
    }
    one.strategy.layout = Layout::zigzag;
    expect_equals_reference(one);
  }
}

// Runs of a chunk have 6 tokens, and 5 in the last chunk. Up to a window of 6, members send each
// other no more than the keys that the next run sees, and get the gradients of these back.
TEST(WindowHalos, AreTheLastKeysOfARun) {
  int corner = 0;
  for (const std::int64_t window : {2, 5, 6, 7}) {
    for (const BackwardOrder order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
      for (const double kept : {0.0, 0.5, 1.0}) {
        SCOPED_TRACE(fmt::format("window {}, corner {}", window, ++corner));
        Case one = make_case(of_kinds(tiny_llama(), window, corner % 3), 4, kTokens, 24);
        one.problem.documents = corner % 2 == 0;
        Strategy& strategy = one.strategy;
        strategy.mesh.ring = 4;
        strategy.keys = Keys::ring;
        strategy.tiles.backward_order = order;
        strategy.storage = corner % 5 == 0 ? Storage::bf16 : Storage::f32;
        if (corner % 10 == 0) strategy.key_gradients = Storage::bf16;
        if (corner % 4 < 2) strategy.layout = Layout::zigzag;
        strategy = with_kept(strategy, TensorClass::kv, kept);
        strategy = with_kept(strategy, TensorClass::dkv, kept);
        expect_equals_reference(one);
        const Schedule lowered = lower(one.problem, strategy).schedule.schedule();
        std::int64_t least = kTokens;
        for (const Block& block : lowered.blocks) {
          for (const Op& op : block.ops) {
            if (const auto* tile = std::get_if<AttentionForward>(&op.body)) {
              least = std::min(least, tile->k_rows);
            }
          }
        }
        EXPECT_EQ(least, window <= 6 ? window - 1 : 5);
      }
    }
  }
}

// A schedule that runs a layer with the window or the rotary base of another kind computes another
// model.
TEST(KindsOfLayers, AreThoseOfThePattern) {
  const Case one = make_case(of_kinds(tiny_llama(), 5, 1), 1, kTokens, kChunk);
  const Stated stated = stated_by(one.problem, one.strategy);
  const Schedule lowered = lower(one.problem, one.strategy).schedule.schedule();
  EXPECT_EQ(format_diagnostics(verify_stated(lowered, stated)), "");
  const auto block = [&](std::string_view name) {
    const auto found = std::find_if(lowered.blocks.begin(), lowered.blocks.end(),
                                    [&](const Block& candidate) { return candidate.name == name; });
    return static_cast<std::int32_t>(found - lowered.blocks.begin());
  };
  const std::int32_t window = block("forward_window"), full = block("forward_full");
  Stated with_sinks = stated;
  with_sinks.sinks = true;
  EXPECT_NE(format_diagnostics(verify_stated(lowered, with_sinks)).find("attention has no sinks"),
            std::string::npos);
  Stated with_norms = stated;
  with_norms.qk_norm = true;
  EXPECT_NE(format_diagnostics(verify_stated(lowered, with_norms)).find("heads are not normed"),
            std::string::npos);
  Schedule swapped = lowered;
  for (Call& call : swapped.train) {
    if (call.block == window || call.block == full) call.block = window + full - call.block;
  }
  const std::string found = format_diagnostics(verify_stated(swapped, stated));
  EXPECT_NE(found.find("window is 0, and the problem says 5"), std::string::npos) << found;
  EXPECT_NE(found.find("the rotary embedding is not that of the problem"), std::string::npos);
}

}  // namespace
}  // namespace fpdt
