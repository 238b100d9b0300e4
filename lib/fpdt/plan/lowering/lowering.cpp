// Homes, rings and call lists of FPDT; the phases are in fpdt_forward, fpdt_backward and fpdt_ends.
#include "fpdt/plan/lowering/lowering.h"

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/lower_ops.h"

namespace fpdt {
namespace {

ScalingKind scaling_kind(RotaryScaling scaling) {
  switch (scaling) {
    case RotaryScaling::llama3:
      return ScalingKind::llama3;
    case RotaryScaling::linear:
      return ScalingKind::linear;
    case RotaryScaling::yarn:
      return ScalingKind::yarn;
  }
  return {};
}

}  // namespace

Schedule lower_ops(const Problem& problem, const Strategy& strategy) {
  return Lowering(problem, strategy).lower();
}

Lowering::Lowering(const Problem& problem, const Strategy& strategy)
    : problem_(problem),
      strategy_(strategy),
      model_(problem.model),
      shape_(geometry(problem, strategy)),
      ranks_(shape_.sequence_parallel),
      storage_(strategy.storage == Storage::f32 ? Dtype::f32 : Dtype::bf16),
      rings_(problem, strategy),
      states_(builder_, rings_, problem, strategy) {
  builder_.schedule.ranks = problem.ranks();
  builder_.schedule.row_multiple = problem.cluster.row_multiple;
  const std::int64_t replicas = shape_.data_parallel;
  builder_.schedule.groups.push_back(
      {"sp",
       ranks_,
       1,
       {.a = 0, .b = replicas > 1 ? ranks_ : 0, .s = 0, .m = ranks_, .n = replicas}});
  const std::int64_t layers = model_.layers;
  const std::int64_t every = strategy_.checkpoint_every();
  layer_input_ = Home(builder_, rings_.home("layer_input"));
  if (every > 1) segment_input_ = Home(builder_, rings_.home("segment_input"));
  layer_gradient_ = Home(builder_, rings_.home("layer_gradient"));

  std::int64_t first = 0;
  for (std::size_t c = 0; c < strategy_.layer_classes.size(); ++c) {
    LayerClass choice = strategy_.layer_classes[c];
    const std::int64_t count = choice.layers > 0 ? choice.layers : layers - first;
    if (every > 1 && choice.recompute == Recompute::keep_attention) {
      // The repeats of a segment store their outputs; its first forward and its last layer store
      // none.
      LayerClass plain = choice;
      plain.recompute = Recompute::from_input;
      homes_.push_back(make_homes(plain, c, first, count));
      homes_.push_back(make_homes(choice, c, first, count, true));
    } else {
      homes_.push_back(make_homes(choice, c, first, count));
    }
    first += count;
  }
}

Lowering::Homes Lowering::make_homes(const LayerClass& choice, std::size_t number,
                                     std::int64_t first, std::int64_t count, bool in_segment) {
  Homes homes;
  homes.choice = choice;
  homes.suffix = strategy_.layer_classes.size() > 1 ? fmt::format("_{}", number) : "";
  homes.first = first;
  homes.count = count;
  homes.in_segment = in_segment;
  const auto make = [&](const std::string& name) {
    return Home(builder_, rings_.home(name + homes.suffix));
  };
  if (choice.recompute == Recompute::keep_all) {
    homes.norm_output = make("norm_output");
    // Backward reads it where the feed-forward follows attention.
    if (!model_.parallel_residual) homes.residual = make("residual");
    homes.ffn_hidden = make("ffn_hidden");
  }
  homes.q = make("q");
  homes.kv = make("kv");
  const auto make_output = [&](const std::string& name) {
    return Home(builder_, rings_.home(name + homes.suffix + (in_segment ? "_segment" : "")));
  };
  homes.attention_output = make_output("attention_output");
  homes.lse = make_output("lse");
  homes.residual_gradient = make("residual_gradient");
  homes.dout = make("dout");
  homes.delta = make("delta");
  if (strategy_.tiles.backward_order == BackwardOrder::q_outer) {
    homes.dkv = make("dkv");
  } else {
    homes.dq = make("dq");
  }
  return homes;
}

Schedule Lowering::lower() {
  emit_tokens();
  states_.emit_blocks(builder_);
  emit_gathers();
  emit_embed();
  emit_layers();
  emit_head("head", true);
  emit_head("head_evaluate", false);
  emit_embed_backward();
  emit_programs();
  return std::move(builder_.schedule);
}

void Lowering::begin_block(const std::string& name) {
  builder_.begin_block(name);
  layer_input_.begin_block();
  segment_input_.begin_block();
  layer_gradient_.begin_block();
  for (Homes& homes : homes_) {
    for (Home* home : {&homes.norm_output, &homes.q, &homes.kv, &homes.attention_output, &homes.lse,
                       &homes.residual, &homes.ffn_hidden, &homes.residual_gradient, &homes.dout,
                       &homes.delta, &homes.dq, &homes.dkv}) {
      home->begin_block();
    }
  }
}

// Tokens, labels and document starts of one micro-batch: the only device buffers that grow with S.
void Lowering::emit_tokens() {
  const auto pair = [&](const std::string& name) {
    const BufferIndex input = builder_.buffer(rings_.ring(name + "_input"));
    const BufferIndex here = builder_.buffer(rings_.ring(name));
    builder_.emit(
        "fetch_" + name, LaneKind::h2d,
        Copy{{input, Version::at(0, 0, 1), 0, -1}, {{here, Version::at(0, 0, 1), 0, -1}, false}});
    return here;
  };
  begin_block("tokens");
  if (problem_.documents) documents_ = pair("documents");
  tokens_ = pair("tokens");
  labels_ = pair("labels");
  builder_.end_block();
}

// With stored tensors (keep_attention, keep_all) an instance is a layer of a micro-batch. Otherwise
// only the current layer's instance is alive.
Instance Lowering::stored_instance(const Homes& homes) const {
  if (!homes.in_segment) return Version::at(-homes.first, 1, homes.count);
  // Layer k*s + p of segment s; the last segment comes first: (T-1-s)(k-1) + p.
  const std::int64_t every = strategy_.checkpoint_every();
  const std::int64_t segments = model_.layers / every;
  return Version::at((segments - 1) * (every - 1), 1, segments * (every - 1), 1 - 2 * every);
}

void Lowering::emit_programs() {
  Schedule& schedule = builder_.schedule;
  const auto call = [&](std::vector<Call>& calls, std::string_view block, std::int64_t layer = 0,
                        std::int64_t micro_batch = 0) {
    builder_.call(calls, block, layer, micro_batch);
  };
  const std::int64_t layers = model_.layers;
  call(schedule.train, "begin");
  for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, "begin_layer", l);
  call(schedule.evaluate, "begin_evaluate");
  for (std::int64_t b = 0; b < strategy_.micro_batches; ++b) {
    for (auto* calls : {&schedule.train, &schedule.evaluate}) {
      call(*calls, "tokens", 0, b);
      if (states_.sharded()) call(*calls, "gather_embed", 0, b);
      call(*calls, "embed", 0, b);
      call_forward(*calls, b);
      if (states_.sharded()) call(*calls, "gather_head", 0, b);
    }
    call(schedule.train, "head", 0, b);
    call(schedule.evaluate, "head_evaluate", 0, b);
    call_backward(schedule.train, b);
    call(schedule.train, "embed_backward", 0, b);
  }
  for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, "grad_norm_layer", l);
  call(schedule.train, "grad_norm");
  for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, "optimizer_layer", l);
  call(schedule.train, "optimizer");
  call(schedule.train, "finish");
  call(schedule.evaluate, "finish_evaluate");
}

