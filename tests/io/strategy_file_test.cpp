// Strategies survive the round trip, and defaults equal those of the structs.
#include "fpdt/io/strategy_file.h"

#include <filesystem>
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string strategy_error(std::string_view text) {
  return input_error([&] { static_cast<void>(parse_strategy(text, "s.yaml")); });
}

TEST(StrategyFile, MissingKeysAreDefaults) {
  EXPECT_EQ(parse_strategy("{}", "s.yaml"), Strategy{});
  EXPECT_EQ(parse_strategy("tiles: {}", "s.yaml"), Strategy{});
}

// Every field differs from its default.
Strategy unusual() {
  LayerClass first{5, Recompute::keep_attention, 7, {}};
  first.keep[0] = 1;
  first.keep[kTensorClasses - 1] = 0.3;
  Strategy strategy;
  strategy.mesh = {2, 3, 4, 5};
  strategy.keys = Keys::ring;
  strategy.layout = Layout::zigzag;
  strategy.extent = Extent::whole;
  strategy.zero = 2;
  strategy.micro_batches = 3;
  strategy.head_stages = 6;
  strategy.storage = Storage::f32;
  strategy.key_gradients = Storage::bf16;
  strategy.keep = {0.25, 0.5, 0};
  strategy.segments = {4, 2};
  strategy.tiles = {5000, 64, 32, 100, 2, ExpertLoop::slices, BackwardOrder::q_outer, true, true};
  strategy.copies = {3, false, false, 12345};
  strategy.layer_classes = {first, LayerClass{0, Recompute::keep_all, 0, {}}};
  return strategy;
}

TEST(StrategyFile, RoundTrips) {
  EXPECT_EQ(parse_strategy(print_strategy(unusual()), "s.yaml"), unusual());
  EXPECT_EQ(parse_strategy(print_strategy(Strategy{}), "s.yaml"), Strategy{});
}

TEST(StrategyFile, PrintsForPeople) {
  const std::string text = print_strategy(unusual());
  EXPECT_THAT(text, HasSubstr("\n  chunk_tokens: 5000\n"));
  EXPECT_THAT(text,
              HasSubstr("\n  - layers: 5\n    recompute: keep_attention\n"
                        "    first_stored_chunk: 7\n"
                        "    keep: {layer_input: device, attention_sum: 0.3}\n  - layers: rest\n"));
  EXPECT_THAT(text, HasSubstr("\nkeep: {parameters: 0.25, gradients: 0.5, states: host}\n"
                              "segments: [4, 2]\n"));
  EXPECT_THAT(print_strategy(Strategy{}), HasSubstr("\n  chunk_tokens: 64K\n"));
  EXPECT_THAT(print_strategy(Strategy{}), HasSubstr("keep: {}\nsegments: 1\n"));
}

TEST(StrategyFile, EveryConfigLoads) {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/strategies"))) {
    EXPECT_NO_THROW(static_cast<void>(load_strategy(entry.path().string()))) << entry.path();
  }
  EXPECT_EQ(load_strategy(source_path("configs/strategies/fpdt-published.yaml")).tiles.chunk_tokens,
            65536);
}

TEST(StrategyFile, ResidenceIsAWordOrAFraction) {
  const Strategy strategy =
      parse_strategy("layer_classes: [{keep: {q: device, kv: 0.5, lse: host}}]", "s.yaml");
  const LayerClass& layers = strategy.layer_classes.at(0);
  EXPECT_EQ(layers.kept(TensorClass::q), 1);
  EXPECT_EQ(layers.kept(TensorClass::kv), 0.5);
  EXPECT_EQ(layers.kept(TensorClass::lse), 0);
  EXPECT_THAT(
      strategy_error("layer_classes: [{keep: {q: 2}}]"),
      HasSubstr("s.yaml:1:28: layer_classes[0].keep.q: expected device, host, or a fraction"));
  EXPECT_THAT(strategy_error("layer_classes: [{keep: {qq: 1}}]"),
              HasSubstr("keep.qq: unknown key"));
  EXPECT_THAT(strategy_error("layer_classes: [{layers: 0}]"), HasSubstr("at least 1 or \"rest\""));
}

TEST(StrategyFile, RefusesIntegerAbuse) {
  for (const char* tokens :
       {"-1", "9223372036854775808", "8589934592G", "1.5", "010", "64 KiB", "x"}) {
    EXPECT_THAT(strategy_error(std::string("tiles: {chunk_tokens: ") + tokens + "}"),
                HasSubstr("tiles.chunk_tokens: expected a token count"))
        << tokens;
  }
}

TEST(StrategyFile, SaysWhereOldKeysStandNow) {
  const std::string error = strategy_error(
      "data_parallel: 2\noptimizer_offload: true\noptimizer_tile: 4096\n"
      "fpdt:\n  chunk_tokens: 64K\n");
  EXPECT_THAT(error, HasSubstr("s.yaml:1:16: data_parallel: is now mesh.replicas"));
  EXPECT_THAT(error, HasSubstr("optimizer_offload: is now keep.states: host or device"));
  EXPECT_THAT(error, HasSubstr("optimizer_tile: is now copies.optimizer_tile"));
  EXPECT_THAT(error, HasSubstr("fpdt: is now tiles (chunk_tokens"));
  // A list of the keys that a file may have leaves them out.
  EXPECT_THAT(strategy_error("data_parallel: 2\nelsewhere: 1\n"),
              AllOf(HasSubstr("known are copies, extent, gradients, head_stages,"),
                    Not(HasSubstr("data_parallel,"))));
}

TEST(StrategyFile, FindsThePlaceOfAKey) {
  const ScratchDirectory scratch;
  const std::string path = scratch.write(
      "s.yaml",
      "mesh: {heads: 4, ring: 2}\nlayer_classes:\n  - layers: 1\n  - keep:\n      q: 2\n");
  EXPECT_EQ(place_of_key(path, "mesh.ring"), path + ":1:24");
  EXPECT_EQ(place_of_key(path, "layer_classes[1].keep.q"), path + ":5:10");
  EXPECT_EQ(place_of_key(path, "layer_classes[2].keep.q"), path);
  EXPECT_EQ(place_of_key(path, "tiles.chunk_tokens"), path);
}

}  // namespace
}  // namespace fpdt::test
