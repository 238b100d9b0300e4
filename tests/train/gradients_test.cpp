// Compares loss, gradients of every parameter and the update with the reference, over the decision
// space: the full cross of family, heads, ranks and chunks, and a seeded draw of everything else.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/methods/method.h"
#include "fpdt/plan/search/pins.h"

#include "against_reference.h"
#include "cases.h"
#include "tensor_cases.h"

namespace fpdt {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kDrawn = 30;  // up to ten times slower each
constexpr std::size_t kOneOf = 10;  // of the many cases of a kind
#else
constexpr std::size_t kDrawn = 120;
constexpr std::size_t kOneOf = 1;
#endif

struct Chunks {
  std::int64_t seq_len, chunk_tokens;
};
// One chunk; two; three with a ragged end; eight; ragged and padded, since no rank count divides
// 21.
constexpr std::array kChunks{Chunks{24, 24}, Chunks{24, 12}, Chunks{20, 8}, Chunks{32, 4},
                             Chunks{21, 8}};

ModelSpec model_of(bool gpt, std::int64_t kv_heads) {
  ModelSpec model = gpt ? tiny_gpt() : tiny_llama();
  model.kv_heads = kv_heads;
  return model;
}

std::vector<Case> crossed() {
  std::vector<Case> cases;
  for (const bool gpt : {false, true}) {
    for (const std::int64_t kv_heads : {4, 2, 1}) {
      for (const std::int64_t ranks : {1, 2, 4}) {
        for (const Chunks& chunks : kChunks) {
          Case one = make_case(model_of(gpt, kv_heads), ranks, chunks.seq_len, chunks.chunk_tokens);
          one.name = fmt::format("{}_kv{}_ranks{}_tokens{}_by{}", gpt ? "gpt" : "llama", kv_heads,
                                 ranks, chunks.seq_len, chunks.chunk_tokens);
          cases.push_back(std::move(one));
        }
      }
    }
  }
  // Shards of the embedding end within a row; padding goes beyond the last learned position.
  Case uneven = make_case(model_of(false, 4), 4, 21, 8);
  uneven.problem.model.hidden = 6;
  uneven.problem.model.vocabulary = 17;
  uneven.name = "uneven_table";
  cases.push_back(std::move(uneven));
  Case full = make_case(model_of(true, 4), 4, 21, 8);
  full.problem.model.learned_positions = 21;
  full.name = "every_position";
  cases.push_back(std::move(full));
  return cases;
}

// Norms of heads and parallel residuals change which values are kept and which are repeated.
std::vector<Case> families() {
  std::vector<Case> cases;
  for (const ModelSpec& model :
       {tiny_qwen3(), tiny_neox(), tiny_gemma(), tiny_gemma2(), tiny_olmo()}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      for (const Recompute recompute :
           {Recompute::from_input, Recompute::keep_attention, Recompute::keep_all}) {
        for (const Chunks& chunks : {Chunks{24, 24}, Chunks{21, 8}}) {
          Case one = make_case(model, ranks, chunks.seq_len, chunks.chunk_tokens);
          one.strategy.layer_classes.front().recompute = recompute;
          one.name = fmt::format("{}_ranks{}_{}_tokens{}_by{}", model.name.substr(5), ranks,
                                 word(recompute), chunks.seq_len, chunks.chunk_tokens);
          cases.push_back(std::move(one));
        }
      }
    }
  }
  return cases;
}

// Norms and products of all rows of a rank, in every model, loop order and recomputation.
std::vector<Case> whole_extents() {
  std::vector<Case> cases;
  for (const ModelSpec& model : {tiny_llama(), tiny_gpt(), tiny_qwen3(), tiny_neox(), tiny_gemma(),
                                 tiny_gemma2(), tiny_olmo()}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      for (const BackwardOrder order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
        for (const Recompute recompute :
             {Recompute::from_input, Recompute::keep_attention, Recompute::keep_all}) {
          Case one = make_case(model, ranks, 21, 8);
          one.strategy.extent = Extent::whole;
          one.strategy.tiles.backward_order = order;
          one.strategy.layer_classes.front().recompute = recompute;
          one.name = fmt::format("{}_ranks{}_{}_{}", model.name.substr(5), ranks, word(order),
                                 word(recompute));
          cases.push_back(std::move(one));
        }
      }
    }
  }
  return cases;
}

