// Whole training steps on the GPU's backend and kernels, compared with the CPU's: loss, the
// gradient of every parameter, and the update. The CUDA runtime is the host's, or a GPU's.
//
// Both store bf16 and add in f32. They differ in the order of sums, which now and then moves a
// stored value by one unit (2^-8 of it), and in attention, where tensor cores get the softmax
// rounded to bf16. A gradient passes through about eight stored tensors per layer and direction.
// Their roundings are independent, so deviations add up as squares do.
#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/check/check.h"
#include "fpdt/io/hf_weights.h"

#include "../train/cases.h"
#include "backend_under_test.h"

namespace fpdt {
namespace {

// Heads of 8, as our attention tiles need.
ModelSpec wider(ModelSpec model) {
  model.hidden = 32;
  model.head_dim = 8;
  model.feed_forward = 24;
  return model;
}

// Where a logit is many caps, its slope is e^(-2 |z| / c), which multiplies the rounding of z.
ModelSpec mildly_capped() {
  ModelSpec model = tiny_gemma2();
  model.attention_cap = 2;
  model.logits_cap = 3;
  return model;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  // Every row takes all experts: rounding would else decide between two of equal logits.
  for (const ModelSpec& model :
       {tiny_llama(), tiny_gpt(), tiny_qwen3(), tiny_neox(), tiny_gemma(), mildly_capped(),
        tiny_olmo(), tiny_experts(3, 3), tiny_gpt_oss(3, 3)}) {
    for (const std::int64_t ranks : {1, 2}) {
      Case one = make_case(wider(model), ranks, 24, ranks == 1 ? 24 : 8);
      one.strategy.storage = Storage::bf16;
      one.strategy.tiles.loss_vocabulary = 7;
      one.strategy.tiles.loss_rows = 5;
      if (ranks == 1) one.strategy.keep = kStateHomes.back();
      if (ranks == 2) {
        one.strategy.micro_batches = 2;
        one.strategy.tiles.backward_order = BackwardOrder::q_outer;
        one.strategy.layer_classes.front().recompute = Recompute::keep_attention;
        one.strategy.offload_states(true);
        one.strategy.copies.optimizer_tile = 1024;
      }
      one.name = fmt::format("{}_ranks{}", model.name.substr(5), ranks);
      all.push_back(std::move(one));
    }
  }
  Case replicas = make_case(wider(tiny_llama()), 4, 21, 8);
  replicas.strategy.mesh.replicas = 2;
  replicas.strategy.storage = Storage::bf16;
  replicas.strategy.keep = kStateHomes.back();
  replicas.strategy.gradients = Storage::bf16;
  replicas.strategy.layer_gradients = LayerGradients::in_inputs;
  replicas.strategy.queries = Queries::again;
  replicas.name = "replicas";
  all.push_back(std::move(replicas));
  for (const std::int64_t kv_heads : {4, 1}) {
    Case shared = make_case(wider(tiny_neox()), 4, 21, 8);
    shared.problem.model.qk_norm = true;
    shared.problem.model.kv_heads = kv_heads;
    shared.strategy.mesh.tensor = 2;
    shared.strategy.storage = Storage::bf16;
    shared.name = fmt::format("shared_products_kv{}", kv_heads);
    all.push_back(std::move(shared));
  }
  Case repeated = make_case(wider(tiny_llama()), 2, 21, 8);
  repeated.strategy.storage = Storage::bf16;
  repeated.strategy.segments = {2};
  repeated.strategy.tiles.long_tiles = true;
  repeated.strategy.tiles.serpentine = true;
  repeated.name = "segments";
  all.push_back(std::move(repeated));
  return all;
}

// The library's tiles: a triangle of chunks, and long tiles that the backend cuts along their keys;
// in some layers a window, with the tiles of rows and their own keys.
std::vector<Case> library_cases() {
  std::vector<Case> all;
  for (const bool is_long : {false, true}) {
    ModelSpec model = wider(tiny_llama());
    model.layers = 1;
    model.head_dim = 64;
    Case one = make_case(model, 2, 768, 256);
    one.problem.cluster.attention = AttentionKernels::cudnn;
    one.problem.cluster.row_multiple = 128;
    one.problem.documents = false;
    one.strategy.storage = Storage::bf16;
    one.strategy.tiles.backward_order = is_long ? BackwardOrder::q_outer : BackwardOrder::kv_outer;
    one.strategy.tiles.long_tiles = is_long;
    if (is_long) {
      LayerClass& layers = one.strategy.layer_classes.front();
      layers.keep[static_cast<std::size_t>(TensorClass::kv)] = 1;
      layers.keep[static_cast<std::size_t>(TensorClass::dkv)] = 1;
    }
    one.name = is_long ? "library_long" : "library_chunks";
    all.push_back(one);
    if (!is_long) continue;
    ModelSpec& mixed = one.problem.model;
    mixed.layers = 2;
    mixed.kinds.push_back(mixed.kinds.front());
    mixed.kinds.front().name = "window";
    mixed.kinds.front().window = 100;
    mixed.kinds.back().name = "full";
    mixed.pattern = {0, 1};
    one.problem.cluster.cudnn_windows = true;
    one.name += "_and_windows";
    all.push_back(std::move(one));
  }
  return all;
}

class Step : public testing::TestWithParam<Case> {};

constexpr double kUnit = 0x1p-8;     // of bf16
constexpr double kLoss = kUnit / 4;  // a mean over many rows

// Three deviations of a gradient, relative to its largest element: 16 roundings per layer in each
// run, of at most half a unit each.
double gradient_tolerance(const ModelSpec& model) {
  return 3 * std::sqrt(2 * 16 * static_cast<double>(model.layers)) * kUnit / 2;
}

RankOptions under_test(std::uint64_t seed) {
  RankOptions options;
  options.make_backend = [seed](Communicator& communicator) {
    return backend_under_test(communicator, seed);
  };
  return options;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= most)) most = difference;  // also for a NaN
  }
  return most;
}

