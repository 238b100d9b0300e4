// What is alive in a stack, followed through forward and backward.
#include "fpdt/plan/lowering/stack.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/spec/edits.h"

namespace fpdt {
namespace {

struct Drawn {
  Strategy strategy;
  std::int64_t layers = 1;
  Stack::Contents contents;
};

Drawn draw(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % 1000) % (most + 1);
  };
  Drawn made;
  made.layers = 2 + up_to(12);
  made.strategy.segments.clear();
  for (std::int64_t left = made.layers; left > 0; left -= made.strategy.segments.back()) {
    made.strategy.segments.push_back(1 + up_to(std::min<std::int64_t>(left - 1, 5)));
  }
  made.strategy.layer_classes.resize(static_cast<std::size_t>(1 + up_to(1)));
  made.strategy.layer_classes.front().layers = 1 + up_to(made.layers - 2);
  if (made.strategy.layer_classes.size() == 1) made.strategy.layer_classes.front().layers = 0;
  made.contents.input = up_to(3);
  made.contents.gradients = up_to(1) == 1;
  for (std::size_t c = 0; c < made.strategy.layer_classes.size(); ++c) {
    made.contents.outputs.push_back({up_to(3), up_to(3)});
  }
  return made;
}

// The slots of a stack, each with the version that is alive there or was last.
class Slots {
 public:
  explicit Slots(const Stack& stack) : stack_(stack) {}

  void at(const LayerPlace& place, std::int64_t layer) { place_ = place, layer_ = layer; }
  // Begins a value in some slots, which are free, and later in time than what was there.
  std::int64_t write(const Version& version, std::int64_t count) {
    const std::int64_t first = number(version);
    for (std::int64_t v = first; v < first + count; ++v) {
      Slot& slot = slots_[v % stack_.slots()];
      EXPECT_FALSE(slot.alive);
      EXPECT_GT(v, slot.version);
      slot = {v, true};
    }
    alive_ += count;
    most_ = std::max(most_, alive_);
    return first;
  }
  // Reads a value for the last time.
  void end(const Version& version, std::int64_t count) {
    for (std::int64_t v = number(version); count > 0; ++v, --count, --alive_) {
      Slot& slot = slots_[v % stack_.slots()];
      EXPECT_TRUE(slot.alive);
      EXPECT_EQ(slot.version, v);
      slot.alive = false;
    }
  }
  [[nodiscard]] std::int64_t most() const { return most_; }
  [[nodiscard]] std::int64_t alive() const { return alive_; }

 private:
  struct Slot {
    std::int64_t version = -1;
    bool alive = false;
  };
  [[nodiscard]] std::int64_t number(const Version& v) const {
    return v.offset + v.layer * layer_ + v.segment * place_.segment + v.place * place_.place;
  }

  const Stack& stack_;
  LayerPlace place_;
  std::int64_t layer_ = 0;
  std::map<std::int64_t, Slot> slots_;
  std::int64_t alive_ = 0, most_ = 0;
};

// A step as a lowering takes it: forward; then for each segment from the last its rerun and its
// backward.
class Step {
 public:
  Step(const Drawn& drawn, std::vector<LayerPlace> places)
      : contents_(drawn.contents),
        places_(std::move(places)),
        stack_(places_, contents_),
        slots_(stack_) {}

