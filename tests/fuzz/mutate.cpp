// The kinds of changes.
#include "mutate.h"

#include <algorithm>
#include <utility>

#include "fpdt/plan/place.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/verify.h"

namespace fpdt::fuzz {
namespace {

// Pointers to all parts of a body.
struct Parts : FieldVisitor<Parts> {
  std::vector<std::int64_t*> integers;
  std::vector<double*> reals;
  std::vector<bool*> flags;
  std::vector<Operand*> operands;
  std::vector<Target*> outputs;

  void read(std::string_view, Operand& operand) { operands.push_back(&operand); }
  void target(std::string_view, Target& target) {
    operands.push_back(&target.operand);
    outputs.push_back(&target);
  }
  template <class T>
  void constant(std::string_view, T& value) {
    if constexpr (std::is_same_v<T, std::int64_t>) integers.push_back(&value);
    if constexpr (std::is_same_v<T, double>) reals.push_back(&value);
    if constexpr (std::is_same_v<T, bool>) flags.push_back(&value);
    if constexpr (std::is_same_v<T, RankExpression>) {
      integers.push_back(&value.a);
      for (RankTerm* term : {&value.first, &value.second}) {
        for (std::int64_t* part : {&term->b, &term->s, &term->m, &term->n}) {
          integers.push_back(part);
        }
      }
    }
  }
};

Parts parts_of(Op& op) {
  Parts parts;
  std::visit([&parts](auto& body) { body.fields(body, parts); }, op.body);
  return parts;
}

// Drops edges that name a removed op, and renumbers those that name later ops.
void forget(Schedule& schedule, std::int32_t block, std::int32_t op) {
  for (Block& one : schedule.blocks) {
    for (Op& waiting : one.ops) {
      std::erase_if(waiting.after, [&](const After& a) { return a.block == block && a.op == op; });
      for (After& after : waiting.after) {
        if (after.block == block && after.op > op) --after.op;
      }
    }
  }
}

}  // namespace

std::int64_t Mutator::changed(std::int64_t value) {
  switch (pick(0, 7)) {
    case 0:
      return value + 1;
    case 1:
      return value - 1;
    case 2:
      return value * 2;
    case 3:
      return value / 2;
    case 4:
      return 0;
    case 5:
      return -1;
    case 6:
      return -value;
    default:
      return pick(0, 64);
  }
}

Op& Mutator::any_op(Schedule& schedule) {
  Block* block = &any(schedule.blocks);
  while (block->ops.empty()) block = &any(schedule.blocks);
  return any(block->ops);
}

std::string Mutator::change_number(Schedule& schedule) {
  Op& op = any_op(schedule);
  Parts parts = parts_of(op);
  if (!parts.flags.empty() && chance(20)) {
    bool& flag = *any(parts.flags);
    flag = !flag;
  } else if (!parts.reals.empty() && chance(30)) {
    double& real = *any(parts.reals);
    real = chance(50) ? real * 1.5 : real + 1;
  } else if (!parts.integers.empty()) {
    std::int64_t& integer = *any(parts.integers);
    integer = changed(integer);
  }
  return "number of " + op.name;
}

std::string Mutator::change_version(Version& version) {
  if (chance(60)) {
    version.offset += pick(-3, 3);
  } else if (chance(40)) {
    version.relative = !version.relative;
  } else {
    std::int64_t* const parts[] = {&version.layer, &version.micro_batch, &version.segment};
    *parts[pick(0, 2)] += pick(-1, 1);
  }
  return "version";
}

std::string Mutator::change_operand(Schedule& schedule) {
  Op& op = any_op(schedule);
  Parts parts = parts_of(op);
  Operand& operand = *any(parts.operands);
  switch (pick(0, 6)) {
    case 0:
      operand.buffer =
          static_cast<BufferIndex>(pick(0, static_cast<std::int64_t>(schedule.buffers.size()) - 1));
      break;
    case 1:
      change_version(operand.version);
      break;
    case 2:
      operand.row_first = changed(operand.row_first);
      break;
    case 3:
      operand.rows = changed(operand.rows);
      break;
    case 4:
      std::swap(operand, *any(parts.operands));
      break;
    case 5: {
      Parts others = parts_of(any_op(schedule));
      operand = *any(others.operands);
      break;
    }
    default:
      if (parts.outputs.empty()) break;
      Target& target = *any(parts.outputs);
      target.accumulate = !target.accumulate;
  }
  return "operand of " + op.name;
}

std::string Mutator::change_order(Schedule& schedule) {
  const std::int64_t number = pick(0, static_cast<std::int64_t>(schedule.blocks.size()) - 1);
  Block& block = schedule.blocks[static_cast<std::size_t>(number)];
  if (block.ops.empty()) return "nothing";
  const std::int64_t at = pick(0, static_cast<std::int64_t>(block.ops.size()) - 1);
  const auto op = block.ops.begin() + at;
  const std::string name = op->name;
  switch (pick(0, 4)) {
    case 0:
      block.ops.erase(op);
      forget(schedule, static_cast<std::int32_t>(number), static_cast<std::int32_t>(at));
      return "without " + name;
    case 1: {
      Op twice = *op;
      twice.name += "_again";
      block.ops.push_back(std::move(twice));
      return "twice " + name;
    }
    case 2:
      if (at + 1 < std::ssize(block.ops)) std::swap(op->body, (op + 1)->body);
      return "swapped " + name;
    case 3:
      std::swap(op->body, any(block.ops).body);
      return "exchanged " + name;
    default:
      op->lane.index = static_cast<std::int32_t>(pick(0, 2));
      return "lane of " + name;
  }
}

std::string Mutator::change_edges(Schedule& schedule) {
  Op& op = any_op(schedule);
  if (!op.after.empty() && chance(70)) {
    op.after.erase(op.after.begin() + pick(0, std::ssize(op.after) - 1));
    return "edge of " + op.name;
  }
  const auto block = static_cast<std::int32_t>(pick(0, std::ssize(schedule.blocks) - 1));
  const auto count = std::ssize(schedule.blocks[static_cast<std::size_t>(block)].ops);
  op.after.push_back({block,
                      static_cast<std::int32_t>(pick(0, std::max<std::int64_t>(count, 1) - 1)),
                      static_cast<std::int32_t>(pick(0, 1))});
  return "new edge of " + op.name;
}

std::string Mutator::change_buffer(Schedule& schedule) {
  Buffer& buffer = any(schedule.buffers);
  switch (pick(0, 5)) {
    case 0:
      buffer.role = static_cast<Role>(pick(0, 3));
      break;
    case 1:
      buffer.dtype = static_cast<Dtype>(pick(0, 2));
      break;
    case 2:
      buffer.space = static_cast<MemorySpace>(pick(0, 2));
      break;
    case 3:
      buffer.slots = std::max<std::int64_t>(1, buffer.slots + pick(-1, 1));
      break;
    case 4: {
      std::int64_t& extent = any(buffer.shape);
      extent = changed(extent);
      break;
    }
    default:
      buffer.offset += 256 * pick(-4, 4);
  }
  return "buffer " + buffer.name;
}

std::string Mutator::change_state(Schedule& schedule) {
  if (schedule.states.empty()) return "nothing";
  State& state = any(schedule.states);
  State& other = any(schedule.states);
  switch (pick(0, 5)) {
    case 0:
      std::swap(state.buffer, other.buffer);
      break;
    case 1:
      std::swap(state.kind, other.kind);
      break;
    case 2:
      state.version += pick(-1, 1);
      break;
    case 3:
      std::swap(state.tensor, other.tensor);
      break;
    case 4:
      state.shard.first.b = changed(state.shard.first.b);
      break;
    default:
      std::swap(state.version, other.version);
  }
  return "state " + state.tensor;
}

std::string Mutator::change_calls(Schedule& schedule) {
  std::vector<Call>& calls = chance(70) ? schedule.train : schedule.evaluate;
  if (calls.empty()) return "nothing";
  const auto at = calls.begin() + pick(0, std::ssize(calls) - 1);
  switch (pick(0, 3)) {
    case 0:
      calls.erase(at);
      break;
    case 1:
      calls.insert(at, Call(*at));
      break;
    case 2:
      std::swap(*at, any(calls));
      break;
    default:
      std::int32_t* const arguments[] = {&at->layer, &at->micro_batch, &at->segment};
      *arguments[pick(0, 2)] += static_cast<std::int32_t>(pick(-1, 1));
  }
  return "calls";
}

std::string Mutator::change_rest(Schedule& schedule) {
  if (chance(50)) {
    Block& block = any(schedule.blocks);
    if (block.advance.empty()) return "nothing";
    any(block.advance).second += pick(-1, 1);
    return "advance of " + block.name;
  }
  if (!schedule.feeds.empty() && chance(50)) {
    Feed& feed = any(schedule.feeds);
    std::int64_t* const parts[] = {&feed.row, &feed.rows, &feed.first.a, &feed.first.first.b,
                                   &feed.replica.first.b};
    std::int64_t& part = *parts[pick(0, 4)];
    part = changed(part);
    return "feed of " + schedule.buffers[static_cast<std::size_t>(feed.buffer)].name;
  }
  Group& group = any(schedule.groups);
  std::int64_t* const parts[] = {&group.size, &group.stride, &group.first.a, &group.first.first.b,
                                 &group.first.first.m};
  std::int64_t& part = *parts[pick(0, 4)];
  part = changed(part);
  return "group " + group.name;
}

// As a lowering does: order and versions determine which ops wait, and which buffers may share.
void Mutator::derive_again(Schedule& schedule) {
  for (const Diagnostic& finding : verify(schedule)) {
    const bool only_order = finding.code.starts_with("S3") || finding.code.starts_with("S4");
    if (!only_order) return;
  }
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) op.after.clear();
  }
  for (Buffer& buffer : schedule.buffers) buffer.offset = kUnplaced;
  depend(schedule);
  place(schedule);
}

std::string Mutator::mutate(Schedule& schedule) {
  std::string what;
  const std::int64_t changes = chance(70) ? 1 : pick(2, 3);
  for (std::int64_t i = 0; i < changes; ++i) {
    if (!what.empty()) what += ", ";
    const std::int64_t kind = pick(0, 99);
    if (kind < 20) {
      what += change_number(schedule);
    } else if (kind < 50) {
      what += change_operand(schedule);
    } else if (kind < 65) {
      what += change_order(schedule);
    } else if (kind < 70) {
      what += change_edges(schedule);
    } else if (kind < 82) {
      what += change_buffer(schedule);
    } else if (kind < 88) {
      what += change_state(schedule);
    } else if (kind < 94) {
      what += change_calls(schedule);
    } else {
      what += change_rest(schedule);
    }
  }
  if (chance(70)) derive_again(schedule);
  return what;
}

}  // namespace fpdt::fuzz
