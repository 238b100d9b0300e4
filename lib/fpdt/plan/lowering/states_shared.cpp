// Gathers and sums of what ranks share: the stages of ZeRO (Rajbhandari et al., arXiv 1910.02054).
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "fpdt/plan/lowering/groups.h"
#include "fpdt/plan/lowering/states.h"

namespace fpdt {
namespace {

// The name of an op over one of the groups that share tensors.
std::string op_of_group(std::string_view op, const std::vector<std::string>& groups,
                        const std::string& group) {
  if (groups.front() == "world") return std::string(op);
  return groups.size() == 1 ? fmt::format("{}_{}", op, group)
                            : fmt::format("{}_{}.{}", op, groups.front(), group);
}

}  // namespace

std::vector<std::vector<const States::Tensor*>> States::alike(
    const std::vector<const Tensor*>& tensors, const Shares& shares) {
  std::vector<std::vector<const Tensor*>> lists;
  for (const Tensor* tensor : tensors) {
    if (!shares(tensor->sharding)) continue;
    const auto same = std::find_if(lists.begin(), lists.end(), [&](const auto& one) {
      return one.front()->groups == tensor->groups;
    });
    (same == lists.end() ? lists.emplace_back() : *same).push_back(tensor);
  }
  return lists;
}

void States::gather(Builder& builder, std::string_view op,
                    const std::vector<const Tensor*>& tensors, const Shares& shares,
                    const Named& send, const Named& receive, const Levels& levels) {
  for (const auto& list : alike(tensors, shares)) {
    const std::vector<std::string>& groups = list.front()->groups;
    const auto [first, end] = levels(*list.front());
    std::vector<Operand> held;
    for (const Tensor* tensor : list) held.push_back(send(*tensor));
    for (std::size_t level = end; level-- > first;) {
      AllGather gather{groups[level], held, {}};
      for (std::size_t i = 0; i < list.size(); ++i) {
        held[i] = level == first ? receive(*list[i]) : builder.next(list[i]->gathered_block);
        gather.receive.push_back({held[i], false});
      }
      builder.emit(op_of_group(op, groups, groups[level]), LaneKind::comm, std::move(gather));
    }
  }
}

void States::sum(Builder& builder, std::string_view op, const std::vector<const Tensor*>& tensors,
                 const Shares& shares, const Named& send, const Named& receive,
                 bool accumulate) const {
  for (const auto& list : alike(tensors, shares)) {
    const std::vector<std::string>& groups = list.front()->groups;
    std::vector<Operand> held;
    for (const Tensor* tensor : list) held.push_back(send(*tensor));
    for (std::size_t level = 0; level < groups.size(); ++level) {
      const bool last = level + 1 == groups.size();
      ReduceScatter reduce{groups[level], held, {}};
      for (std::size_t i = 0; i < list.size(); ++i) {
        held[i] = last ? receive(*list[i]) : builder.next(list[i]->summed_block);
        reduce.receive.push_back({held[i], last && accumulate});
      }
      reduce.workspace = next_workspace(builder);
      builder.emit(op_of_group(op, groups, groups[level]), LaneKind::comm, std::move(reduce));
    }
  }
}

// Adds up a scalar of all ranks.
void States::emit_total(Builder& builder, std::string_view op, BufferIndex scalar,
                        BufferIndex total) const {
  if (!several()) return;
  const std::vector<std::string> groups = groups_of_all(problem_, strategy_);
  Operand held{scalar, Version::at(0), 0, -1};
  for (const std::string& group : groups) {
    const Operand sum =
        group == groups.back() ? Operand{total, Version::at(0), 0, -1} : builder.next(node_total_);
    builder.emit(op_of_group(op, groups, group), LaneKind::comm,
                 AllReduce{group, {held}, {{sum, false}}, next_workspace(builder)});
    held = sum;
  }
}

void States::emit_clear_loads(Builder& builder) const {
  for (const Target& sum : {loads(), chances()}) {
    builder.emit("zero_" + builder.at(sum.operand.buffer).name, LaneKind::compute,
                 Fill{{sum.operand, false}, 0});
  }
}

void States::emit_balance(Builder& builder) const {
  if (loads_total_ >= 0) {
    builder.emit("reduce_loads", LaneKind::comm,
                 AllReduce{"sequence",
                           {loads().operand},
                           {{sequence_loads(), false}},
                           builder.next(loads_workspace_)});
  }
  BalanceLoss term;
  term.loads = sequence_loads();
  term.chances = chances().operand;
  term.loss = {{balance_, Version::at(0), 0, -1}, true};
  term.experts = problem_.model.experts;
  term.active = problem_.model.active_experts;
  term.balance = balance();
  term.z = z();
  builder.emit("balance", LaneKind::compute, term);
}

std::vector<const States::Tensor*> States::all(const std::vector<std::string>& names) const {
  std::vector<const Tensor*> tensors;
  for (const std::string& name : names) tensors.push_back(&find(name));
  return tensors;
}

std::vector<const States::Tensor*> States::all_but_slices(
    const std::vector<std::string>& names) const {
  std::vector<const Tensor*> tensors = all(names);
  std::erase_if(tensors, std::mem_fn(&Tensor::is_slice));
  return tensors;
}

void States::emit_gather(Builder& builder, const std::vector<std::string>& names,
                         const Version& use, std::string_view op) const {
  const std::vector<const Tensor*> tensors = all_but_slices(names);
  const auto fetched = [&](const Tensor& one) { return Operand{one.fetched, use, 0, -1}; };
  for (const Tensor* one : tensors) {
    if (!one->streams_parameters()) continue;
    builder.emit("fetch_" + one->name, LaneKind::h2d,
                 Copy{{one->param, one->now(), 0, -1}, {fetched(*one), false}});
  }
  gather(
      builder, op, tensors, std::mem_fn(&Sharding::gathers_parameters),
      [&](const Tensor& one) {
        return one.streams_parameters() ? fetched(one) : Operand{one.param, one.now(), 0, -1};
      },
      [&](const Tensor& one) {
        return Operand{one.gathered, use, 0, -1};
      },
      [](const Tensor& one) { return std::pair(std::size_t{0}, one.lenders); });
}

void States::emit_fill(Builder& builder, const std::vector<std::string>& names,
                       const Version& sum) const {
  const auto fill = [&](const std::string& op, BufferIndex buffer) {
    builder.emit(op, LaneKind::compute, Fill{{{buffer, sum, 0, -1}, false}, 0});
  };
  for (const Tensor* tensor : all(names)) {
    if (tensor->gradient_sum < 0 || tensor->sums_whole()) continue;
    if (!tensor->is_slice()) fill("zero_" + tensor->name, tensor->gradient_sum);
    if (tensor->summed >= 0) fill("zero_summed_" + tensor->name, tensor->summed);
  }
}

void States::emit_resume(Builder& builder) const {
  for (const Tensor& tensor : runs_[run_].tensors) {
    if (tensor.summed >= 0 && !tensor.is_slice()) {
      builder.emit("zero_" + tensor.name, LaneKind::compute,
                   Fill{{{tensor.gradient_sum, Version::plus(0), 0, -1}, false}, 0});
    }
    bring(builder, tensor, tensor.sum_before(), piece_of(tensor, Version::plus(0)));
  }
}

Operand States::piece_of(const Tensor& tensor, const Version& sum) {
  return {tensor.summed >= 0 ? tensor.summed : tensor.gradient_sum, sum, 0, -1};
}

void States::emit_reduce(Builder& builder, const std::vector<std::string>& names,
                         const Version& sum_version, std::string_view op) const {
  emit_sum(builder, all_but_slices(names), sum_version, sum_version, op);
  for (const Tensor* one : all(names)) {
    if (one->moves_gradients()) emit_keep(builder, *one, piece_of(*one, sum_version));
    if (!sum_version.relative || one->sums_whole()) continue;
    for (const BufferIndex sums : {one->is_slice() ? -1 : one->gradient_sum, one->summed}) {
      if (sums >= 0) builder.advance(sums, 1);
    }
  }
}

void States::emit_sum(Builder& builder, const std::vector<const Tensor*>& tensors,
                      const Version& of, const Version& piece, std::string_view op) const {
  sum(
      builder, op, tensors,
      [](const Sharding& one) { return one.several() && !one.collects_gradients(); },
      [&](const Tensor& one) {
        return Operand{one.gradient_sum, of, 0, -1};
      },
      [&](const Tensor& one) {
        return one.moves_gradients() ? piece_of(one, piece) : Operand{one.grad, one.next(), 0, -1};
      },
      true);
}

Operand States::bring_slice(Builder& builder, std::string_view name, const Version& use,
                            const std::string& op) const {
  const Tensor& tensor = find(name);
  Operand held{tensor.param, tensor.now(), 0, -1};
  Version version = use;
  if (tensor.streams_parameters()) {
    const Operand fetched = builder.next(tensor.fetched);
    version = fetched.version;
    builder.emit("fetch_" + op, LaneKind::h2d, Copy{held, {fetched, false}});
    held = fetched;
  }
  if (tensor.sharding.gathers_parameters()) {
    const Operand whole = builder.next(tensor.gathered);
    version = whole.version;
    gather(
        builder, "gather_" + op, {&tensor}, std::mem_fn(&Sharding::gathers_parameters),
        [&](const Tensor&) { return held; }, [&](const Tensor&) { return whole; },
        [](const Tensor& one) { return std::pair(std::size_t{0}, one.lenders); });
  }
  return weight(name, version);
}

// The sum is new, so its op writes it; where there is padding, it adds to zeros.
Target States::begin_slice_gradient(Builder& builder, std::string_view name,
                                    const std::string& op) const {
  const Tensor& tensor = find(name);
  const bool padded = tensor.sharding.whole(tensor.elements) > tensor.elements;
  Target target{builder.next(tensor.gradient_sum), padded};
  if (padded) builder.emit(op, LaneKind::compute, Fill{{target.operand, false}, 0});
  target.operand.row_first = 0;
  target.operand.rows = tensor.elements;
  return target;
}

void States::reduce_slice_gradient(Builder& builder, std::string_view name, const Target& sum,
                                   std::string_view op) const {
  emit_sum(builder, {&find(name)}, sum.operand.version, Version::plus(0), op);
}

// Rounds a sum, or moves it to the host, or both.
void States::emit_keep(Builder& builder, const Tensor& tensor, const Operand& sum) const {
  const Operand home{tensor.kept, tensor.sum_after(), 0, -1};
  const bool spills = strategy_.offloads(StateClass::gradients);
  Operand last = sum;
  if (strategy_.gradients != Storage::f32) {
    last = spills ? builder.next(tensor.rounded) : home;
    builder.emit("round_grad_" + tensor.name, LaneKind::compute, Copy{sum, {last, false}});
  }
  if (spills) builder.emit("spill_grad_" + tensor.name, out_lane(), Copy{last, {home, false}});
}

Operand States::complete_gradient(Builder& builder, const Tensor& tensor) const {
  if (tensor.complete_gradient < 0) return {tensor.grad, tensor.next(), 0, -1};
  const Operand whole = builder.next(tensor.complete_gradient);
  bring(builder, tensor, tensor.sum_of_all(), whole);
  return whole;
}

// Fetches a sum from where it is kept, or widens it, or both.
void States::bring(Builder& builder, const Tensor& tensor, const Version& sum,
                   const Operand& to) const {
  Operand from{tensor.kept, sum, 0, -1};
  const bool rounded = strategy_.gradients != Storage::f32;
  if (strategy_.offloads(StateClass::gradients)) {
    const Operand here = rounded ? builder.next(tensor.fetched_rounded) : to;
    builder.emit("fetch_grad_" + tensor.name, LaneKind::h2d, Copy{from, {here, false}});
    from = here;
  }
  if (rounded)
    builder.emit("widen_grad_" + tensor.name, LaneKind::compute, Copy{from, {to, false}});
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
      },
      [](const Tensor& one) { return std::pair(std::size_t{0}, one.groups.size()); });
}

// Gives the updated pieces of parameters to all ranks with the same block of them.
void States::emit_spread(Builder& builder, const std::vector<const Tensor*>& tensors) {
  gather(
      builder, "gather_parameters", tensors, std::mem_fn(&Sharding::spreads_updates),
      [&](const Tensor& one) { return builder.next(one.updated); },
      [](const Tensor& one) {
        return Operand{one.param, one.next(), 0, -1};
      },
      [](const Tensor& one) { return std::pair(one.lenders, one.groups.size()); });
}

}  // namespace fpdt
