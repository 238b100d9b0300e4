// Strategies survive the round trip, and defaults equal those of the structs.
#include "fpdt/io/strategy_file.h"

#include <filesystem>
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

std::string strategy_error(std::string_view text) {
  return input_error([&] { static_cast<void>(parse_strategy(text, "s.yaml")); });
}

TEST(StrategyFile, MissingKeysAreDefaults) {
  EXPECT_EQ(parse_strategy("{}", "s.yaml"), Strategy{});
  EXPECT_EQ(parse_strategy("fpdt: {}", "s.yaml"), Strategy{});
}

// Every field differs from its default.
Strategy unusual() {
  Strategy strategy{2, 3, Storage::f32, true, 12345, {}};
  LayerClass first{5, Recompute::keep_attention, {}};
  first.keep[0] = 1;
  first.keep[kTensorClasses - 1] = 0.3;
  strategy.fpdt = {5000,
                   64,
                   32,
                   100,
                   BackwardOrder::q_outer,
                   true,
                   true,
                   3,
                   false,
                   false,
                   2,
                   {first, LayerClass{0, Recompute::keep_all, {}}}};
  return strategy;
}

TEST(StrategyFile, RoundTrips) {
  EXPECT_EQ(parse_strategy(print_strategy(unusual()), "s.yaml"), unusual());
  EXPECT_EQ(parse_strategy(print_strategy(Strategy{}), "s.yaml"), Strategy{});
}

TEST(StrategyFile, PrintsForPeople) {
  const std::string text = print_strategy(unusual());
  EXPECT_THAT(text, HasSubstr("\n  chunk_tokens: 5000\n"));
  EXPECT_THAT(text, HasSubstr("\n    - layers: 5\n      recompute: keep_attention\n"
                              "      keep: {layer_input: 1, dkv: 0.3}\n    - layers: rest\n"));
  EXPECT_THAT(print_strategy(Strategy{}), HasSubstr("\n  chunk_tokens: 64K\n"));
}

TEST(StrategyFile, EveryConfigLoads) {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/strategies"))) {
    EXPECT_NO_THROW(static_cast<void>(load_strategy(entry.path().string()))) << entry.path();
  }
  EXPECT_EQ(load_strategy(source_path("configs/strategies/fpdt-published.yaml")).fpdt.chunk_tokens,
            65536);
}

TEST(StrategyFile, ResidenceIsAWordOrAFraction) {
  const Strategy strategy =
      parse_strategy("fpdt: {layer_classes: [{keep: {q: device, kv: 0.5, lse: host}}]}", "s.yaml");
  const LayerClass& layers = strategy.fpdt.layer_classes.at(0);
  EXPECT_EQ(layers.kept(TensorClass::q), 1);
  EXPECT_EQ(layers.kept(TensorClass::kv), 0.5);
  EXPECT_EQ(layers.kept(TensorClass::lse), 0);
  EXPECT_THAT(
      strategy_error("fpdt: {layer_classes: [{keep: {q: 2}}]}"),
      HasSubstr("s.yaml:1:35: fpdt.layer_classes[0].keep.q: expected device, host, or a fraction"));
  EXPECT_THAT(strategy_error("fpdt: {layer_classes: [{keep: {qq: 1}}]}"),
              HasSubstr("keep.qq: unknown key"));
  EXPECT_THAT(strategy_error("fpdt: {layer_classes: [{layers: 0}]}"),
              HasSubstr("at least 1 or \"rest\""));
}

TEST(StrategyFile, RefusesIntegerAbuse) {
  for (const char* tokens :
       {"-1", "9223372036854775808", "8589934592G", "1.5", "010", "64 KiB", "x"}) {
    EXPECT_THAT(strategy_error(std::string("fpdt: {chunk_tokens: ") + tokens + "}"),
                HasSubstr("fpdt.chunk_tokens: expected a token count"))
        << tokens;
  }
}

}  // namespace
}  // namespace fpdt::test
