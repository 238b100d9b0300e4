// The stages of ZeRO (Rajbhandari et al., arXiv 1910.02054) as ops of the schedule.
#include "fpdt/plan/lowering/states.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/schedule/sum_workspace.h"

namespace fpdt {
namespace {

constexpr std::int64_t kStageSlots = 2;

std::vector<const States::Tensor*> pointers(const std::vector<States::Tensor>& tensors) {
  std::vector<const States::Tensor*> all;
  for (const States::Tensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

// Updates run in place: tile t of the stream is fetched as this version of its slot, and the
// updated tile is the version kStageSlots later, in the same bytes.
std::int64_t stage_version(std::int64_t tile) {
  return 2 * kStageSlots * (tile / kStageSlots) + tile % kStageSlots;
}

}  // namespace

States::States(Builder& builder, const Problem& problem, const Strategy& strategy)
    : problem_(problem), strategy_(strategy) {
  builder.schedule.groups = sharing_groups(problem, strategy);
  for (const SharedTensor& shared : shared_layer_tensors(problem, strategy)) {
    add(builder, shared, problem.model.layers);
    layer_names_.push_back(shared.name);
  }
  for (const SharedTensor& shared : shared_global_tensors(problem, strategy)) {
    add(builder, shared, 0);
  }
  declare_scalars(builder);
  if (strategy.offloads_states()) declare_stages(builder);
}

BufferIndex States::state(Builder& builder, const char* kind, const Tensor& tensor,
                          Category category, Dtype dtype, std::int64_t elements, std::int64_t slots,
                          MemorySpace space) {
  return builder.add({fmt::format("{}.{}", kind, tensor.name),
                      space,
                      Role::state,
                      category,
                      dtype,
                      {elements},
                      slots,
                      kUnplaced});
}

BufferIndex States::temporary(Builder& builder, const std::string& name, Category category,
                              Dtype dtype, std::int64_t elements, std::int64_t slots) {
  return builder.add(
      {name, MemorySpace::device, Role::temporary, category, dtype, {elements}, slots, kUnplaced});
}

// ZeRO-3: 2 (or 4) + 4 + 12 bytes a parameter, over all ranks (Rajbhandari et al., section 5).
void States::add(Builder& builder, const SharedTensor& shared, std::int64_t count) {
  Tensor tensor{shared, std::max<std::int64_t>(1, count)};
  const Sharding& sharding = tensor.sharding;
  const std::string& name = tensor.name;
  const std::int64_t held = sharding.states(tensor.elements);
  const std::int64_t piece = sharding.piece(tensor.elements);
  const std::int64_t whole = sharding.whole(tensor.elements);
  const Dtype storage = storage_type(strategy_);
  const bool offload = strategy_.offloads_states();
  tensor.held = held;
  tensor.tile = offload ? state_tile(held) : held;
  tensor.tiles = div_ceil(held, tensor.tile);
  tensor.param = state(builder, "param", tensor, Category::weights, storage,
                       sharding.parameters(tensor.elements), tensor.count);
  tensor.grad =
      state(builder, "grad", tensor, Category::gradients, Dtype::f32, piece, tensor.count);
  const auto optimizer = [&](const char* kind) {
    return state(builder, kind, tensor, Category::optimizer, Dtype::f32, tensor.tile,
                 tensor.count * tensor.tiles,
                 offload ? MemorySpace::host_pinned : MemorySpace::device);
  };
  // All parts of a tensor have masters if one has.
  const bool apart = name != tensor.spec.name;
  const bool own_master = offload || storage != Dtype::f32 || sharding.spreads_updates() ||
                          (apart && (sharding.stage == 1 || sharding.stage == 2));
  tensor.master = own_master ? optimizer("master") : tensor.param;
  tensor.moment1 = optimizer("moment1");
  tensor.moment2 = optimizer("moment2");
  // Whole tensors, while a layer uses them and the next is on its way.
  const std::int64_t slots = count > 0 ? 2 : 1;
  if (sharding.gathers_parameters()) {
    tensor.gathered =
        temporary(builder, "gathered." + name, Category::weights, storage, whole, slots);
  }
  if (sharding.several()) {
    tensor.gradient_sum =
        temporary(builder, "gradient_sum." + name, Category::gradients, Dtype::f32, whole,
                  sharding.collects_gradients() ? tensor.count : slots);
  }
  // Pieces of parameters on their way to all ranks.
  if (sharding.spreads_updates()) {
    tensor.updated = temporary(builder, "updated." + name, Category::weights, storage, piece,
                               std::min<std::int64_t>(2, tensor.count));
  }
  declare_blocks(builder, tensor);
  std::int64_t block = whole;
  for (std::size_t i = 0; i < tensor.groups.size() && sharding.several(); ++i) {
    const std::int64_t members = group_named(builder.schedule, tensor.groups[i]).size;
    block = div_exact(block, members);
    largest_sum_ = std::max(largest_sum_, sum_workspace_bytes(members, Bytes{4 * block}));
  }
  longest_held_ = std::max(longest_held_, held);
  (count > 0 ? layer_ : global_).push_back(std::move(tensor));
}

// What a group of groups shares passes through the block that one of them has.
void States::declare_blocks(Builder& builder, Tensor& tensor) {
  if (tensor.groups.size() == 1) return;
  const std::int64_t block = div_exact(tensor.sharding.whole(tensor.elements),
                                       group_named(builder.schedule, tensor.groups.front()).size);
  const Dtype gathered = tensor.sharding.repeats_updates() ? Dtype::f32 : storage_type(strategy_);
  const Category category =
      tensor.sharding.repeats_updates() ? Category::gradients : Category::weights;
  tensor.gathered_block =
      temporary(builder, "gathered_block." + tensor.name, category, gathered, block, 1);
  tensor.summed_block =
      temporary(builder, "summed_block." + tensor.name, Category::gradients, Dtype::f32, block, 1);
}

// Elements of a piece of states that come from the host.
std::int64_t States::state_tile(std::int64_t held) const {
  return round_up(std::min(strategy_.copies.optimizer_tile, held), kAlignment / 4);
}

void States::declare_scalars(Builder& builder) {
  const auto scalars = [&](const char* name, std::int64_t n, Role role) {
    const MemorySpace space = role == Role::temporary ? MemorySpace::device : MemorySpace::host;
    return builder.add({name, space, role, Category::scalars, Dtype::f32, {n}, 1, kUnplaced});
  };
  step_input_ = scalars("step_input", 4, Role::input);
  step_ = scalars("step", 4, Role::temporary);
  loss_ = scalars("loss", 1, Role::temporary);
  norm_ = scalars("grad_norm", 1, Role::temporary);
  loss_output_ = scalars("loss_output", 1, Role::output);
  norm_output_ = scalars("grad_norm_output", 1, Role::output);
  if (!several()) return;
  loss_total_ = scalars("loss_total", 1, Role::temporary);
  norm_total_ = scalars("grad_norm_total", 1, Role::temporary);
  // Large enough for the sum of the longest tensor, for that of the gradients of a chunk's keys, and
  // for that of the terms that ranks share.
  const Geometry shape = geometry(problem_, strategy_);
  const Bytes keys{mul(mul(4, shape.query_rows(0)), 2 * shape.kv_heads * problem_.model.head_dim)};
  const Bytes terms{
      mul(mul(dtype_bytes(storage_type(strategy_)), shape.extent_rows(0)), problem_.model.hidden)};
  const Bytes bytes = std::max({largest_sum_, sum_workspace_bytes(shape.ring, keys),
                                sum_workspace_bytes(shape.tensor_ranks, terms)});
  sum_workspace_ = temporary(builder, "sum_workspace", Category::activations, Dtype::f32,
                             div_exact(bytes.value, 4), 1);
}

void States::declare_stages(Builder& builder) {
  constexpr std::array<const char*, 3> kNames{"stage_master", "stage_moment1", "stage_moment2"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    stages_[i] = builder.declare({kNames[i],
                                  MemorySpace::device,
                                  Role::temporary,
                                  Category::optimizer,
                                  Dtype::f32,
                                  {state_tile(longest_held_)},
                                  kStageSlots,
                                  kUnplaced});
  }
}

// Adds a row of the state table for each tensor and layer.
void States::add_state_rows(Builder& builder, const Tensor& tensor, bool layered) const {
  std::int64_t slot = 0;
  const auto row = [&](BufferIndex buffer, std::int64_t version, const char* kind, bool whole) {
    State state;
    state.buffer = buffer;
    state.version = version;
    state.tensor = layered ? layer_tensor_name(slot, tensor.spec.name) : tensor.spec.name;
    state.kind = kind;
    state.shape = tensor.spec.shape;
    state.cut = tensor.cut;
    const std::int64_t ranks = tensor.sharding.ranks;
    state.shards = whole ? 1 : ranks;
    state.replicas = whole ? ranks : 1;
    if (state.shards > 1) state.shard = tensor.shard;
    builder.schedule.states.push_back(std::move(state));
  };
  for (; slot < tensor.count; ++slot) {
    const bool repeats = tensor.sharding.repeats_updates();
    row(tensor.param, slot, "parameter", repeats || tensor.sharding.spreads_updates());
    const std::int64_t first = slot * tensor.tiles;
    if (tensor.master != tensor.param) row(tensor.master, first, "master", repeats);
    row(tensor.moment1, first, "moment1", repeats);
    row(tensor.moment2, first, "moment2", repeats);
    row(tensor.grad, slot, "gradient", false);
  }
}

const States::Tensor& States::find(std::string_view name) const {
  for (const auto* list : {&layer_, &global_}) {
    for (const Tensor& tensor : *list) {
      if (tensor.name == name) return tensor;
    }
  }
  FPDT_ASSERT(false);
  return global_.front();
}

bool States::has(std::string_view name) const {
  for (const auto* list : {&layer_, &global_}) {
    for (const Tensor& tensor : *list) {
      if (tensor.name == name) return true;
    }
  }
  return false;
}

Operand States::weight(std::string_view name, const Version& use) const {
  const Tensor& tensor = find(name);
  if (tensor.sharding.gathers_parameters()) return {tensor.gathered, use, 0, -1};
  // The operand leaves out the padding, since no state says that the padding lasts.
  const bool padded = tensor.sharding.parameters(tensor.elements) > tensor.elements;
  return {tensor.param, tensor.now(), 0, padded ? tensor.elements : -1};
}

Operand States::weight_rows(std::string_view name, const Version& use, std::int64_t first,
                            std::int64_t elements) const {
  Operand operand = weight(name, use);
  operand.row_first = first;
  operand.rows = elements;
  return operand;
}

// Gradients that last begin a new value each step, one version after the last step's.
Target States::gradient(std::string_view name, const Version& sum) const {
  const Tensor& tensor = find(name);
  const Sharding& sharding = tensor.sharding;
  if (sharding.collects_gradients()) return {{tensor.gradient_sum, tensor.now(), 0, -1}, true};
  if (sharding.several()) return {{tensor.gradient_sum, sum, 0, -1}, true};
  return {{tensor.grad, tensor.next(), 0, -1}, true};
}

Target States::gradient_rows(std::string_view name, const Version& sum, std::int64_t first,
                             std::int64_t elements) const {
  Target target = gradient(name, sum);
  target.operand.row_first = first;
  target.operand.rows = elements;
  return target;
}

template <class Shares, class Emit>
void States::by_groups(const std::vector<const Tensor*>& tensors, const Shares& shares,
                       const Emit& emit) {
  std::vector<std::vector<const Tensor*>> alike;
  for (const Tensor* tensor : tensors) {
    if (!shares(tensor->sharding)) continue;
    const auto same = std::find_if(alike.begin(), alike.end(), [&](const auto& one) {
      return one.front()->groups == tensor->groups;
    });
    (same == alike.end() ? alike.emplace_back() : *same).push_back(tensor);
  }
  for (const auto& list : alike) emit(list.front()->groups, list);
}

namespace {

// The name of an op over one of the groups that share tensors.
std::string op_of_group(std::string_view op, const std::vector<std::string>& groups,
                        const std::string& group) {
  if (group == "world") return std::string(op);
  return groups.size() == 1 ? fmt::format("{}_{}", op, group)
                            : fmt::format("{}_{}.{}", op, groups.front(), group);
}

}  // namespace

template <class Shares, class Send, class Receive>
void States::gather(Builder& builder, std::string_view op,
                    const std::vector<const Tensor*>& tensors, const Shares& shares,
                    const Send& send, const Receive& receive) {
  by_groups(tensors, shares, [&](const auto& groups, const auto& list) {
    std::vector<Operand> held;
    for (const Tensor* tensor : list) held.push_back(send(*tensor));
    for (std::size_t level = groups.size(); level-- > 0;) {
      AllGather gather{groups[level], held, {}};
      for (std::size_t i = 0; i < list.size(); ++i) {
        held[i] = level == 0 ? receive(*list[i]) : builder.next(list[i]->gathered_block);
        gather.receive.push_back({held[i], false});
      }
      builder.emit(op_of_group(op, groups, groups[level]), LaneKind::comm, std::move(gather));
    }
  });
}

template <class Shares, class Send>
void States::sum(Builder& builder, std::string_view op, const std::vector<const Tensor*>& tensors,
                 const Shares& shares, const Send& send, bool accumulate) const {
  by_groups(tensors, shares, [&](const auto& groups, const auto& list) {
    std::vector<Operand> held;
    for (const Tensor* tensor : list) held.push_back(send(*tensor));
    for (std::size_t level = 0; level < groups.size(); ++level) {
      const bool last = level + 1 == groups.size();
      ReduceScatter reduce{groups[level], held, {}};
      for (std::size_t i = 0; i < list.size(); ++i) {
        held[i] = last ? Operand{list[i]->grad, list[i]->next(), 0, -1}
                       : builder.next(list[i]->summed_block);
        reduce.receive.push_back({held[i], last && accumulate});
      }
      reduce.workspace = next_workspace(builder);
      builder.emit(op_of_group(op, groups, groups[level]), LaneKind::comm, std::move(reduce));
    }
  });
}

std::vector<const States::Tensor*> States::all(const std::vector<std::string>& names) const {
  std::vector<const Tensor*> tensors;
  for (const std::string& name : names) tensors.push_back(&find(name));
  return tensors;
}

void States::emit_gather(Builder& builder, const std::vector<std::string>& names,
                         const Version& use, std::string_view op) const {
  gather(
      builder, op, all(names), std::mem_fn(&Sharding::gathers_parameters),
      [](const Tensor& one) {
        return Operand{one.param, one.now(), 0, -1};
      },
      [&](const Tensor& one) {
        return Operand{one.gathered, use, 0, -1};
      });
}

void States::emit_fill(Builder& builder, const std::vector<std::string>& names,
                       const Version& sum) const {
  for (const Tensor* tensor : all(names)) {
    if (!tensor->sharding.several() || tensor->sharding.collects_gradients()) continue;
    builder.emit("zero_" + tensor->name, LaneKind::compute,
                 Fill{{{tensor->gradient_sum, sum, 0, -1}, false}, 0});
    if (sum.relative) builder.advance(tensor->gradient_sum, 1);
  }
}

void States::emit_reduce(Builder& builder, const std::vector<std::string>& names,
                         const Version& sum_version, std::string_view op) const {
  sum(
      builder, op, all(names),
      [](const Sharding& one) { return one.several() && !one.collects_gradients(); },
      [&](const Tensor& one) {
        return Operand{one.gradient_sum, sum_version, 0, -1};
      },
      true);
}

Operand States::next_workspace(Builder& builder) const { return builder.next(sum_workspace_); }

void States::add_table(Builder& builder) const {
  for (const Tensor& tensor : layer_) add_state_rows(builder, tensor, true);
  for (const Tensor& tensor : global_) add_state_rows(builder, tensor, false);
}

void States::emit_blocks(Builder& builder) const {
  emit_begin(builder);
  emit_norm(builder);
  builder.begin_block("optimizer_layer");
  emit_updates(builder, layer_);
  builder.end_block();
  builder.begin_block("optimizer");
  emit_updates(builder, global_);
  builder.end_block();
  emit_finish(builder);
}

void States::emit_begin(Builder& builder) const {
  const auto scalars = [&] {
    builder.emit(
        "fetch_step", LaneKind::h2d,
        Copy{{step_input_, Version::at(0), 0, -1}, {{step_, Version::at(0), 0, -1}, false}});
    builder.emit("zero_loss", LaneKind::compute, Fill{{{loss_, Version::at(0), 0, -1}, false}, 0});
  };
  const auto zero = [&](const Tensor& tensor) {
    const Operand gradient = tensor.sharding.collects_gradients()
                                 ? Operand{tensor.gradient_sum, tensor.now(), 0, -1}
                                 : Operand{tensor.grad, tensor.next(), 0, -1};
    builder.emit("zero_grad_" + tensor.name, LaneKind::compute, Fill{{gradient, false}, 0});
  };
  builder.begin_block("begin");
  scalars();
  builder.emit("zero_norm", LaneKind::compute, Fill{{{norm_, Version::at(0), 0, -1}, false}, 0});
  for (const Tensor& tensor : global_) zero(tensor);
  builder.end_block();
  builder.begin_block("begin_layer");
  for (const Tensor& tensor : layer_) zero(tensor);
  builder.end_block();
  builder.begin_block("begin_evaluate");
  scalars();
  builder.end_block();
}

void States::emit_norm(Builder& builder) const {
  const auto square = [&](const std::vector<Tensor>& tensors) {
    sum(
        builder, "reduce_gradients", pointers(tensors), std::mem_fn(&Sharding::collects_gradients),
        [](const Tensor& one) {
          return Operand{one.gradient_sum, one.now(), 0, -1};
        },
        false);
    for (const Tensor& tensor : tensors) {
      builder.emit(
          "norm_" + tensor.name, LaneKind::compute,
          SquaredNorm{{tensor.grad, tensor.next(), 0, -1}, {{norm_, Version::at(0), 0, -1}, true}});
    }
  };
  builder.begin_block("grad_norm_layer");
  square(layer_);
  builder.end_block();
  builder.begin_block("grad_norm");
  square(global_);
  if (several()) {
    builder.emit("reduce_norm", LaneKind::comm,
                 AllReduce{"world",
                           {{norm_, Version::at(0), 0, -1}},
                           {{{norm_total_, Version::at(0), 0, -1}, false}},
                           next_workspace(builder)});
  }
  builder.end_block();
}

// The update op, without the way in which its states reach the device.
AdamW States::update_of(const Tensor& tensor, std::int64_t first, std::int64_t rows) const {
  const OptimizerSpec& optimizer = problem_.optimizer;
  AdamW update;
  const bool whole = tensor.sharding.repeats_updates();
  update.grad = {tensor.grad, tensor.next(), first, rows};
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

// Makes the sums, of which each rank has a piece, whole again.
void States::emit_whole_gradients(Builder& builder, const std::vector<const Tensor*>& tensors) {
  gather(
      builder, "gather_gradients", tensors, std::mem_fn(&Sharding::repeats_updates),
      [](const Tensor& one) {
        return Operand{one.grad, one.next(), 0, -1};
      },
      [](const Tensor& one) {
        return Operand{one.gradient_sum, one.next(), 0, -1};
      });
}

// Gives the updated pieces of parameters to all ranks.
void States::emit_spread(Builder& builder, const std::vector<const Tensor*>& tensors) {
  gather(
      builder, "gather_parameters", tensors, std::mem_fn(&Sharding::spreads_updates),
      [&](const Tensor& one) { return builder.next(one.updated); },
      [](const Tensor& one) {
        return Operand{one.param, one.next(), 0, -1};
      });
}

void States::emit_updates(Builder& builder, const std::vector<Tensor>& tensors) const {
  emit_whole_gradients(builder, pointers(tensors));
  std::int64_t tile = 0;  // of the stream through the device
  for (const Tensor& tensor : tensors) {
    if (strategy_.offloads_states()) {
      emit_streamed_update(builder, tensor, tile);
      continue;
    }
    AdamW update = update_of(tensor, 0, -1);
    update.master = {tensor.master, tensor.now(), 0, -1};
    update.m = {tensor.moment1, tensor.now(), 0, -1};
    update.v = {tensor.moment2, tensor.now(), 0, -1};
    update.master_out.operand = {tensor.master, tensor.next(), 0, -1};
    update.m_out.operand = {tensor.moment1, tensor.next(), 0, -1};
    update.v_out.operand = {tensor.moment2, tensor.next(), 0, -1};
    builder.emit("update_" + tensor.name, LaneKind::compute, update);
  }
  emit_spread(builder, pointers(tensors));
}

// Fetches master weights and moments tile by tile, updates them in place and sends them back.
void States::emit_streamed_update(Builder& builder, const Tensor& tensor,
                                  std::int64_t& tile) const {
  const LaneKind out = strategy_.copies.duplex ? LaneKind::d2h : LaneKind::h2d;
  const std::array<BufferIndex, 3> homes{tensor.master, tensor.moment1, tensor.moment2};
  const std::array<const char*, 3> words{"master", "moment1", "moment2"};
  for (std::int64_t t = 0; t < tensor.tiles; ++t, ++tile) {
    const std::int64_t first = t * tensor.tile;
    const std::int64_t n = std::min(tensor.tile, tensor.held - first);
    const std::int64_t layer = tensor.count > 1 ? tensor.tiles : 0;
    const Version now = Version::at(t, layer);
    const Version next = Version::at(mul(tensor.count, tensor.tiles) + t, layer);
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
    AdamW update = update_of(tensor, first, n);
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
  const LaneKind out = strategy_.copies.duplex ? LaneKind::d2h : LaneKind::h2d;
  const Version zero = Version::at(0);
  const auto give_loss = [&] {
    if (several()) {
      builder.emit("reduce_loss", LaneKind::comm,
                   AllReduce{"world",
                             {{loss_, zero, 0, -1}},
                             {{{loss_total_, zero, 0, -1}, false}},
                             next_workspace(builder)});
    }
    builder.emit(
        "spill_loss", out,
        Copy{{several() ? loss_total_ : loss_, zero, 0, -1}, {{loss_output_, zero, 0, -1}, false}});
  };
  builder.begin_block("finish");
  give_loss();
  builder.emit(
      "spill_norm", out,
      Copy{{several() ? norm_total_ : norm_, zero, 0, -1}, {{norm_output_, zero, 0, -1}, false}});
  builder.end_block();
  builder.begin_block("finish_evaluate");
  give_loss();
  builder.end_block();
}

}  // namespace fpdt
