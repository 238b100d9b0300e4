// The rings of schedules against the formulas of docs/memory.md, sections 2 to 4, written down here
// once more in their letters.
#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/plan/lowering/lower_ops.h"

#include "problems.h"

namespace fpdt {
namespace {

// docs/memory.md, section 1.
struct Letters {
  std::int64_t S, R, P, rho, C, n, l, m, e, d, w, E, H, G, D, h, g, F, U, V, L, t, v, f;
  std::int64_t queries;    // n / rho, of a chunk on one rank
  std::int64_t hops;       // rho with keys: ring, otherwise 1
  std::int64_t keys;       // n / hops
  std::int64_t t_dkv;      // bytes of a gradient of keys on its way
  std::int64_t T;          // ranks that share products
  std::int64_t X, k;       // experts, and those that a row takes
  std::int64_t Fs, Fd;     // widths of what is shared, and of dense layers; 0: none
  bool biases;             // of them
  bool in_inputs = false;  // layer gradients
  bool again = false;      // backward projects queries again
};

Letters letters_of(const Problem& problem, const Strategy& strategy) {
  const ModelSpec& m = problem.model;
  const Tiles& tiles = strategy.tiles;
  Letters x{};
  x.S = problem.seq_len;
  x.R = problem.ranks();
  x.P = x.R / strategy.mesh.replicas;
  x.rho = strategy.mesh.ring;
  x.T = strategy.mesh.tensor;
  x.n = tiles.chunk_tokens;
  x.queries = x.n / x.rho;
  x.hops = strategy.keys == Keys::ring ? x.rho : 1;
  x.keys = x.n / x.hops;
  x.C = (x.S + x.n - 1) / x.n;
  x.l = x.n / x.P;
  x.m = strategy.extent == Extent::whole ? x.S / x.P : x.l;
  x.e = strategy.storage == Storage::f32 ? 4 : 2;
  x.t_dkv = strategy.key_gradients == Storage::f32 ? 4 : x.e;
  x.d = strategy.copies.prefetch_depth;
  x.w = strategy.copies.overlap_all_to_all ? 1 : 0;
  x.E = m.hidden;
  x.H = m.heads;
  x.G = m.kv_heads;
  x.D = m.head_dim;
  x.h = x.H * x.rho / x.P;
  x.g = std::max<std::int64_t>(1, x.G * x.rho / x.P);
  x.F = m.feed_forward;
  x.U = m.up_width();
  x.V = m.vocabulary;
  x.L = m.layers;
  x.t = tiles.loss_rows;
  x.v = tiles.loss_vocabulary;
  x.f = tiles.ffn_rows;
  x.X = m.experts;
  x.Fs = m.shared_feed_forward;
  x.Fd = m.kinds.front().dense_feed_forward;
  x.biases = m.bias;
  x.k = m.has_experts() ? m.active_experts : 1;
  x.in_inputs = strategy.layer_gradients == LayerGradients::in_inputs;
  return x;
}

using Table = std::map<std::string, std::int64_t>;

// Section 3: a class of I instances in C parts of `part` bytes, of which backward repeats the first
// `repeated`, and its rings of parts.
void rings(Table& table, const std::string& name, std::int64_t part, std::int64_t C, std::int64_t I,
           double keep, std::int64_t produced, std::int64_t fetched, std::int64_t repeated = 0) {
  const std::int64_t stored = C - repeated;
  const auto k = static_cast<std::int64_t>(keep * static_cast<double>(stored));
  if (k > 0) table[name + "_kept"] = k * I * part;
  if (k == C) return;
  table[name + "_new"] = produced * part;
  table[name] = fetched * part;
  // What the last layer repeats is beside what all have stored.
  table[name + "_host"] = ((stored - k) * I + repeated) * part;
}

// One after the all-to-all.
void home(Table& table, const Letters& x, const std::string& name, std::int64_t chunk,
          std::int64_t I, double keep, std::int64_t repeated = 0) {
  rings(table, name, chunk, x.C, I, keep, 2, 1 + x.d, repeated);
}

// One that streams from hop to hop. The last fetches it into a ring of the row.
void between_hops(Table& table, const Letters& x, const std::string& name, std::int64_t chunk,
                  double keep) {
  home(table, x, name, chunk, 1, keep);
  if (x.hops == 2) table.erase(name);
}

// One in sequence layout, of `row` bytes a row.
void extents(Table& table, const Letters& x, const std::string& name, std::int64_t row,
             std::int64_t I, double keep, std::int64_t more = 0, std::int64_t repeated = 0) {
  if (x.m > x.l) return rings(table, name, x.m * row, 1, I, keep, 1, 1);
  rings(table, name, x.l * row, x.C, I, keep, 2, 1 + x.d + more, repeated);
}

Table classes(const Letters& x, const LayerClass& layers, bool q_outer) {
  Table table;
  const bool all = layers.recompute == Recompute::keep_all;
  const std::int64_t I = all ? x.L : 1;
  const bool from_input = layers.recompute == Recompute::from_input;
  const std::int64_t outputs = from_input ? 1 : x.L;
  const std::int64_t repeated = from_input ? 0 : layers.first_stored_chunk;
  const auto keep = [&](TensorClass tensor) { return layers.kept(tensor); };
  using enum TensorClass;
  extents(table, x, "layer_input", x.E * x.e, x.L + 1, keep(layer_input), x.hops > 1 ? 0 : 2 * x.w);
  if (!x.in_inputs) {
    extents(table, x, "layer_gradient", x.E * x.e, 1, keep(layer_gradient));
  } else {
    // Its rings alone: it waits in the slots of inputs.
    extents(table, x, "layer_gradient", x.E * x.e, 0, 0);
    table.erase("layer_gradient_host");
    if (keep(layer_input) == 1) table.erase("layer_gradient");
  }
  home(table, x, "q", x.queries * x.h * x.D * x.e, I, keep(q));
  if (x.again) {
    table.erase("q");
    table.erase("q_host");
    table.erase("q_kept");
    table["q_new"] = 2 * x.queries * x.h * x.D * x.e;
    table["q_rows"] = x.l * x.H * x.D * x.e;
    if (repeated < x.C && !from_input) table["kv_rows"] = x.l * 2 * x.G * x.D * x.e;
  }
  home(table, x, "kv", x.keys * 2 * x.g * x.D * x.e, I, keep(kv));
  if (x.hops > 1) {
    const std::int64_t two = std::min<std::int64_t>(2, x.hops - 1);
    home(table, x, "kv_ring", x.keys * 2 * x.g * x.D * x.e, two, keep(kv));
    home(table, x, "dkv_ring", x.keys * 2 * x.g * x.D * x.t_dkv, two, keep(dkv));
    between_hops(table, x, "attention_sum", 4 * x.queries * x.h * x.D, keep(attention_sum));
    between_hops(table, x, "lse_sum", 4 * x.queries * x.h, keep(attention_sum));
  }
  const bool whole = x.m > x.l;
  if (whole && layers.recompute == Recompute::from_input) {
    table["attention_output_new"] = x.m * x.H * x.D * x.e;
  } else {
    extents(table, x, "attention_output", x.H * x.D * x.e, outputs, keep(attention_output), 0,
            repeated);
  }
  home(table, x, "lse", 4 * x.queries * x.h, outputs, keep(lse), repeated);
  if (all) {
    extents(table, x, "norm_output", x.E * x.e, x.L, keep(norm_output));
    extents(table, x, "residual", x.E * x.e, x.L, keep(residual));
    extents(table, x, "ffn_hidden", x.U * x.e, x.L, keep(ffn_hidden));
  }
  if (q_outer) home(table, x, "dkv", 4 * x.keys * 2 * x.g * x.D, 1, keep(dkv));
  if (q_outer && x.hops > 1) {
    between_hops(table, x, "dq", 4 * x.queries * x.h * x.D, keep(dq));
  }
  if (q_outer && x.hops == 1) {
    table["residual_gradient_new"] = whole ? x.m * x.E * x.e : (2 + x.w) * x.l * x.E * x.e;
    table["dout_new"] = 2 * x.queries * x.h * x.D * x.e;
    table["delta_new"] = 2 * 4 * x.queries * x.h;
  } else {
    if (!q_outer) home(table, x, "dq", 4 * x.queries * x.h * x.D, 1, keep(dq));
    if (whole) {
      table["residual_gradient_new"] = x.m * x.E * x.e;
    } else {
      home(table, x, "residual_gradient", x.l * x.E * x.e, 1, keep(residual_gradient));
    }
    home(table, x, "dout", x.queries * x.h * x.D * x.e, 1, keep(dout));
    home(table, x, "delta", 4 * x.queries * x.h, 1, keep(dout));
  }
  return table;
}

// Section 4.
void add_working(Table& table, const Letters& x, bool all, bool q_outer, double keep) {
  const std::int64_t nhDe = x.queries * x.h * x.D * x.e, kv = x.keys * 2 * x.g * x.D;
  table["normed"] = table["norm_gradient"] = x.m * x.E * x.e;
  if (!all) table["residual_chunk"] = x.m * x.E * x.e;
  table["qkv"] = x.l * (x.H + 2 * x.G) * x.D * x.e;
  if (x.hops == 1 || keep < 1) table["o"] = (1 + x.w) * 4 * x.queries * x.h * x.D;
  if (!all) table["up"] = x.f * x.k * x.U * x.e / x.T;
  table["act"] = table["act_gradient"] = x.f * x.k * x.F * x.e / x.T;
  table["up_gradient"] = x.f * x.k * x.U * x.e / x.T;
  if (x.X > 0) {
    table["router_logits"] = 4 * x.f * x.X;
    table["router_logits_gradient"] = x.f * x.X * x.e;
    table["routes"] = 4 * (2 * x.f * x.k + x.X);
    table["expert_weights"] = table["expert_weights_gradient"] = 4 * x.f * x.k;
    table["router_gradient"] = x.f * x.E * x.e;
    for (const char* name : {"expert_rows", "expert_rows_gradient", "expert_outputs"}) {
      table[name] = x.f * x.k * x.E * x.e;
    }
    if (x.biases) table["expert_bias_terms"] = 4 * x.f * x.X;
  }
  const auto dense = [&](const std::string& suffix, std::int64_t width) {
    table["up" + suffix] = table["up_gradient" + suffix] = x.f * 2 * width * x.e;
    table["act" + suffix] = table["act_gradient" + suffix] = x.f * width * x.e;
  };
  if (x.Fs > 0) {
    dense(".shared", x.Fs);
    table["out.shared"] = table["gradient.shared"] = x.f * x.E * x.e;
  }
  if (x.Fd > 0) dense(".dense", x.Fd);
  if (x.T > 1) {
    table["tensor_rows"] = 2 * x.T * x.l * x.E * x.e;
    table["tensor_part"] = x.T * x.l * x.E * x.e;
    table["tensor_sum"] = x.l * x.E * x.e;
  }
  if (!q_outer || x.hops == 1 || keep < 1)
    table[q_outer ? "dq_sum" : "dkv_sum"] = (1 + x.w) * 4 * (q_outer ? x.queries * x.h * x.D : kv);
  if (keep < 1) {
    table[q_outer ? "dkv_diagonal" : "dq_diagonal"] =
        (1 + x.w) * 4 * (q_outer ? kv : x.queries * x.h * x.D);
  }
  table["logits"] = 4 * x.t * x.v;
  table["logits_gradient"] = x.t * x.v * x.e;
  table["head_norm"] = x.t * x.E * x.e;
  table["head_norm_gradient"] = 4 * x.t * x.E;
  table["statistics"] = 12 * x.t;
  if (x.hops > 1 && x.t_dkv == 2) table["dkv_pass"] = (1 + x.w) * kv * x.e;
  if (x.rho > x.hops) {
    table["kv_own"] = (1 + x.w) * x.queries * 2 * x.g * x.D * x.e;
    table["dkv_own"] = (1 + x.w) * x.queries * 8 * x.g * x.D;
  }
  if (x.P > x.rho * x.T || x.m > x.l) {
    table["dcontext"] = x.m * x.H * x.D * x.e;
    table["delta_chunk"] = 4 * x.m * x.H;
  }
  if (x.P == x.rho * x.T) return;
  const std::int64_t ring = 1 + x.w, own = x.queries * 2 * x.g * x.D;
  for (const char* name : {"q_send", "o_receive", "dout_send", "dq_receive"}) {
    table[name] = ring * nhDe;
  }
  for (const char* name : {"kv_send", "dkv_receive"}) table[name] = ring * own * x.e;
  table["delta_send"] = ring * 4 * x.queries * x.h;
  if (x.e == 4) return;
  for (const char* name : {"o_send", "dq_send"}) table[name] = ring * nhDe;
  table["dkv_send"] = ring * own * x.e;
}

// Section 2, for a tensor of a model whose tensors R divides, cut in so many parts.
void add_states(Table& table, Letters x, const TensorSpec& tensor, std::int64_t layers,
                const Strategy& strategy, std::int64_t parts = 1) {
  const std::int64_t elements = tensor.elements() / parts;
  x.R /= parts;
  const std::int64_t count = layers * elements;
  const std::int64_t piece = elements / x.R;
  const bool several = x.R > 1;
  const std::int64_t stage = several ? strategy.zero : 3;
  table["param." + tensor.name] = stage == 3 ? x.e * count / x.R : x.e * count;
  const bool rounds = layers > 1 && strategy.gradients != Storage::f32;
  const bool collects = stage <= 1;  // whole gradients of the step
  table["grad." + tensor.name] = (rounds && !collects ? 2 : 4) * count / x.R;
  const std::int64_t held = stage == 0 ? elements : piece;
  const std::int64_t tile = strategy.copies.optimizer_tile;
  const std::int64_t pieces = (held + tile - 1) / tile;
  const std::int64_t streamed = ((held + pieces - 1) / pieces + 63) / 64 * 64;  // no gaps of slots
  const std::int64_t tiles = (held + streamed - 1) / streamed;
  const bool offload = strategy.offloads_states();
  const std::int64_t states = layers * 4 * (offload ? tiles * streamed : held);
  const bool apart = stage == 1 || stage == 2;
  // What layers have on the host passes through slots of two layers.
  const bool parameters = layers > 1 && strategy.offloads(StateClass::parameters);
  const bool gradients = layers > 1 && strategy.offloads(StateClass::gradients);
  if (parameters) table["fetched." + tensor.name] = 2 * x.e * piece;
  if (parameters) table["updated." + tensor.name] = 2 * x.e * piece;
  if (rounds && collects) table["collected." + tensor.name] = 2 * count;
  if (!collects && (gradients || rounds)) {
    table["complete_gradient." + tensor.name] = 2 * 4 * piece;
    if (several) table["summed." + tensor.name] = 2 * 4 * piece;
    table["gradient_sum." + tensor.name] = 2 * 4 * elements;
  }
  if (gradients && rounds) {
    table["rounded." + tensor.name] = table["fetched_rounded." + tensor.name] = 2 * 2 * piece;
  }
  if (x.e == 2 || offload || apart || parameters) table["master." + tensor.name] = states;
  table["moment1." + tensor.name] = table["moment2." + tensor.name] = states;
  if (!several) return;
  const std::int64_t slots = layers > 1 ? 2 : 1;
  if (stage == 3) table["gathered." + tensor.name] = slots * x.e * elements;
  if (apart) table["updated." + tensor.name] = slots * x.e * piece;
  table["gradient_sum." + tensor.name] = 4 * (collects && !rounds ? count : slots * elements);
}

// What is dense beside experts.
void add_dense(int corner, ModelSpec& model) {
  if (corner % 3 > 0) model.shared_feed_forward = 64;
  if (corner % 4 < 2) return;
  model.kinds.resize(2, model.kinds.front());
  model.kinds.front().name = "dense", model.kinds.back().name = "experts";
  model.kinds.front().dense_feed_forward = 128;
  model.layers = 4;
  model.leading = {0, 0};
  model.pattern = {1};
}

// The buffers of the device are those of the table.
void expect_same(const Table& table, const Schedule& schedule, int corner) {
  Table found;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.category == Category::scalars || buffer.space == MemorySpace::host) continue;
    if (buffer.name == "sum_workspace" || buffer.name.starts_with("stage_")) continue;
    found[buffer.name] = buffer.slots * buffer.slot_bytes().value;
  }
  for (const auto& [name, bytes] : table) {
    ASSERT_TRUE(found.contains(name)) << name << " of corner " << corner;
    EXPECT_EQ(found.at(name), bytes) << name << " of corner " << corner;
  }
  for (const auto& [name, bytes] : found) {
    EXPECT_TRUE(table.contains(name)) << "no formula for " << name << " of corner " << corner;
  }
}

