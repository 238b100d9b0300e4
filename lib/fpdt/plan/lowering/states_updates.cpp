// The optimizer: what begins a step, the norm of the gradient, updates, and what ends a step.
#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/states.h"

namespace fpdt {
namespace {

std::vector<const States::Tensor*> pointers(const std::vector<States::Tensor>& tensors) {
  std::vector<const States::Tensor*> all;
  for (const States::Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

// Updates run in place: tile t of the stream is fetched as this version of its slot, and the
// updated tile is the version States::kStageSlots later, in the same bytes.
std::int64_t stage_version(std::int64_t tile) {
  return 2 * States::kStageSlots * (tile / States::kStageSlots) + tile % States::kStageSlots;
}

}  // namespace

template <class Emit>
void States::for_each_run(Builder& builder, const std::string& name, Emit emit) {
  for (const Run& run : runs_) {
    enter(run);
    builder.begin_block(name + run.suffix);
    emit(run);
    builder.end_block();
  }
}

void States::emit_blocks(Builder& builder) {
  emit_begin(builder);
  emit_norm(builder);
  for_each_run(builder, "optimizer_layer",
               [&](const Run& run) { emit_updates(builder, run.tensors); });
  builder.begin_block("optimizer");
  emit_updates(builder, global_);
  builder.end_block();
  emit_finish(builder);
}

void States::emit_begin(Builder& builder) {
  const auto scalars = [&] {
    builder.emit(
        "fetch_step", LaneKind::h2d,
        Copy{{step_input_, Version::at(0), 0, -1}, {{step_, Version::at(0), 0, -1}, false}});
    builder.emit("zero_loss", LaneKind::compute, Fill{{{loss_, Version::at(0), 0, -1}, false}, 0});
  };
  const auto zero = [&](const Tensor& tensor) {
    const Operand gradient = tensor.sums_whole() ? Operand{tensor.gradient_sum, tensor.now(), 0, -1}
                                                 : Operand{tensor.grad, tensor.next(), 0, -1};
    builder.emit("zero_grad_" + tensor.name, LaneKind::compute, Fill{{gradient, false}, 0});
  };
  builder.begin_block("begin");
  scalars();
  const auto clear = [&](const char* op, BufferIndex scalar) {
    builder.emit(op, LaneKind::compute, Fill{{{scalar, Version::at(0), 0, -1}, false}, 0});
  };
  clear("zero_norm", norm_);
  if (balances()) clear("zero_balance", balance_);
  for (const Tensor& tensor : global_) zero(tensor);
  builder.end_block();
  if (begins_layers()) {
    for_each_run(builder, "begin_layer", [&](const Run& run) {
      for (const Tensor& tensor : run.tensors) zero(tensor);
    });
  }
  if (resumes_sums()) {
    for_each_run(builder, "begin_sums",
                 [&](const Run& run) { emit_fill(builder, run.names, Version::plus(0)); });
    for_each_run(builder, "resume_sums", [&](const Run&) { emit_resume(builder); });
  }
  builder.begin_block("begin_evaluate");
  scalars();
  builder.end_block();
}

void States::emit_norm(Builder& builder) {
  const auto square = [&](const std::vector<Tensor>& tensors) {
    sum(
        builder, "reduce_gradients", pointers(tensors), std::mem_fn(&Sharding::collects_gradients),
        [&](const Tensor& one) {
          if (one.sums_whole()) return Operand{one.gradient_sum, one.now(), 0, -1};
          const Operand whole = builder.next(one.gradient_sum);
          bring(builder, one, one.sum_of_all(), whole);
          return whole;
        },
        [](const Tensor& one) {
          return Operand{one.grad, one.next(), 0, -1};
        },
        false);
    for (const Tensor& tensor : tensors) {
      const Operand gradient = complete_gradient(builder, tensor);
      builder.emit("norm_" + tensor.name, LaneKind::compute,
                   SquaredNorm{gradient, {{norm_, Version::at(0), 0, -1}, true}});
    }
  };
  for_each_run(builder, "grad_norm_layer", [&](const Run& run) { square(run.tensors); });
  builder.begin_block("grad_norm");
  square(global_);
  emit_total(builder, "reduce_norm", norm_, norm_total_);
  builder.end_block();
}

// The update op, without the way in which its states reach the device.
AdamW States::update_of(const Tensor& tensor, const Operand& gradient, std::int64_t first,
                        std::int64_t rows) const {
  const OptimizerSpec& optimizer = problem_.optimizer;
  AdamW update;
  const bool whole = tensor.sharding.repeats_updates();
  update.grad = {gradient.buffer, gradient.version, first, rows};
  // Whole sums have the padding of their pieces.
  if (whole)
    update.grad = {tensor.gradient_sum, tensor.next(), first, rows < 0 ? tensor.held : rows};
  update.norm = {several() ? norm_total_ : norm_, Version::at(0), 0, -1};
  update.step = {step_, Version::at(0), 0, -1};
  if (tensor.updated >= 0) {
    update.param.operand = {tensor.updated, Version::plus(0), first, rows};
  } else if (tensor.master != tensor.param) {
    update.param.operand = {tensor.param, tensor.next(), first, rows};
  }
  update.beta1 = optimizer.beta1;
  update.beta2 = optimizer.beta2;
  update.epsilon = optimizer.epsilon;
  update.weight_decay = tensor.spec.decay ? optimizer.weight_decay : 0;
  update.clip = optimizer.clip;
  return update;
}

void States::emit_updates(Builder& builder, const std::vector<Tensor>& tensors) const {
  emit_whole_gradients(builder, pointers(tensors));
  std::int64_t tile = 0;  // of the stream through the device
  const auto spill = [&](const Tensor& tensor) {
    if (!tensor.streams_parameters()) return;
    builder.emit("spill_" + tensor.name, out_lane(),
                 Copy{builder.next(tensor.updated), {{tensor.param, tensor.next(), 0, -1}, false}});
  };
  for (const Tensor& tensor : tensors) {
    const Operand gradient = complete_gradient(builder, tensor);
    if (strategy_.offloads_states()) {
      emit_streamed_update(builder, tensor, gradient, tile);
      spill(tensor);
      continue;
    }
    AdamW update = update_of(tensor, gradient, 0, -1);
    update.master = {tensor.master, tensor.now(), 0, -1};
    update.m = {tensor.moment1, tensor.now(), 0, -1};
    update.v = {tensor.moment2, tensor.now(), 0, -1};
    update.master_out.operand = {tensor.master, tensor.next(), 0, -1};
    update.m_out.operand = {tensor.moment1, tensor.next(), 0, -1};
    update.v_out.operand = {tensor.moment2, tensor.next(), 0, -1};
    builder.emit("update_" + tensor.name, LaneKind::compute, update);
    spill(tensor);
  }
  emit_spread(builder, pointers(tensors));
}

// Fetches master weights and moments tile by tile, updates them in place and sends them back.
void States::emit_streamed_update(Builder& builder, const Tensor& tensor, const Operand& gradient,
                                  std::int64_t& tile) const {
  const LaneKind out = out_lane();
  const std::array<BufferIndex, 3> homes{tensor.master, tensor.moment1, tensor.moment2};
  const std::array<const char*, 3> words{"master", "moment1", "moment2"};
  for (std::int64_t t = 0; t < tensor.tiles; ++t, ++tile) {
    const std::int64_t first = t * tensor.tile;
    const std::int64_t n = std::min(tensor.tile, tensor.held - first);
    const Version now = tensor.slot(t, tensor.tiles);
    const Version next = tensor.slot(mul(tensor.count, tensor.tiles) + t, tensor.tiles);
    std::array<Operand, 3> before{};
    std::array<Operand, 3> after{};
    for (std::size_t i = 0; i < 3; ++i) {
      const BufferIndex stage = builder.use(stages_[i]);
      const std::int64_t fetched = stage_version(tile);
      before[i] = {stage, Version::plus(fetched), 0, n};
      after[i] = {stage, Version::plus(fetched + kStageSlots), 0, n};
      builder.advance(stage, round_up(tile + 1, kStageSlots) * 2);
      builder.emit(fmt::format("fetch_{}_{}.{}", words[i], tensor.name, t), LaneKind::h2d,
                   Copy{{homes[i], now, 0, n}, {before[i], false}});
    }
    AdamW update = update_of(tensor, gradient, first, n);
    update.master = before[0];
    update.m = before[1];
    update.v = before[2];
    update.master_out.operand = after[0];
    update.m_out.operand = after[1];
    update.v_out.operand = after[2];
    builder.emit(fmt::format("update_{}.{}", tensor.name, t), LaneKind::compute, update);
    for (std::size_t i = 0; i < 3; ++i) {
      builder.emit(fmt::format("spill_{}_{}.{}", words[i], tensor.name, t), out,
                   Copy{after[i], {{homes[i], next, 0, n}, false}});
    }
  }
}

void States::emit_finish(Builder& builder) const {
  const LaneKind out = out_lane();
  const Version zero = Version::at(0);
  const auto give = [&](const std::string& what, BufferIndex sum, BufferIndex total,
                        BufferIndex output) {
    emit_total(builder, "reduce_" + what, sum, total);
    builder.emit("spill_" + what, out,
                 Copy{{several() ? total : sum, zero, 0, -1}, {{output, zero, 0, -1}, false}});
  };
  const auto give_loss = [&] { give("loss", loss_, loss_total_, loss_output_); };
  builder.begin_block("finish");
  give_loss();
  if (balances()) give("balance", balance_, balance_total_, balance_output_);
  builder.emit(
      "spill_norm", out,
      Copy{{several() ? norm_total_ : norm_, zero, 0, -1}, {{norm_output_, zero, 0, -1}, false}});
  builder.end_block();
  builder.begin_block("finish_evaluate");
  give_loss();
  builder.end_block();
}

}  // namespace fpdt
