// Blocks of layers and gathers, and the order in which a step calls them.
//
// With checkpoint_every = k, layers k*s .. k*s+k-1 form segment s. Only the input of its first
// layer is stored across the step; backward of a segment first repeats forward through its first
// k-1 layers.
#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/lowering.h"

namespace fpdt {
namespace {

// Numbers the gathers that a layer reads from, over the step. Forward gathers layers 0 .. L-1 once
// a micro-batch. Backward gathers them again in reverse; with k = 1 it finds the last layer still
// gathered.
struct GatherCount {
  std::int64_t layers, every;

  [[nodiscard]] std::int64_t segments() const { return layers / every; }
  [[nodiscard]] std::int64_t of_micro_batch() const {
    return every == 1 ? 2 * layers - 1 : layers + segments() * (2 * every - 1);
  }
  [[nodiscard]] Version forward() const { return Version::at(0, 1, of_micro_batch()); }
  // Layer l of segment s, repeated: L + (T-1-s)(2k-1) + (l - k*s).
  [[nodiscard]] Version rerun() const {
    const std::int64_t turn = 2 * every - 1;
    return Version::at(layers + (segments() - 1) * turn, 1, of_micro_batch(), -turn - every);
  }
  // Layer l of segment s, backward: k-1 repeats before it, then (k-1) - (l - k*s).
  [[nodiscard]] Version backward() const {
    if (every == 1) return Version::at(2 * layers - 2, -1, of_micro_batch());
    const std::int64_t turn = 2 * every - 1;
    return Version::at(layers + (segments() - 1) * turn + 2 * (every - 1), -1, of_micro_batch(),
                       -turn + every);
  }
};

}  // namespace

void Lowering::emit_gathers() {
  if (!states_.sharded()) return;
  const GatherCount count{model_.layers, strategy_.checkpoint_every()};
  const auto gather = [&](const std::string& block, const std::vector<std::string>& names,
                          const Version& use) {
    begin_block(block);
    states_.emit_gather(builder_, names, use, "gather");
    builder_.end_block();
  };
  gather("gather", states_.layer_names(), count.forward());
  gather("gather_backward", states_.layer_names(), count.backward());
  if (strategy_.checkpoint_every() > 1)
    gather("gather_rerun", states_.layer_names(), count.rerun());
  std::vector<std::string> embed{"embed.weight"};
  if (states_.has("positions.weight")) embed.push_back("positions.weight");
  std::vector<std::string> head{"final_norm.weight"};
  if (states_.has("final_norm.bias")) head.push_back("final_norm.bias");
  if (!model_.tied_embeddings) head.push_back("head.weight");
  gather("gather_embed", embed, Version::at(0, 0, 1));
  gather("gather_head", head, Version::at(0, 0, 1));
}

void Lowering::emit_layers() {
  const std::int64_t every = strategy_.checkpoint_every();
  const std::int64_t layers = model_.layers;
  const GatherCount count{layers, every};
  if (every == 1) {
    const Stream input{&layer_input_, Version::at(0, 1, layers + 1)};
    const Stream output{&layer_input_, Version::at(1, 1, layers + 1)};
    for (Homes& homes : homes_) {
      forward_block("forward" + homes.suffix, homes, Pass::forward, count.forward(), input, output);
      backward_block("backward" + homes.suffix, homes, count.backward(), input);
    }
    return;
  }
  const std::int64_t segments = layers / every;
  const std::int64_t inside = every - 1;
  const Stream checkpoint{&layer_input_, Version::at(0, 0, segments + 1, 1)};
  const Stream next_checkpoint{&layer_input_, Version::at(1, 0, segments + 1, 1)};
  // Input of layer l of segment s (l > k*s); numbers run over forward and repeats.
  const Instance forward_inside = Version::at(-1, 1, 2 * segments * inside, -1);
  const Instance rerun_inside =
      Version::at((2 * segments - 1) * inside - 1, 1, 2 * segments * inside, -inside - every);
  const auto plus_one = [](Instance instance) {
    ++instance.offset;
    return instance;
  };
  const Stream forward_in{&segment_input_, forward_inside};
  const Stream forward_out{&segment_input_, plus_one(forward_inside)};
  const Stream rerun_in{&segment_input_, rerun_inside};
  const Stream rerun_out{&segment_input_, plus_one(rerun_inside)};
  Homes& homes = homes_.front();
  Homes& repeated = homes_.back();  // other homes where repeats store attention output
  forward_block("forward_first", homes, Pass::forward, count.forward(), checkpoint, forward_out);
  forward_block("forward_last", homes, Pass::forward, count.forward(), forward_in, next_checkpoint);
  forward_block("rerun_first", repeated, Pass::forward, count.rerun(), checkpoint, rerun_out);
  if (every > 2) {
    forward_block("forward_middle", homes, Pass::forward, count.forward(), forward_in, forward_out);
    forward_block("rerun_middle", repeated, Pass::forward, count.rerun(), rerun_in, rerun_out);
  }
  const bool stored = homes_.size() > 1;
  backward_block("backward_first", repeated, count.backward(), checkpoint);
  if (every > 2 || !stored) {
    backward_block("backward_inside", repeated, count.backward(), rerun_in);
  }
  if (stored) backward_block("backward_last", homes, count.backward(), rerun_in);
}

void Lowering::call_forward(std::vector<Call>& calls, std::int64_t micro_batch) {
  const std::int64_t layers = model_.layers;
  const std::int64_t every = strategy_.checkpoint_every();
  const auto gather = [&](std::int64_t layer) {
    if (states_.sharded() && layer < layers) {
      builder_.call(calls, "gather", layer, micro_batch, layer / every);
    }
  };
  gather(0);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    gather(layer + 1);
    std::string block = "forward";
    if (every > 1) {
      const std::int64_t place = layer % every;
      block += place == 0 ? "_first" : (place == every - 1 ? "_last" : "_middle");
    } else {
      for (const Homes& homes : homes_) {
        if (layer >= homes.first && layer < homes.first + homes.count) block += homes.suffix;
      }
    }
    builder_.call(calls, block, layer, micro_batch, layer / every);
  }
}

void Lowering::call_backward(std::vector<Call>& calls, std::int64_t micro_batch) {
  struct Visit {
    std::string gather, block;
    std::int64_t layer;
  };
  const std::int64_t every = strategy_.checkpoint_every();
  std::vector<Visit> visits;
  for (std::int64_t segment = model_.layers / every - 1; segment >= 0; --segment) {
    for (std::int64_t place = 0; place + 1 < every; ++place) {
      visits.push_back(
          {"gather_rerun", place == 0 ? "rerun_first" : "rerun_middle", segment * every + place});
    }
    for (std::int64_t place = every - 1; place >= 0; --place) {
      const std::int64_t layer = segment * every + place;
      std::string block = "backward";
      if (every > 1) {
        const bool last = homes_.size() > 1 && place == every - 1;
        block += place == 0 ? "_first" : (last ? "_last" : "_inside");
      } else {
        for (const Homes& homes : homes_) {
          if (layer >= homes.first && layer < homes.first + homes.count) block += homes.suffix;
        }
      }
      visits.push_back({"gather_backward", block, layer});
    }
  }
  const auto gather = [&](std::size_t i) {
    if (!states_.sharded() || i >= visits.size()) return;
    builder_.call(calls, visits[i].gather, visits[i].layer, micro_batch, visits[i].layer / every);
  };
  if (every > 1) gather(0);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    gather(i + 1);
    builder_.call(calls, visits[i].block, visits[i].layer, micro_batch, visits[i].layer / every);
  }
}

}  // namespace fpdt
