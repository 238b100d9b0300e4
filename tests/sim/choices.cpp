// Draws until the problem and the strategy fit together.
#include "choices.h"

#include <random>

#include "problems.h"

namespace fpdt::test {
namespace {

Rate exactly(double value) { return {value, value, value}; }

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  // Draws from 0 to n - 1.
  int operator()(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool coin() { return (*this)(2) == 1; }
  // At most 30 times `value`, so that any lane may be the busiest.
  Rate around(double value) { return exactly(value * (1 + (*this)(30))); }

 private:
  std::mt19937 random_;
};

LayerClass layer_class(Draw& draw) {
  LayerClass one;
  one.recompute = static_cast<Recompute>(draw(3));
  for (double& keep : one.keep) keep = draw(5) / 4.0;
  return one;
}

Rates random_rates(Draw& draw) {
  Rates rates;
  rates.peak_flops = 1e12;
  rates.matmul = draw.around(1e9);
  rates.attention_forward = draw.around(1e8);
  rates.attention_backward = draw.around(1e8);
  rates.device_bandwidth = draw.around(1e8);
  rates.h2d = draw.around(1e7);
  rates.d2h = draw.around(1e7);
  rates.link = draw.around(1e7);
  rates.op_seconds = exactly(1e-6 * draw(3));
  rates.collective_seconds = exactly(1e-6 * draw(3));
  if (draw.coin()) {
    Interference& beside = rates.interference;
    beside.compute_beside_copy = exactly(0.9);
    beside.compute_beside_collective = exactly(0.7);
    beside.collective_beside_compute = exactly(0.8);
    beside.h2d_beside_d2h = exactly(0.6);
    beside.d2h_beside_h2d = exactly(0.55);
  }
  return rates;
}

Choice draw_choice(Draw& draw) {
  ModelSpec model = draw.coin() ? tiny_llama() : tiny_gpt();
  model.layers = 1 + draw(14);
  const int ranks = 1 << draw(3);
  Choice choice{tiny_problem(model, ranks, 24 + draw(60)), tiny_strategy(8 + draw(40))};
  choice.problem.cluster.rates = random_rates(draw);
  Strategy& strategy = choice.strategy;
  strategy.micro_batches = 1 + draw(4);
  strategy.mesh.replicas = ranks > 1 && draw(4) == 0 ? 2 : 1;
  const bool whole = strategy.micro_batches > 1;  // gradients then stay on the device
  strategy.keep = kStateHomes[static_cast<std::size_t>(draw(whole ? 2 : 4))];
  strategy.storage = draw.coin() ? Storage::f32 : Storage::bf16;
  strategy.tiles.backward_order = static_cast<BackwardOrder>(draw(2));
  strategy.tiles.serpentine = draw.coin();
  strategy.tiles.long_tiles = draw.coin();
  strategy.copies.duplex = draw.coin();
  strategy.copies.overlap_all_to_all = draw.coin();
  strategy.copies.prefetch_depth = draw(4);
  strategy.layer_classes = {layer_class(draw)};
  if (draw(3) == 0 && model.layers > 1) {
    LayerClass first = layer_class(draw);
    first.layers = 1 + draw(static_cast<int>(model.layers) - 1);
    strategy.layer_classes.insert(strategy.layer_classes.begin(), first);
  } else if (draw(3) == 0) {
    for (std::int64_t k = 2; k <= model.layers; ++k) {
      if (model.layers % k == 0 && (strategy.segments.front() == 1 || draw.coin()))
        strategy.segments = {k};
    }
    strategy.layer_classes.front().recompute =
        draw.coin() ? Recompute::from_input : Recompute::keep_attention;
  }
  if (draw.coin()) {
    for (LayerClass& one : strategy.layer_classes) one.first_stored_chunk = draw(4);
  }
  return choice;
}

}  // namespace

Choice random_choice(std::uint32_t seed) {
  Draw draw(seed);
  for (;;) {
    Choice choice = draw_choice(draw);
    if (check(choice.problem, choice.strategy).empty()) return choice;
  }
}

Rates a100_rates() {
  Rates rates;
  rates.peak_flops = 312e12;
  rates.matmul = exactly(250e12);
  rates.attention_forward = exactly(200e12);
  rates.attention_backward = exactly(170e12);
  rates.device_bandwidth = exactly(1.5e12);
  rates.h2d = rates.d2h = exactly(22e9);
  rates.link = exactly(200e9);
  rates.network = exactly(90e9);
  rates.op_seconds = exactly(5e-6);
  rates.collective_seconds = exactly(10e-6);
  rates.interference.compute_beside_copy = exactly(0.97);
  rates.interference.compute_beside_collective = exactly(0.9);
  rates.interference.h2d_beside_d2h = exactly(0.9);
  rates.interference.d2h_beside_h2d = exactly(0.9);
  return rates;
}

}  // namespace fpdt::test