  void run() {
    const std::int64_t layers = std::ssize(places_);
    write(0, Visit::forward);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const LayerPlace place = go_to(layer);
      slots_.write(stack_.stored(place.layer_class), outputs(layer).stored);
      write(layer + 1, Visit::forward);
      if (!place.first()) end(layer, Visit::forward);
    }
    end(layers, Visit::forward);
    if (contents_.gradients) write_gradient(layers);
    for (std::int64_t last = layers - 1; last >= 0;) {
      const std::int64_t first = last - places_[index(last)].place;
      for (std::int64_t layer = first; layer < last; ++layer) {
        go_to(layer);
        slots_.write(stack_.repeated(), outputs(layer).repeated);
        write(layer + 1, Visit::rerun);
      }
      go_to(last);
      slots_.write(stack_.repeated(), outputs(last).repeated);
      for (std::int64_t layer = last; layer >= first; --layer) backward(layer);
      last = first - 1;
    }
    if (contents_.gradients) end_gradient(0);
    EXPECT_EQ(slots_.alive(), 0);
  }

  [[nodiscard]] const Slots& slots() const { return slots_; }
  [[nodiscard]] const Stack& stack() const { return stack_; }

 private:
  [[nodiscard]] Stack::Outputs outputs(std::int64_t layer) const {
    return contents_.outputs[places_[index(layer)].layer_class];
  }
  // The head is where another segment would be.
  LayerPlace go_to(std::int64_t layer) {
    LayerPlace place{.segment = contents_.count - 1};
    if (layer < std::ssize(places_)) place = places_[index(layer)];
    slots_.at(place, layer);
    return place;
  }
  void write(std::int64_t layer, Visit visit) {
    slots_.write(stack_.input(go_to(layer), visit), contents_.input);
    if (layer > 0) go_to(layer - 1);
  }
  void end(std::int64_t layer, Visit visit) {
    slots_.end(stack_.input(go_to(layer), visit), contents_.input);
  }
  void write_gradient(std::int64_t layer) {
    slots_.write(stack_.gradient(go_to(layer)), contents_.input);
  }
  void end_gradient(std::int64_t layer) {
    slots_.end(stack_.gradient(go_to(layer)), contents_.input);
  }
  void backward(std::int64_t layer) {
    const LayerPlace place = go_to(layer);
    slots_.end(stack_.repeated(), outputs(layer).repeated);
    slots_.end(stack_.stored(place.layer_class), outputs(layer).stored);
    end(layer, Visit::backward);
    if (!contents_.gradients) return;
    end_gradient(layer + 1);
    write_gradient(layer);
  }

  Stack::Contents contents_;
  std::vector<LayerPlace> places_;
  Stack stack_;
  Slots slots_;
};

TEST(Stack, HasNoTwoThingsInOneSlot) {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    Drawn drawn = draw(seed);
    const std::vector<LayerPlace> places = layer_places(drawn.strategy, drawn.layers);
    drawn.contents.count = places.back().segment + 2;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Step step(drawn, places);
    if (step.stack().slots() > 0) step.run();
    EXPECT_GE(step.stack().slots(), step.slots().most());
    if (HasFailure()) return;
  }
}

// The search chooses segments by a formula of its own (spec/edits.h).
TEST(Stack, IsAsLongAsSegmentsAreSaidToNeed) {
  constexpr std::int64_t kLayers = 32, kChunks = 64;
  for (std::int64_t count = 1; count <= kLayers; ++count) {
    for (const std::int64_t repeated : {0, 1, 20, 55, 64}) {
      const double share = static_cast<double>(repeated) / kChunks;
      const Segments segments = least_segments(kLayers, count, {share, 1 - share});
      Strategy strategy;
      strategy.segments = segments.lengths;
      const Stack stack(layer_places(strategy, kLayers),
                        {.first = 0,
                         .count = count + 1,
                         .input = kChunks,
                         .gradients = true,
                         .outputs = {{repeated, kChunks - repeated}}});
      EXPECT_NEAR(static_cast<double>(stack.slots()), kChunks * segments.memory, 0.1)
          << count << " segments, " << repeated << " chunks repeated";
    }
  }
}

// Eight segments of 32 layers, whose inputs and outputs are as large: nine inputs at the first
// moment of backward, then ever fewer inputs and more outputs.
TEST(Stack, InputsAndOutputsMakeRoomForEachOther) {
  Strategy strategy;
  strategy.segments = {6, 6, 5, 5, 4, 3, 2, 1};
  Stack::Contents contents{
      .first = 0, .count = 9, .input = 10, .gradients = true, .outputs = {{10, 0}}};
  const std::vector<LayerPlace> places = layer_places(strategy, 32);
  EXPECT_EQ(Stack(places, contents).slots(), 140);
  contents.outputs = {};
  EXPECT_EQ(Stack(places, contents).slots(), 90);
  contents.input = 0;
  contents.outputs = {{10, 0}};
  EXPECT_EQ(Stack(places, contents).slots(), 60);
  contents.outputs = {{0, 10}};
  EXPECT_EQ(Stack(places, contents).slots(), 320);
}

}  // namespace
}  // namespace fpdt