void expect_formulas(int corner, Extent extent, std::int64_t ring = 1, Keys keys = Keys::gathered,
                     std::int64_t tensor = 1, std::int64_t experts = 0) {
  const std::int64_t ranks = ring * tensor > 1 ? 4 : 1 << corner % 3;
  ModelSpec model = test::tiny_llama();
  model.head_dim = 64;  // pieces of all tensors are multiples of 256 bytes
  model.experts = experts;
  model.active_experts = experts / 2;
  model.bias = experts > 0 && corner % 2 == 1;
  if (experts > 0) add_dense(corner, model);
  Problem problem = test::tiny_problem(model, ranks, 64);
  Strategy strategy = test::tiny_strategy(16);
  strategy.extent = extent;
  strategy.storage = corner / 3 % 2 == 0 ? Storage::f32 : Storage::bf16;
  strategy.tiles.ffn_rows = 4;
  strategy.tiles.loss_rows = 2;
  strategy.tiles.loss_vocabulary = 16;
  strategy.tiles.backward_order = static_cast<BackwardOrder>(corner / 6 % 2);
  strategy.copies.overlap_all_to_all = corner % 2 == 0;
  strategy.copies.prefetch_depth = 1 + corner % 2;
  strategy.zero = 3 - corner / 7 % 4;
  const auto homes = ranks == 1 ? 3 : std::clamp<std::int64_t>(strategy.zero, 1, 3);
  if (corner % 4 == 3) strategy.keep = kStateHomes[static_cast<std::size_t>(1 + corner % homes)];
  strategy.gradients = corner % 3 == 0 ? Storage::bf16 : Storage::f32;
  if (strategy.storage == Storage::f32 || (ranks > 1 && strategy.zero == 0)) {
    strategy.gradients = Storage::f32;
  }
  strategy.copies.optimizer_tile = 1024;
  strategy.mesh.ring = ring;
  strategy.mesh.tensor = tensor;
  strategy.keys = ring > 1 ? keys : Keys::resident;
  if (corner % 8 < 4) strategy.key_gradients = Storage::bf16;
  LayerClass& layers = strategy.layer_classes.front();
  layers.recompute = static_cast<Recompute>(corner / 12 % (experts > 0 ? 2 : 3));
  const double keep = corner % 5 == 0 ? 0 : (corner % 5 == 1 ? 1 : 0.5);
  layers.keep.fill(keep);
  if (extent == Extent::chunk) layers.first_stored_chunk = corner / 36 % 4;

  if (corner % 3 == 1) strategy.layer_gradients = LayerGradients::in_inputs;
  if (corner % 5 < 3) strategy.queries = Queries::again;
  Letters x = letters_of(problem, strategy);
  x.again = projects_queries_again(strategy, layers);
  const bool q_outer = strategy.tiles.backward_order == BackwardOrder::q_outer;
  Table table = classes(x, layers, q_outer);
  add_working(table, x, layers.recompute == Recompute::keep_all, q_outer, keep);
  for (const LayerRun& run : layer_runs(model)) {
    const bool leads = run.count < x.L && run.first == 0;
    for (TensorSpec one : layer_tensors(run.model)) {
      const bool cut = one.name.starts_with("qkv.") || one.name.starts_with("up.") ||
                       one.name.starts_with("down.") || one.name.starts_with("out.");
      if (leads) one.name += ".dense";
      add_states(table, x, one, run.count, strategy, cut ? tensor : 1);
    }
  }
  for (const TensorSpec& one : global_tensors(model)) {
    add_states(table, x, one, 1, strategy);
  }
  table["tokens"] = table["labels"] = 4 * x.S / x.P;
  if (problem.documents) table["documents"] = 4 * x.S;

  expect_same(table, lower_ops(problem, strategy), corner);
}

