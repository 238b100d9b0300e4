// Training steps: which values change, which are reported, which errors occur.
#include "fpdt/train/trainer.h"

#include <cmath>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/check/check.h"
#include "fpdt/comm/local.h"
#include "fpdt/plan/bytes.h"
#include "fpdt/reference/initial.h"
#include "fpdt/runtime/arena.h"

#include "cases.h"

namespace fpdt {
namespace {

// A case that uses most features, on four ranks.
Case rich_case() {
  Case one = make_case(tiny_llama(), 4, 24, 8);
  one.strategy.mesh.replicas = 2;
  one.strategy.micro_batches = 2;
  one.strategy.offload_states(true);
  one.strategy.copies.optimizer_tile = 1024;
  one.strategy.storage = Storage::bf16;
  return one;
}

// Applies `change` to every body of type T and returns the check of a step. The schedule stays as
// safe as before but computes something else.
template <class T, class Change>
CheckReport check_changed(Change change) {
  const Case one = make_case(tiny_llama(), 2, 24, 8);
  Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (T* const body = std::get_if<T>(&op.body)) change(*body);
    }
  }
  const VerifiedSchedule changed = verified(std::move(schedule));
  Trainer trainer(changed, one.problem, Rig::one_thread());
  trainer.set_parameters(random_parameters(2));
  return check_step(trainer, random_samples(one.problem, 1, 1), 1e-2);
}

TEST(Check, SeesWhatAScheduleGetsWrong) {
  EXPECT_TRUE(check_changed<Norm>([](Norm&) {}).agrees());
  EXPECT_FALSE(check_changed<Norm>([](Norm& op) { op.epsilon = 1e-3; }).agrees());
  const CheckReport forward =
      check_changed<AttentionForward>([](AttentionForward& op) { op.scale *= 1.001; });
  EXPECT_GT(forward.loss_error, forward.tolerance);
  const CheckReport backward =
      check_changed<AttentionBackward>([](AttentionBackward& op) { op.scale *= 1.001; });
  EXPECT_LE(backward.loss_error, backward.tolerance);
  EXPECT_FALSE(backward.agrees());
  // What is wrong does not pass for rounding that the network amplifies.
  for (const TensorCheck& tensor : backward.tensors) {
    EXPECT_GE(tensor.tolerance, backward.tolerance);
    EXPECT_LT(tensor.tolerance, 2 * backward.tolerance) << tensor.tensor;
  }
  EXPECT_FALSE(check_changed<AdamW>([](AdamW& op) { op.beta2 = 0.951; }).agrees());
  EXPECT_FALSE(check_changed<AdamW>([](AdamW& op) { op.weight_decay = 0; }).agrees());
}

// Gradients of queries and keys almost cancel in sequences of few tokens.
TEST(Check, KnowsTheSizeOfWhatCancels) {
  for (const std::int64_t tokens : {1, 2, 3}) {
    const Case one = make_case(tiny_qwen3(), 1, tokens, tokens);
    const Lowered lowered = lower(one.problem, one.strategy);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CheckOptions options;
      options.seed = seed;
      options.ranks = Rig::one_thread();
      EXPECT_TRUE(check_schedule(lowered.schedule, one.problem, options).agrees())
          << tokens << " tokens, seed " << seed;
    }
  }
}

TEST(Trainer, EvaluationChangesNothing) {
  const Case one = rich_case();
  Rig rig(one);
  rig.trainer.set_parameters(random_parameters(7));
  const std::vector<Sample> samples = random_samples(one.problem, 4, 1);
  const double loss = rig.trainer.evaluate(samples);
  const std::vector<float> before = all_of(rig.trainer, "weight");
  EXPECT_EQ(rig.trainer.evaluate(samples), loss);
  EXPECT_EQ(all_of(rig.trainer, "weight"), before);
  EXPECT_EQ(rig.trainer.steps_done(), 0);
  // The step begins with the same forward pass.
  EXPECT_EQ(rig.trainer.step(samples, 1e-3).loss, loss);
  EXPECT_NE(all_of(rig.trainer, "weight"), before);
}