// Its slots fit the longest chunk; a shorter chunk uses the first rows.
Operand Lowering::temporary(const std::string& name, std::int64_t rows) {
  return builder_.next(builder_.buffer(rings_.ring(name)), rows);
}

void Lowering::linear(const std::string& op, const std::string& layer, const Version& use,
                      const Operand& x, const Operand& y, std::int64_t rows, std::int64_t in,
                      std::int64_t out, const Operand& addend) {
  Matmul product{x,
                 states_.weight(layer + ".weight", use),
                 optional_weight(layer + ".bias", use),
                 addend,
                 {y, false}};
  product.m = rows;
  product.n = out;
  product.k = in;
  product.transpose_b = true;
  builder_.emit(op, LaneKind::compute, product);
}

void Lowering::linear_backward(const std::string& op, const std::string& layer, const Version& use,
                               const Operand& dy, const Operand& dx, std::int64_t rows,
                               std::int64_t in, std::int64_t out) {
  Matmul product{dy, states_.weight(layer + ".weight", use), {}, {}, {dx, false}};
  product.m = rows;
  product.n = in;
  product.k = out;
  builder_.emit(op, LaneKind::compute, product);
}

// Only the tensor itself is summed into, not the padding of its shards.
void Lowering::linear_gradient(const std::string& place, const std::string& layer,
                               const Operand& dy, const Operand& x, std::int64_t rows,
                               std::int64_t in, std::int64_t out, std::int64_t first) {
  const Version sum = Version::plus(0);
  Matmul product{dy, x, {}, {}, states_.gradient_rows(layer + ".weight", sum, 0, out * in)};
  product.m = out;
  product.n = in;
  product.k = rows;
  product.transpose_a = true;
  product.local_first = first;
  builder_.emit(fmt::format("dw_{}.{}", layer, place), LaneKind::compute, product);
  const std::string bias = layer + ".bias";
  if (!states_.has(bias)) return;
  builder_.emit(fmt::format("db_{}.{}", layer, place), LaneKind::compute,
                ColumnSum{dy, states_.gradient_rows(bias, sum, 0, out), rows, out, first});
}