TEST_P(Step, EqualsTheCpus) {
  const Case& one = GetParam();
  Rig gpu(one, under_test(7));
  Rig cpu(one);
  for (Rig* rig : {&gpu, &cpu}) rig->trainer.set_parameters(random_parameters(4));
  const double floor = 1e-4;  // of gradients that vanish
  const double tolerance = gradient_tolerance(one.problem.model);
  // The second step starts from moments, versions and gradients that the first one left.
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const std::vector<Sample> samples =
        random_samples(one.problem, gpu.trainer.samples_per_step(), step);
    const StepResult found = gpu.trainer.step(samples, 1e-3);
    const StepResult wanted = cpu.trainer.step(samples, 1e-3);
    EXPECT_NEAR(found.loss, wanted.loss, kLoss * wanted.loss) << "step " << step;
    EXPECT_NEAR(found.grad_norm, wanted.grad_norm, tolerance * wanted.grad_norm) << "step " << step;
    for (const TensorSpec& spec : model_tensors(one.problem.model)) {
      const std::vector<float> wanted_gradient = cpu.trainer.tensor(spec.name, "gradient");
      const double difference =
          largest_difference(gpu.trainer.tensor(spec.name, "gradient"), wanted_gradient);
      EXPECT_LE(difference, tolerance * std::max(floor, largest(wanted_gradient)))
          << "step " << step << ", " << spec.name;
    }
    EXPECT_NEAR(gpu.trainer.evaluate(samples), cpu.trainer.evaluate(samples), kLoss * wanted.loss);
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Own, Step, testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Library, Step, testing::ValuesIn(library_cases()), name_of);

// Two orders of lanes and threads must give the same bits.
TEST(Steps, OrderDoesNotMatter) {
  Case one = make_case(wider(tiny_llama()), 2, 24, 8);
  one.strategy.storage = Storage::bf16;
  std::vector<std::vector<float>> weights;
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{99}}) {
    Rig rig(one, under_test(seed));
    rig.trainer.set_parameters(random_parameters(7));
    rig.trainer.step(random_samples(one.problem, rig.trainer.samples_per_step(), 3), 1e-2);
    weights.push_back(all_of(rig.trainer, "weight"));
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

}  // namespace
}  // namespace fpdt