// The time of a step is that of its ops. It excludes inputs and the trace.
TEST(Trainer, SecondsAreThoseOfTheOps) {
  const Case one = rich_case();
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(3));
  const std::vector<Sample> samples = random_samples(one.problem, 4, 1);
  std::vector<Trace> traces;
  const StepResult recorded = rig.trainer.step_recorded(samples, 1e-3, traces);
  ASSERT_EQ(traces.size(), 4U);
  std::int64_t longest = 0;
  for (const Trace& trace : traces) longest = std::max(longest, duration(trace));
  EXPECT_DOUBLE_EQ(recorded.seconds, static_cast<double>(longest) * 1e-9);
  EXPECT_GT(recorded.wall_seconds, recorded.seconds);
  const StepResult plain = rig.trainer.step(samples, 1e-3);
  EXPECT_GT(plain.seconds, 0);
  EXPECT_GT(plain.wall_seconds, plain.seconds);
}

TEST(Trainer, TheSameSeedGivesTheSameBits) {
  const Case one = rich_case();
  const std::vector<Sample> samples = random_samples(one.problem, 4, 1);
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    Rig rig(one);
    rig.trainer.set_parameters(initial_parameters(3));
    for (int step = 0; step < 3; ++step) rig.trainer.step(samples, 1e-2);
    runs.push_back(all_of(rig.trainer, "weight"));
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// With one micro-batch all stages of ZeRO add the same numbers in the same order.
TEST(Trainer, StagesOfZeroGiveTheSameBits) {
  for (const Storage storage : {Storage::f32, Storage::bf16}) {
    std::vector<std::vector<float>> runs;
    for (const std::int64_t stage : {3, 2, 1, 0}) {
      Case one = make_case(tiny_llama(), 4, 21, 8);
      one.strategy.zero = stage;
      one.strategy.storage = storage;
      Rig rig(one);
      rig.trainer.set_parameters(initial_parameters(3));
      const std::vector<Sample> samples = random_samples(one.problem, 1, 1);
      for (int step = 0; step < 3; ++step) rig.trainer.step(samples, 1e-2);
      runs.push_back(all_of(rig.trainer, "weight"));
      for (const char* kind : {"moment1", "moment2", "gradient"}) {
        const std::vector<float> values = all_of(rig.trainer, kind);
        runs.back().insert(runs.back().end(), values.begin(), values.end());
      }
      EXPECT_EQ(runs.back(), runs.front()) << "stage " << stage << ", " << word(storage);
    }
  }
}

// Training begins with the same weights on any number of ranks and threads, and in the reference.
TEST(Trainer, InitialWeightsDependOnTheSeedAlone) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    for (const std::int32_t threads : {1, 2, 7}) {
      RankOptions options;
      options.threads = threads;
      Rig rig(make_case(tiny_gpt(), ranks, 16, 8), options);
      rig.trainer.set_parameters(initial_parameters(9));
      const ModelSpec& model = rig.trainer.problem().model;
      for (const auto& [name, values] : reference::initial_parameters(model, 9).tensors) {
        const std::vector<float> found = rig.trainer.tensor(name, "weight");
        EXPECT_EQ(reference::Matrix(found.begin(), found.end()), values) << name;
        for (const char* moment : {"moment1", "moment2"}) {
          EXPECT_EQ(rig.trainer.tensor(name, moment), std::vector<float>(values.size())) << name;
        }
      }
    }
  }
}

// A rank that runs alone holds what it would hold among others.
TEST(Trainer, ARankAloneBeginsWithItsPart) {
  const Case one = make_case(tiny_llama(), 4, 16, 8);
  LocalWorld world(2, 4);
  RankOptions alone = Rig::one_thread();
  alone.world = &world;
  Rig all(one);
  Rig solo(one, alone);
  all.trainer.set_parameters(initial_parameters(9));
  solo.trainer.set_parameters(initial_parameters(9));
  for (const State& state : all.trainer.schedule().states) {
    const auto buffer = static_cast<std::size_t>(state.buffer);
    if (state.kind == "gradient") continue;
    const Bytes bytes = all.trainer.schedule().buffers[buffer].slot_bytes();
    std::vector<std::byte> part(static_cast<std::size_t>(bytes.value)), same(part);
    all.trainer.ranks().executor(2).read(state.buffer, 0, part);
    solo.trainer.ranks().executor(2).read(state.buffer, 0, same);
    EXPECT_EQ(part, same) << state.kind << " of " << state.tensor;
  }
}