void Lowering::norm(const std::string& op, const std::string& layer, const Version& use,
                    const Operand& x, const Operand& y, std::int64_t rows) {
  builder_.emit(op, LaneKind::compute,
                Norm{x,
                     states_.weight(layer + ".weight", use),
                     optional_weight(layer + ".bias", use),
                     {y, false},
                     norm_kind(),
                     model_.norm_epsilon,
                     rows,
                     model_.hidden});
}

void Lowering::norm_backward(const std::string& op, const NormGradient& of) {
  NormBackward back;
  back.x = of.x;
  back.weight = states_.weight(of.layer + ".weight", of.use);
  back.dy = of.dy;
  back.addend = of.addend;
  back.dx = {of.dx, false};
  back.dweight = states_.gradient_rows(of.layer + ".weight", of.sum, 0, model_.hidden);
  if (states_.has(of.layer + ".bias")) {
    back.dbias = states_.gradient_rows(of.layer + ".bias", of.sum, 0, model_.hidden);
  }
  back.kind = norm_kind();
  back.epsilon = model_.norm_epsilon;
  back.rows = of.rows;
  back.width = model_.hidden;
  back.local_first = of.local_first;
  builder_.emit(op, LaneKind::compute, back);
}

Operand Lowering::rows_of(const Operand& operand, std::int64_t first, std::int64_t rows) const {
  return {operand.buffer, operand.version, operand.row_first + first, rows};
}

Operand Lowering::optional_weight(const std::string& name, const Version& use) const {
  return states_.has(name) ? states_.weight(name, use) : Operand{};
}

// Absent when every sequence is one document.
Operand Lowering::documents() const {
  return documents_ < 0 ? Operand{} : Operand{documents_, Version::at(0, 0, 1), 0, -1};
}

Operand Lowering::workspace() {
  if (!fused_attention(problem_, strategy_)) return {};
  return builder_.next(builder_.buffer(rings_.ring("workspace")));
}

RankExpression Lowering::token_first(std::int64_t chunk) const {
  return {chunk * shape_.chunk_rows, ranks_ > 1 ? shape_.local_rows(chunk) : 0, 0, 1, ranks_};
}

RankExpression Lowering::head_first() const {
  return {0, ranks_ > 1 ? shape_.heads : 0, 0, 1, ranks_};
}

std::int64_t Lowering::local_first(std::int64_t chunk) const {
  return chunk * shape_.chunk_rows / ranks_;
}

Rotary Lowering::rotary() const {
  const RotarySpec& spec = model_.rotary;
  return {model_.rotary_dim(),
          spec.theta,
          spec.factor,
          spec.low_frequency_factor,
          spec.high_frequency_factor,
          spec.original_positions,
          scaling_kind(spec.scaling),
          spec.magnitude};
}

NormKind Lowering::norm_kind() const {
  return model_.norm == NormFamily::rms ? NormKind::rms : NormKind::layer;
}

ActivationKind Lowering::activation_kind() const {
  switch (model_.activation) {
    case ActivationFamily::swiglu:
      return ActivationKind::swiglu;
    case ActivationFamily::gelu_tanh:
      return ActivationKind::gelu_tanh;
    case ActivationFamily::gelu_erf:
      return ActivationKind::gelu_erf;
  }
  return {};
}

LaneKind Lowering::out_lane() const {
  return strategy_.copies.duplex ? LaneKind::d2h : LaneKind::h2d;
}

Home::Reuse Lowering::reuse() const {
  return strategy_.tiles.serpentine ? Home::Reuse::ring : Home::Reuse::latest;
}

}  // namespace fpdt