// Without document starts, with padding.
std::vector<Case> single_documents() {
  std::vector<Case> cases;
  for (const ModelSpec& model : {tiny_llama(), tiny_gpt(), tiny_qwen3(), tiny_neox()}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      Case one = make_case(model, ranks, 21, 8);
      one.problem.documents = false;
      one.name = fmt::format("{}_ranks{}", model.name.substr(5), ranks);  // after "tiny-"
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

// Every method as its authors run it, in chunks that are short enough for the reference.
std::vector<Case> published(const Method& method) {
  std::string name(method.name);
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<Case> cases;
  for (const ModelSpec& model : {tiny_llama(), tiny_gpt()}) {
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      Case one = make_case(model, ranks, 21, 8);
      Pins pins;
      pins.method = &method;
      if (splits(one.problem, pins).empty()) continue;
      const Tiles tiles = one.strategy.tiles;
      one.strategy = method.published(one.problem, 1);
      one.strategy.storage = Storage::f32;
      if (method.name == "fpdt") one.strategy.tiles.chunk_tokens = tiles.chunk_tokens;
      one.name = fmt::format("{}_{}_ranks{}", name, model.name.substr(5), ranks);
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

std::vector<Case> published() {
  std::vector<Case> cases;
  for (const Method* method : methods()) {
    for (Case& one : published(*method)) cases.push_back(std::move(one));
  }
  return cases;
}

TEST(PublishedCases, AreOfTheirMethods) {
  for (const Method* method : methods()) {
    for (const Case& one : published(*method)) {
      EXPECT_TRUE(method->holds(one.problem, one.strategy)) << one.name;
    }
  }
}

// Keys gathered over a ring, of any number of ranks, around all-to-alls of others, and beside
// replicas.
std::vector<Case> gathered() {
  struct Grid {
    std::int64_t ranks, ring, replicas = 1;
  };
  std::vector<Case> cases;
  std::size_t number = 0;
  for (const bool gpt : {false, true}) {
    for (const std::int64_t kv_heads : {4, 2, 1}) {
      for (const Grid& grid : {Grid{2, 2}, Grid{3, 3}, Grid{4, 2}, Grid{4, 4}, Grid{5, 5},
                               Grid{6, 3}, Grid{4, 2, 2}}) {
        for (const bool chunked : {false, true}) {
          for (const BackwardOrder order : {BackwardOrder::kv_outer, BackwardOrder::q_outer}) {
            Case one = make_case(model_of(gpt, kv_heads), grid.ranks, 35,
                                 round_up(chunked ? 12 : 36, grid.ranks));
            one.strategy.mesh.replicas = grid.replicas;
            one.strategy.keys = Keys::gathered;
            one.strategy.mesh.ring = grid.ring;
            if (chunked && number % 11 < 6) one.strategy.layout = Layout::zigzag;
            one.strategy.tiles.backward_order = order;
            one.strategy.layer_classes.front().recompute = static_cast<Recompute>(number % 3);
            one.strategy.layer_classes.front().keep.fill(chunked && grid.ring == 3 ? 0.5 : 0);
            one.strategy.copies.overlap_all_to_all = grid.ring == 2;
            one.problem.documents = number % 7 != 0;
            one.name = fmt::format("{}_kv{}_ranks{}_ring{}_dp{}_{}_{}", gpt ? "gpt" : "llama",
                                   kv_heads, grid.ranks, grid.ring, grid.replicas,
                                   chunked ? "chunks" : "whole", word(order));
            if (number++ % kOneOf == 0) cases.push_back(std::move(one));
          }
        }
      }
    }
  }
  return cases;
}

// The same with keys that go around the ring.
std::vector<Case> travelling() {
  std::vector<Case> cases = gathered();
  std::size_t number = 0;
  for (Case& one : cases) {
    one.strategy.keys = Keys::ring;
    one.strategy.tiles.serpentine = number % 3 == 1;
    if (number++ % 2 == 1) one.strategy.layer_classes.front().keep.fill(1);
  }
  return cases;
}

// The stages of ZeRO over several ranks.
std::vector<Case> stages() {
  std::vector<Case> cases;
  for (const ModelSpec& model : {tiny_llama(), tiny_gpt()}) {
    for (const std::int64_t zero : {0, 1, 2}) {
      for (const bool offload : {false, true}) {
        Case one = make_case(model, 4, 21, 8);
        one.strategy.zero = zero;
        one.strategy.micro_batches = 2;
        one.strategy.mesh.replicas = offload ? 2 : 1;
        one.strategy.offload_states(offload);
        one.strategy.copies.optimizer_tile = 1024;
        one.name =
            fmt::format("{}_stage{}{}", model.name.substr(5), zero, offload ? "_offload" : "");
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

// Gathers and sums of ZeRO that go within nodes, and then across them.
std::vector<Case> nodes() {
  struct Grid {
    std::int64_t nodes, devices, tensor = 1, ring = 1, replicas = 1;
  };
  std::vector<Case> cases;
  std::int64_t number = 0;
  for (const Grid& grid : {Grid{2, 2}, Grid{3, 2, 1, 3}, Grid{2, 4, 2, 1, 2}, Grid{2, 2, 4},
                           Grid{2, 2, 2}, Grid{3, 4, 4, 3}}) {
    for (const ModelSpec& model : {tiny_llama(), tiny_gpt()}) {
      for (const std::int64_t zero : {0, 1, 2, 3, 4}) {
        Case one = make_case(model, grid.nodes * grid.devices, 31, 24);
        one.problem.cluster.nodes = grid.nodes;
        one.problem.cluster.devices_per_node = grid.devices;
        if (number % 3 == 2) one.problem.model.kv_heads = 1;
        Strategy& strategy = one.strategy;
        strategy = with_ring(strategy, grid.ring);
        strategy.mesh.tensor = grid.tensor;
        strategy.mesh.replicas = grid.replicas;
        strategy.zero = std::min<std::int64_t>(zero, 3);
        strategy.zero_groups = zero < 4 ? ZeroGroups::hierarchical : ZeroGroups::hybrid;
        strategy.micro_batches = 1 + number % 2;
        strategy.offload_states(number % 3 == 1);
        strategy.copies.optimizer_tile = 1024;
        if (number % 5 == 4) strategy.storage = Storage::bf16;
        one.name = fmt::format("{}_{}_nodes{}_devices{}_tensor{}_ring{}_stage{}_{}", number++,
                               model.name.substr(5), grid.nodes, grid.devices, grid.tensor,
                               grid.ring, strategy.zero, word(strategy.zero_groups));
        if (kOneOf == 1 || number % 9 == 1) cases.push_back(std::move(one));  // of all stages
      }
    }
  }
  return cases;
}

// All gather and add the same in the same order.
TEST(Nodes, HaveTheSameBitsWhereverParametersAre) {
  for (const std::int64_t tensor : {1, 2}) {
    std::vector<std::vector<float>> parameters;
    for (const std::int64_t zero : {0, 1, 2, 3, 4}) {
      Case one = make_case(tiny_llama(), 4 * tensor, 24, 24);
      one.problem.cluster.nodes = 2;
      one.problem.cluster.devices_per_node = 2 * tensor;
      one.strategy.mesh.tensor = tensor;
      one.strategy.mesh.replicas = tensor;
      one.strategy.zero = std::min<std::int64_t>(zero, 3);
      one.strategy.zero_groups = zero < 4 ? ZeroGroups::hierarchical : ZeroGroups::hybrid;
      Rig rig(one, Rig::in_order());
      rig.trainer.set_parameters(random_parameters(7));
      for (int step = 0; step < 2; ++step) {
        rig.trainer.step(random_samples(one.problem, rig.trainer.samples_per_step(), 1), 1e-2);
      }
      parameters.push_back(all_of(rig.trainer, "weight"));
    }
    for (const std::vector<float>& one : parameters) EXPECT_EQ(one, parameters.front());
  }
}

// Attention output and lse stored from a chunk on, beside all that meets them.
std::vector<Case> stored_from_a_chunk() {
  std::vector<Case> cases;
  std::int64_t number = 0;
  for (const ModelSpec& model : {tiny_llama(), tiny_gpt(), tiny_qwen3(), tiny_neox()}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      for (const Recompute recompute : {Recompute::keep_attention, Recompute::keep_all}) {
        for (const std::int64_t first : {1, 2, 5, 7}) {
          Case one = make_case(model, ranks, 31, 4);
          one.problem.documents = number % 3 != 0;
          Strategy& strategy = one.strategy;
          strategy.tiles.backward_order = static_cast<BackwardOrder>(number / 2 % 2);
          strategy.tiles.serpentine = number % 5 < 2;
          strategy.tiles.long_tiles = number % 5 == 4;
          strategy.copies.overlap_all_to_all = number % 3 != 1;
          strategy.copies.duplex = number % 7 < 4;
          strategy.micro_batches = 1 + number / 4 % 2;
          LayerClass& layers = strategy.layer_classes.front();
          layers.recompute = recompute;
          layers.first_stored_chunk = first;
          layers.keep.fill(0.5 * static_cast<double>(number % 3));
          if (number % 6 == 5) {
            strategy.layer_classes.push_back(layers);
            strategy.layer_classes.front().layers = 1;
            strategy.layer_classes.back().first_stored_chunk = 7 - first;
          }
          if (ranks > 1 && number % 5 == 3) {
            strategy = with_ring(strategy, ranks);
            strategy.layout = Layout::zigzag;
            strategy.tiles.long_tiles = false;
            if (number % 2 == 0) strategy.keys = Keys::ring;
          }
          one.name = fmt::format("{}_{}_ranks{}_{}_from{}", number, model.name.substr(5), ranks,
                                 word(recompute), first);
          if (number++ % static_cast<std::int64_t>(kOneOf) == 0) cases.push_back(std::move(one));
        }
      }
    }
  }
  return cases;
}

// Repeated attention has the bits of stored attention.
TEST(StoredFromAChunk, ChangesNoBits) {
  std::size_t compared = 0;
  for (const Case& one : stored_from_a_chunk()) {
    if (compared++ % 5 != 0) continue;
    Case whole = one;
    for (LayerClass& layers : whole.strategy.layer_classes) layers.first_stored_chunk = 0;
    Rig part(one, Rig::in_order()), all(whole, Rig::in_order());
    const auto samples = random_samples(one.problem, part.trainer.samples_per_step(), 1);
    for (int step = 0; step < 2; ++step) {
      const double loss = part.trainer.step(samples, 1e-2).loss;
      EXPECT_EQ(loss, all.trainer.step(samples, 1e-2).loss) << one.name;
    }
    EXPECT_EQ(all_of(part.trainer, "parameter"), all_of(all.trainer, "parameter")) << one.name;
  }
}

// Draws one alternative of every choice. The result may contradict itself.
Case draw(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto one_of = [&](std::initializer_list<std::int64_t> list) {
    return list.begin()[below(static_cast<std::uint32_t>(list.size()))];
  };
  const auto coin = [&] { return below(2) == 1; };
  ModelSpec model = model_of(coin(), one_of({4, 2, 1}));
  model.layers = one_of({1, 2, 4});
  model.tied_embeddings = coin();
  if (model.family == Family::gpt && coin()) {
    model.learned_positions = 0;
    model.kinds.front().rotary.fraction = 0.5;
  }
  model.qk_norm = below(3) == 0;
  model.parallel_residual = below(3) == 0;
  const Chunks chunks = kChunks[static_cast<std::size_t>(below(kChunks.size()))];
  Case one = make_case(model, one_of({1, 2, 4}), chunks.seq_len, chunks.chunk_tokens);
  one.problem.optimizer.clip = static_cast<double>(one_of({0, 1, 100}));
  Strategy& strategy = one.strategy;
  strategy.mesh.replicas = one_of({1, 1, 2});
  strategy.micro_batches = one_of({1, 2, 3});
  strategy.offload_states(coin());
  strategy.copies.optimizer_tile = 1024;
  if (below(4) == 0) strategy.storage = Storage::bf16;
  strategy.tiles.ffn_rows = one_of({0, 1, 3});
  strategy.tiles.loss_rows = one_of({0, 2});
  strategy.tiles.loss_vocabulary = one_of({0, 7});
  strategy.tiles.backward_order = coin() ? BackwardOrder::kv_outer : BackwardOrder::q_outer;
  strategy.tiles.serpentine = coin();
  strategy.tiles.long_tiles = coin();
  strategy.copies.prefetch_depth = one_of({0, 1, 2, 5});
  strategy.copies.duplex = coin();
  strategy.copies.overlap_all_to_all = coin();
  strategy.segments = {one_of({1, 1, 2, 4})};
  const std::int64_t classes = one_of({1, 1, 2});
  strategy.layer_classes.assign(static_cast<std::size_t>(classes), LayerClass{});
  if (classes == 2) strategy.layer_classes.front().layers = 1;
  for (LayerClass& layers : strategy.layer_classes) {
    layers.recompute = static_cast<Recompute>(below(strategy.segments.front() > 1 ? 2 : 3));
    for (std::size_t k = 0; k < static_cast<std::size_t>(TensorClass::attention_sum); ++k) {
      layers.keep[k] = static_cast<double>(one_of({0, 0, 1, 2})) / 2;
    }
  }
  return one;
}

std::string describe(const Case& one) {
  const Strategy& strategy = one.strategy;
  const std::string ring =
      strategy.mesh.ring == 1 ? "" : fmt::format("_{}{}", word(strategy.keys), strategy.mesh.ring);
  return fmt::format(
      "{}{}{}{}{}_kv{}_layers{}_ranks{}_tokens{}_by{}_{}{}{}{}_prefetch{}_every{}_classes{}_{}_dp{}"
      "_"
      "micro{}_zero{}"
      "{}_{}",
      word(one.problem.model.family), one.problem.model.qk_norm ? "_qknorm" : "",
      one.problem.model.parallel_residual ? "_parallel" : "",
      strategy.extent == Extent::whole ? "_whole" : "", ring, one.problem.model.kv_heads,
      one.problem.model.layers, one.problem.ranks(), one.problem.seq_len,
      strategy.tiles.chunk_tokens, word(strategy.tiles.backward_order),
      strategy.tiles.serpentine ? "_serpentine" : "", strategy.tiles.long_tiles ? "_long" : "",
      strategy.copies.duplex ? "_duplex" : "", strategy.copies.prefetch_depth,
      strategy.segments.front(), strategy.layer_classes.size(),
      word(strategy.layer_classes.front().recompute), strategy.mesh.replicas,
      strategy.micro_batches, strategy.zero,
      strategy.offloads(StateClass::parameters)  ? "_parameters_on_host"
      : strategy.offloads(StateClass::gradients) ? "_gradients_on_host"
      : strategy.offloads_states()               ? "_offload"
                                                 : "",
      word(strategy.storage));
}

std::vector<Case> drawn() {
  std::mt19937 random(20240816);
  std::mt19937 extents(20260220), rings(20261123), chunks(20261124), homes(20261125);
  std::vector<Case> cases;
  while (cases.size() < kDrawn) {
    Case one = draw(random);
    one.strategy.zero = static_cast<std::int64_t>(cases.size() % 4);
    if (extents() % 4 == 0) one.strategy.extent = Extent::whole;
    if (const auto number = rings(); number % 3 == 0) {
      one.strategy.keys = number / 3 % 2 == 0 ? Keys::ring : Keys::gathered;
      one.strategy.mesh.ring = number / 6 % 2 == 0 ? 2 : 4;
      one.strategy.layout = number / 12 % 2 == 0 ? Layout::zigzag : Layout::interleaved;
      if (number / 24 % 2 == 0) one.strategy.key_gradients = Storage::bf16;
      if (one.strategy.keys == Keys::ring) one.strategy.tiles.long_tiles = false;
      one.strategy = with_kept(one.strategy, TensorClass::attention_sum,
                               0.5 * static_cast<double>(number / 48 % 3));
    }
    if (chunks() % 3 == 0) {
      for (LayerClass& layers : one.strategy.layer_classes) layers.first_stored_chunk = 1;
    }
    if (!check(one.problem, one.strategy).empty()) continue;
    Case hosted = one;
    hosted.strategy.keep = kStateHomes[1 + homes() % 3];
    if (one.strategy.offloads_states() && check(hosted.problem, hosted.strategy).empty()) {
      one = hosted;
    }
    Case rounded = one;
    rounded.strategy.gradients = Storage::bf16;
    if (homes() % 2 == 0 && check(rounded.problem, rounded.strategy).empty()) one = rounded;
    if (homes() % 2 == 0) one.strategy.layer_gradients = LayerGradients::in_inputs;
    if (homes() % 2 == 0) one.strategy.queries = Queries::again;
    one.name = fmt::format("draw{}_{}", cases.size(), describe(one));
    cases.push_back(std::move(one));
  }
  return cases;
}

class Gradients : public testing::TestWithParam<Case> {};

TEST_P(Gradients, EqualReference) {
  const Case& one = GetParam();
  const CheckReport report = expect_equals_reference(one);
  EXPECT_EQ(report.storage.has_value(), one.strategy.storage == Storage::bf16);
  EXPECT_EQ(report.storage.value_or(StorageCheck{}).first_difference, "");
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Crossed, Gradients, testing::ValuesIn(crossed()), name_of);
INSTANTIATE_TEST_SUITE_P(Families, Gradients, testing::ValuesIn(families()), name_of);
INSTANTIATE_TEST_SUITE_P(Published, Gradients, testing::ValuesIn(published()), name_of);
INSTANTIATE_TEST_SUITE_P(GatheredKeys, Gradients, testing::ValuesIn(gathered()), name_of);
INSTANTIATE_TEST_SUITE_P(TravellingKeys, Gradients, testing::ValuesIn(travelling()), name_of);
// With FPDT_WHOLE_PRODUCT=1 all of them, by hand.
std::vector<Case> shared_products() {
  return std::getenv("FPDT_WHOLE_PRODUCT") != nullptr ? whole_tensor_product()
                                                      : tensor_cases(2 * kOneOf);
}
INSTANTIATE_TEST_SUITE_P(SharedProducts, Gradients, testing::ValuesIn(shared_products()), name_of);
INSTANTIATE_TEST_SUITE_P(StagesOfZero, Gradients, testing::ValuesIn(stages()), name_of);
INSTANTIATE_TEST_SUITE_P(Nodes, Gradients, testing::ValuesIn(nodes()), name_of);
INSTANTIATE_TEST_SUITE_P(WholeExtents, Gradients, testing::ValuesIn(whole_extents()), name_of);
INSTANTIATE_TEST_SUITE_P(StoredFromAChunk, Gradients, testing::ValuesIn(stored_from_a_chunk()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(SingleDocuments, Gradients, testing::ValuesIn(single_documents()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Drawn, Gradients, testing::ValuesIn(drawn()), name_of);

}  // namespace
}  // namespace fpdt