// Two documents in one sequence give the gradients of each alone, to f32 rounding.
TEST(Trainer, PackedDocumentsEqualSeparateSequences) {
  Case packed = make_case(tiny_gpt(), 2, 24, 8);
  Case apart = make_case(tiny_gpt(), 2, 12, 8);
  apart.strategy.micro_batches = 2;
  std::vector<Sample> halves = random_samples(apart.problem, 2, 5);
  for (Sample& half : halves) std::fill(half.documents.begin(), half.documents.end(), 0);
  Sample whole = halves[0];
  for (std::size_t t = 0; t < 12; ++t) {
    whole.tokens.push_back(halves[1].tokens[t]);
    whole.labels.push_back(halves[1].labels[t]);
    whole.documents.push_back(12);
  }
  Rig one(packed);
  Rig two(apart);
  one.trainer.set_parameters(random_parameters(7));
  two.trainer.set_parameters(random_parameters(7));
  const double tolerance = derived_tolerance(packed.problem);
  EXPECT_NEAR(one.trainer.step({whole}, 1e-3).loss, two.trainer.step(halves, 1e-3).loss, tolerance);
  const std::vector<float> a = all_of(one.trainer, "gradient");
  const std::vector<float> b = all_of(two.trainer, "gradient");
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

// The schedule has no document starts. A sequence of one document gives the same bits as before,
// and a sequence of two is refused.
TEST(Trainer, OneDocumentNeedsNoStarts) {
  const Case several = make_case(tiny_gpt(), 2, 21, 8);
  Case single = several;
  single.problem.documents = false;
  std::vector<Sample> samples = random_samples(single.problem, 1, 5);
  Rig one(single);
  Rig two(several);
  for (const Buffer& buffer : one.trainer.schedule().buffers) {
    EXPECT_EQ(buffer.name.find("documents"), std::string::npos);
  }
  one.trainer.set_parameters(random_parameters(7));
  two.trainer.set_parameters(random_parameters(7));
  EXPECT_EQ(one.trainer.step(samples, 1e-3).loss, two.trainer.step(samples, 1e-3).loss);
  EXPECT_EQ(all_of(one.trainer, "gradient"), all_of(two.trainer, "gradient"));
  std::fill(samples[0].documents.begin() + 13, samples[0].documents.end(), 13);
  try {
    one.trainer.step(samples, 1e-3);
    FAIL() << "a second document went unnoticed";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "sequence 1 of 1: another document begins at its token 13, but the schedule was "
                 "lowered for sequences of one document; lower it with --documents, or leave "
                 "--document-separator out");
  }
}

TEST(Trainer, ANonFiniteStepIsAnErrorThatChangesNothing) {
  const Case one = make_case(tiny_llama(), 2, 16, 8);
  Rig rig(one);
  rig.trainer.set_parameters(random_parameters(7));
  std::vector<float> broken = rig.trainer.tensor("layers.1.up.weight", "weight");
  broken[3] = std::numeric_limits<float>::quiet_NaN();
  rig.trainer.set_tensor("layers.1.up.weight", "weight", broken);
  const std::vector<float> embedding = rig.trainer.tensor("embed.weight", "weight");
  try {
    rig.trainer.step(random_samples(one.problem, 1, 1), 1e-2);
    FAIL() << "NaN went unnoticed";
  } catch (const NumericError& error) {
    EXPECT_EQ(error.code(), ExitCode::numeric);
    EXPECT_NE(std::string(error.what()).find("step 1: the loss is nan"), std::string::npos);
  }
  EXPECT_EQ(rig.trainer.tensor("embed.weight", "weight"), embedding);
  EXPECT_EQ(rig.trainer.steps_done(), 0);
  EXPECT_THROW(rig.trainer.evaluate(random_samples(one.problem, 1, 1)), NumericError);
}

// Otherwise weights would decay and moments fade.
TEST(Trainer, AStepWithoutLabelsIsRefusedAndChangesNothing) {
  const Case one = make_case(tiny_llama(), 2, 16, 8);
  Rig rig(one);
  rig.trainer.set_parameters(random_parameters(7));
  const std::vector<Sample> samples = random_samples(one.problem, 1, 1);
  rig.trainer.step(samples, 1e-2);
  std::vector<std::vector<float>> before;
  for (const char* kind : {"weight", "moment1", "moment2"}) {
    before.push_back(all_of(rig.trainer, kind));
  }
  std::vector<Sample> masked = samples;
  std::fill(masked[0].labels.begin(), masked[0].labels.end(), -1);
  EXPECT_THROW(rig.trainer.step(masked, 1e-2), InputError);
  EXPECT_EQ(rig.trainer.steps_done(), 1);
  EXPECT_EQ(all_of(rig.trainer, "weight"), before[0]);
  EXPECT_EQ(all_of(rig.trainer, "moment1"), before[1]);
  EXPECT_EQ(all_of(rig.trainer, "moment2"), before[2]);
  EXPECT_EQ(rig.trainer.evaluate(masked), 0);
}

