// Declares parameters, gradients and states, and names them for their users.
#include "fpdt/plan/lowering/states.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/groups.h"
#include "fpdt/schedule/sum_workspace.h"

namespace fpdt {
States::States(Builder& builder, const Problem& problem, const Strategy& strategy)
    : problem_(problem), strategy_(strategy) {
  builder.schedule.groups = groups_of(problem, strategy);
  for (const LayerRun& layers : layer_runs(problem.model)) {
    const LayerKind& kind = problem.model.kind_of(layers.first);
    Run& run = runs_.emplace_back();
    run.first = layers.first;
    run.count = layers.count;
    if (kind.dense_feed_forward > 0) run.suffix = "_" + kind.name;
    for (const SharedTensor& shared : shared_layer_tensors(problem, strategy, layers.model)) {
      add(builder, shared, &run);
      run.names.push_back(shared.name);
    }
  }
  for (const SharedTensor& shared : shared_global_tensors(problem, strategy)) {
    add(builder, shared, nullptr);
  }
  declare_scalars(builder);
  if (strategy.offloads_states()) declare_stages(builder);
}

BufferIndex States::state(Builder& builder, const char* kind, const Tensor& tensor,
                          Category category, Dtype dtype, std::int64_t elements, std::int64_t slots,
                          MemorySpace space) {
  return builder.add({fmt::format("{}.{}", kind, tensor.label),
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
void States::add(Builder& builder, const SharedTensor& shared, Run* run) {
  Tensor tensor{shared, 0, 1, shared.name};
  if (run != nullptr) {
    tensor.first = run->first;
    tensor.count = run->count;
    if (!run->suffix.empty()) tensor.label.append(".").append(run->suffix, 1);
  }
  const bool layered = run != nullptr;
  const Sharding& sharding = tensor.sharding;
  const std::string& name = tensor.name;
  const std::int64_t held = sharding.states(tensor.elements);
  const std::int64_t piece = sharding.piece(tensor.elements);
  const std::int64_t whole = sharding.whole(tensor.elements);
  const Dtype storage = storage_type(strategy_);
  const bool offload = strategy_.offloads_states();
  const auto home = [&](StateClass one) {
    const bool host = layered && strategy_.kept(one) == 0;
    return host ? MemorySpace::host_pinned : MemorySpace::device;
  };
  tensor.held = held;
  tensor.tile = offload ? state_tile(held) : held;
  tensor.tiles = div_ceil(held, tensor.tile);
  tensor.param =
      state(builder, "param", tensor, Category::weights, storage,
            sharding.parameters(tensor.elements), tensor.count, home(StateClass::parameters));
  const bool rounds =
      layered && strategy_.gradients != Storage::f32 && !sharding.collects_gradients();
  tensor.grad = state(builder, "grad", tensor, Category::gradients, rounds ? storage : Dtype::f32,
                      piece, tensor.count, home(StateClass::gradients));
  const Tensor* const same = same_slots(run, tensor);
  if (layered) declare_streams(builder, tensor);
  const auto optimizer = [&](const char* kind) {
    return state(builder, kind, tensor, Category::optimizer, Dtype::f32, tensor.tile,
                 tensor.count * tensor.tiles,
                 offload ? MemorySpace::host_pinned : MemorySpace::device);
  };
  // All parts of a tensor have masters if one has.
  const bool apart = name != tensor.spec.name;
  const bool own_master = offload || storage != Dtype::f32 || sharding.spreads_updates() ||
                          tensor.streams_parameters() ||
                          (apart && (sharding.stage == 1 || sharding.stage == 2));
  tensor.master = own_master ? optimizer("master") : tensor.param;
  tensor.moment1 = optimizer("moment1");
  tensor.moment2 = optimizer("moment2");
  declare_wholes(builder, tensor, layered ? 2 : 1, same);
  // Pieces of parameters on their way to all ranks, or to the host.
  if (sharding.spreads_updates() || tensor.streams_parameters()) {
    tensor.updated = temporary(builder, "updated." + tensor.label, Category::weights, storage,
                               piece, std::min<std::int64_t>(2, tensor.count));
  }
  declare_blocks(builder, tensor, same);
  std::int64_t block = whole;
  for (std::size_t i = 0; i < tensor.groups.size() && sharding.several(); ++i) {
    const std::int64_t members = group_named(builder.schedule, tensor.groups[i]).size;
    block = div_exact(block, members);
    largest_sum_ = std::max(largest_sum_, sum_workspace_bytes(members, Bytes{4 * block}));
  }
  largest_tile_ = std::max(largest_tile_, tensor.tile);
  (layered ? run->tensors : global_).push_back(std::move(tensor));
}

const States::Tensor* States::same_slots(const Run* run, const Tensor& tensor) {
  if (run == nullptr || !tensor.is_slice()) return nullptr;
  for (const Tensor& known : run->tensors) {
    if (known.ring == tensor.ring) return &known;
  }
  return nullptr;
}

// Whole tensors, while a layer uses them and the next is on its way. Slices of a tensor follow each
// other in the same slots.
void States::declare_wholes(Builder& builder, Tensor& tensor, std::int64_t slots,
                            const Tensor* same) const {
  if (same != nullptr) {
    tensor.gathered = same->gathered;
    tensor.gradient_sum = same->gradient_sum;
    return;
  }
  const Sharding& sharding = tensor.sharding;
  const std::int64_t whole = sharding.whole(tensor.elements);
  const std::string& label = tensor.is_slice() ? tensor.ring : tensor.label;
  if (sharding.gathers_parameters()) {
    tensor.gathered = temporary(builder, "gathered." + label, Category::weights,
                                storage_type(strategy_), whole, slots);
  }
  if (sharding.several() || tensor.moves_gradients()) {
    tensor.gradient_sum = temporary(builder, "gradient_sum." + label, Category::gradients,
                                    Dtype::f32, whole, tensor.sums_whole() ? tensor.count : slots);
  }
}

// Each has a slot for a layer and one for the next.
void States::declare_streams(Builder& builder, Tensor& tensor) const {
  const Sharding& sharding = tensor.sharding;
  const std::int64_t piece = sharding.piece(tensor.elements);
  if (strategy_.kept(StateClass::parameters) == 0) {
    tensor.fetched = temporary(builder, "fetched." + tensor.label, Category::weights,
                               storage_type(strategy_), sharding.parameters(tensor.elements), 2);
  }
  if (!strategy_.moves_gradients()) return;
  tensor.sums = strategy_.micro_batches;
  if (sharding.collects_gradients()) {
    tensor.kept = temporary(builder, "collected." + tensor.label, Category::gradients,
                            storage_type(strategy_), sharding.whole(tensor.elements), tensor.count);
    return;
  }
  tensor.kept = tensor.grad;
  const auto slots = [&](const char* name, Dtype dtype) {
    return temporary(builder, fmt::format("{}.{}", name, tensor.label), Category::gradients, dtype,
                     piece, 2);
  };
  tensor.complete_gradient = slots("complete_gradient", Dtype::f32);
  if (sharding.several()) tensor.summed = slots("summed", Dtype::f32);
  if (strategy_.gradients == Storage::f32 || !strategy_.offloads(StateClass::gradients)) return;
  tensor.rounded = slots("rounded", storage_type(strategy_));
  tensor.fetched_rounded = slots("fetched_rounded", storage_type(strategy_));
}

// What a group of groups shares passes through the block that one of them has, unless parameters
// lie in these blocks. Slices follow each other through one, but an update gathers all at once.
void States::declare_blocks(Builder& builder, Tensor& tensor, const Tensor* same) const {
  if (tensor.groups.size() == 1) return;
  const std::int64_t block = div_exact(tensor.sharding.whole(tensor.elements),
                                       group_named(builder.schedule, tensor.groups.front()).size);
  const Dtype gathered = tensor.sharding.repeats_updates() ? Dtype::f32 : storage_type(strategy_);
  const Category category =
      tensor.sharding.repeats_updates() ? Category::gradients : Category::weights;
  if (same != nullptr && tensor.sharding.gathers_parameters()) {
    tensor.gathered_block = same->gathered_block;
  } else if (tensor.sharding.repeats_updates() || tensor.lenders != 1) {
    tensor.gathered_block =
        temporary(builder, "gathered_block." + tensor.label, category, gathered, block, 1);
  }
  tensor.summed_block = same != nullptr ? same->summed_block
                                        : temporary(builder, "summed_block." + tensor.label,
                                                    Category::gradients, Dtype::f32, block, 1);
}

// Elements of a piece of states that come from the host: of equal pieces, so that the last one has
// hardly any padding.
std::int64_t States::state_tile(std::int64_t held) const {
  const std::int64_t tiles = div_ceil(held, strategy_.copies.optimizer_tile);
  return round_up(div_ceil(held, tiles), kAlignment / 4);
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
  if (balances()) {
    loads_ = scalars("expert_loads", problem_.model.experts, Role::temporary);
    chances_ = scalars("expert_chances", problem_.model.experts + 1, Role::temporary);
    balance_ = scalars("balance", 1, Role::temporary);
    if (several()) balance_total_ = scalars("balance_total", 1, Role::temporary);
    balance_output_ = scalars("balance_output", 1, Role::output);
    const std::int64_t ranks = geometry(problem_, strategy_).sequence_parallel;
    if (ranks > 1) {
      loads_total_ = scalars("expert_loads_total", problem_.model.experts, Role::temporary);
      // Forward sums nothing else, so that it need not keep room for the sums of gradients.
      const Bytes block{4 * div_ceil(problem_.model.experts, ranks)};
      loads_workspace_ =
          scalars("loads_workspace", div_exact(sum_workspace_bytes(ranks, block).value, 4),
                  Role::temporary);
    }
  }
  if (!several()) return;
  loss_total_ = scalars("loss_total", 1, Role::temporary);
  norm_total_ = scalars("grad_norm_total", 1, Role::temporary);
  if (groups_of_all(problem_, strategy_).size() > 1) {
    node_total_ = scalars("node_total", 1, Role::temporary);
  }
  // Large enough for the sum of the longest tensor, for that of the gradients of a chunk's keys,
  // and for that of the terms that ranks share.
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
                                  {largest_tile_},
                                  kStageSlots,
                                  kUnplaced});
  }
}

// Adds a row of the state table for each tensor and layer.
void States::add_state_rows(Builder& builder, const Tensor& tensor, bool layered) const {
  std::int64_t slot = 0;
  const auto row = [&](BufferIndex buffer, std::int64_t version, const char* kind,
                       std::int64_t shards) {
    State state;
    state.buffer = buffer;
    state.version = version;
    state.tensor =
        layered ? layer_tensor_name(tensor.first + slot, tensor.spec.name) : tensor.spec.name;
    state.kind = kind;
    state.shape = tensor.spec.shape;
    state.cut = tensor.cut;
    state.shards = shards;
    state.replicas = div_exact(tensor.sharding.ranks, shards);
    if (shards > 1) state.shard = state.replicas > 1 ? tensor.block : tensor.shard;
    builder.schedule.states.push_back(std::move(state));
  };
  for (; slot < tensor.count; ++slot) {
    const std::int64_t pieces = tensor.sharding.ranks;
    const std::int64_t states = tensor.sharding.repeats_updates() ? 1 : pieces;
    const std::int64_t first = slot * tensor.tiles;
    row(tensor.param, slot, "parameter", tensor.sharding.holders);
    if (tensor.master != tensor.param) row(tensor.master, first, "master", states);
    row(tensor.moment1, first, "moment1", states);
    row(tensor.moment2, first, "moment2", states);
    row(tensor.grad, slot, "gradient", pieces);
  }
}

const States::Run& States::run_of(std::int64_t layer) const {
  for (const Run& run : runs_) {
    if (layer < run.first + run.count) return run;
  }
  FPDT_ASSERT(false);
  return runs_.back();
}

const States::Tensor* States::found(std::string_view name) const {
  for (const auto* list : {&runs_[run_].tensors, &global_}) {
    for (const Tensor& tensor : *list) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

const States::Tensor& States::find(std::string_view name) const {
  const Tensor* const tensor = found(name);
  FPDT_ASSERT(tensor != nullptr);
  return *tensor;
}

Operand States::weight(std::string_view name, const Version& use) const {
  const Tensor& tensor = find(name);
  if (tensor.sharding.gathers_parameters()) return {tensor.gathered, use, 0, -1};
  // The operand leaves out the padding, since no state says that the padding lasts.
  const bool padded = tensor.sharding.parameters(tensor.elements) > tensor.elements;
  const std::int64_t rows = padded ? tensor.elements : -1;
  if (tensor.streams_parameters()) return {tensor.fetched, use, 0, rows};
  return {tensor.param, tensor.now(), 0, rows};
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
  if (tensor.sums_whole()) return {{tensor.gradient_sum, tensor.now(), 0, -1}, true};
  if (tensor.gradient_sum >= 0) return {{tensor.gradient_sum, sum, 0, -1}, true};
  return {{tensor.grad, tensor.next(), 0, -1}, true};
}

Target States::gradient_rows(std::string_view name, const Version& sum, std::int64_t first,
                             std::int64_t elements) const {
  Target target = gradient(name, sum);
  target.operand.row_first = first;
  target.operand.rows = elements;
  return target;
}

Operand States::next_workspace(Builder& builder) const { return builder.next(sum_workspace_); }

void States::add_table(Builder& builder) const {
  for (const Run& run : runs_) {
    for (const Tensor& tensor : run.tensors) add_state_rows(builder, tensor, true);
  }
  for (const Tensor& tensor : global_) add_state_rows(builder, tensor, false);
}

}  // namespace fpdt