TEST(Formulas, AreThoseOfTheDocumentWithExperts) {
  for (const Extent extent : {Extent::chunk, Extent::whole}) {
    for (int corner = 0; corner < 60; ++corner) {
      expect_formulas(corner, extent, 1, Keys::gathered, 1, 16);
    }
  }
}

// Slices of experts add up f32 sums of rows. Outside of tiles, they leave all tiles of an extent
// open.
TEST(Formulas, OfOpenTilesAreThoseOfTheDocument) {
  ModelSpec model = test::tiny_llama();
  model.experts = 16;
  model.active_experts = 8;
  model.shared_feed_forward = 64;
  const Problem problem = test::tiny_problem(model, 2, 64);
  Strategy strategy = test::tiny_strategy(16);
  strategy.tiles.ffn_rows = 4;
  strategy.tiles.expert_slices = 4;
  for (const Extent extent : {Extent::chunk, Extent::whole}) {
    for (const ExpertLoop loop : {ExpertLoop::tiles, ExpertLoop::slices}) {
      strategy.extent = extent;
      strategy.tiles.expert_loop = loop;
      const Letters x = letters_of(problem, strategy);
      const std::int64_t open = loop == ExpertLoop::slices ? x.m / x.f : 1;
      Table table{{"expert_sum", 4 * x.f * x.E},
                  {"router_logits", 4 * x.f * x.X},
                  {"routes", 4 * (2 * x.f * x.k + x.X)},
                  {"expert_weights", 4 * x.f * x.k},
                  {"expert_weights_gradient", 4 * x.f * x.k},
                  {"out.shared", x.f * x.E * x.e},
                  {"gradient.shared", x.f * x.E * x.e}};
      for (auto& [name, bytes] : table) bytes *= open;
      table["expert_rows"] = table["expert_outputs"] = x.f * x.k * x.E * x.e;
      for (const Buffer& buffer : lower_ops(problem, strategy).buffers) {
        const auto formula = table.extract(buffer.name);
        if (formula.empty()) continue;
        EXPECT_EQ(buffer.slots * buffer.slot_bytes().value, formula.mapped()) << buffer.name;
      }
      EXPECT_TRUE(table.empty()) << table.begin()->first;
    }
  }
}

TEST(Formulas, AreThoseOfTheDocument) {
  for (const Extent extent : {Extent::chunk, Extent::whole}) {
    for (int corner = 0; corner < 180; ++corner) expect_formulas(corner, extent);
    for (const Keys keys : {Keys::gathered, Keys::ring}) {
      for (int corner = 0; corner < 72; ++corner) {
        expect_formulas(corner, extent, 2 + corner % 2 * 2, keys);
      }
    }
  }
  for (int corner = 0; corner < 72; ++corner) {
    expect_formulas(corner, Extent::chunk, 1, Keys::resident, 2);
    expect_formulas(corner, Extent::chunk, 2, corner % 2 == 0 ? Keys::gathered : Keys::ring, 2);
  }
}

}  // namespace
}  // namespace fpdt