// Two replicas of two micro-batches take four sequences. Fewer sequences count alone.
TEST(Trainer, EvaluationTakesFewerSequencesThanAStep) {
  const Case one = rich_case();
  Rig rig(one);
  rig.trainer.set_parameters(random_parameters(7));
  const std::vector<Sample> samples = random_samples(one.problem, 3, 1);
  double sum = 0;
  for (const Sample& sample : samples) {
    sum += rig.trainer.evaluate({sample}) * static_cast<double>(sample.unmasked());
  }
  const double mean = sum / static_cast<double>(unmasked(samples));
  EXPECT_NEAR(rig.trainer.evaluate(samples), mean, 1e-6 * mean);
}

class Memory : public testing::TestWithParam<Case> {};

TEST_P(Memory, IsWhatTheScheduleSays) {
  const Case& one = GetParam();
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(1));
  std::vector<MemoryUse> memory;
  const auto count = one.strategy.mesh.replicas * one.strategy.micro_batches;
  rig.trainer.step_measured(random_samples(one.problem, count, 1), 1e-3, memory);
  const Prediction predicted = predict(one.problem, one.strategy);
  ASSERT_EQ(memory.size(), 3U);
  for (const MemoryUse& use : memory) {
    SCOPED_TRACE(word(use.space));
    EXPECT_EQ(use.difference, "");
    EXPECT_LE(use.live, use.arena);
    EXPECT_LE(use.resident, use.arena);
    EXPECT_EQ(use.touched, use.resident);
    EXPECT_GT(use.live.value, 0);
    const Bytes bound = use.space == MemorySpace::device        ? predicted.device
                        : use.space == MemorySpace::host_pinned ? predicted.host_pinned
                                                                : predicted.host;
    EXPECT_LE(use.arena.value, round_up(bound.value, page_bytes().value));
  }
}

std::vector<Case> memory_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::string name, Case one) -> Strategy& {
    one.name = std::move(name);
    cases.push_back(std::move(one));
    return cases.back().strategy;
  };
  add("everything", rich_case());
  add("gpt", make_case(tiny_gpt(), 1, 24, 12));
  add("four_ranks", make_case(tiny_llama(), 4, 24, 8)).storage = Storage::bf16;
  Strategy& replicas = add("replicas", make_case(tiny_llama(), 2, 24, 8));
  replicas.mesh.replicas = 2;
  replicas.micro_batches = 2;
  Strategy& all = add("keep_all", make_case(tiny_llama(), 2, 24, 8));
  all.layer_classes.front().recompute = Recompute::keep_all;
  Strategy& half = add("half_kept", make_case(tiny_llama(), 2, 32, 8));
  half.tiles.backward_order = BackwardOrder::q_outer;
  half.layer_classes.front().keep.fill(0.5);
  Strategy& offload = add("offload", make_case(tiny_gpt(), 2, 24, 8));
  offload.offload_states(true);
  offload.copies.optimizer_tile = 1024;
  add("all_offloaded", make_case(tiny_llama(), 2, 24, 8)).keep = kStateHomes.back();
  // A workspace that no kernel of a CPU touches.
  Case fused = make_case(tiny_llama(), 2, 768, 256);
  fused.problem.model.head_dim = 64;
  fused.problem.cluster.row_multiple = 128;
  fused.problem.cluster.attention = AttentionKernels::cudnn;
  fused.problem.documents = false;
  add("fused", fused).storage = Storage::bf16;
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Accounts, Memory, testing::ValuesIn(memory_cases()),
                         [](const auto& one) { return one.param.name; });

// 40 steps on a page of this very file.
TEST(Trainer, LossFallsOnRealText) {
  Case one = make_case(tiny_llama(), 2, 64, 32);
  one.problem.model.vocabulary = 256;
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(1));
  Batches batches(FPDT_SOURCE_DIR "/tests/train/trainer_test.cpp", 256, 64);
  const double first = rig.trainer.step(batches.next(1), 1e-2).loss;
  EXPECT_NEAR(first, std::log(256.0), 0.1);
  double last = 0;
  for (int step = 0; step < 40; ++step) last = rig.trainer.step(batches.next(1), 1e-2).loss;
  EXPECT_LT(last, 4.0);
}

}  // namespace
}  // namespace fpdt
