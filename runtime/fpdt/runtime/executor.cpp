// The executor: expands calls, resolves operands, launches ops.
#include "fpdt/runtime/executor.h"

#include <algorithm>
#include <limits>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/recorder.h"

namespace fpdt {
namespace {

Arenas reserve_arenas(const Schedule& schedule, Backend& backend) {
  Arenas arenas;
  for (const MemorySpace space : kMemorySpaces) {
    const Bytes bytes = arena_bytes(schedule, space);
    if (bytes.value == 0) continue;
    arenas[static_cast<std::size_t>(space)] = {backend.reserve(space, bytes),
                                               static_cast<std::size_t>(bytes.value)};
  }
  return arenas;
}

}  // namespace

Executor::Executor(const VerifiedSchedule& schedule, Backend& backend, Communicator& communicator,
                   FlightRecorder* flight)
    : program_(schedule.schedule()),
      backend_(backend),
      communicator_(communicator),
      flight_(flight),
      arenas_(reserve_arenas(schedule.schedule(), backend)),
      addresses_(schedule.schedule(), arenas_),
      start_(program_),
      expansion_(program_) {
  FPDT_ASSERT(communicator.ranks() == schedule.schedule().ranks);
  const std::int64_t train_ops = op_count(program_, schedule.schedule().train);
  FPDT_ASSERT(train_ops + op_count(program_, schedule.schedule().evaluate) <=
              FlightPosition::kOpsMax);
  train_ops_ = static_cast<std::uint32_t>(train_ops);
  std::size_t views = 0;
  std::size_t waits = 0;
  for (const PlainBlock& block : program_.blocks) {
    for (const PlainOp& op : block.ops) {
      views = std::max(views, op.uses.size());
      waits = std::max(waits, op.after.size());
    }
  }
  views_.reserve(views);
  waits_.reserve(waits);
  communicator.prepare(program_);
  communicator.warm_up(arena(MemorySpace::device));
  backend_.prepare(program_);
}

void Executor::run(std::span<const Call> calls) { step(calls, nullptr); }

Trace Executor::record(std::span<const Call> calls) {
  std::vector<Interval> intervals(static_cast<std::size_t>(op_count(program_, calls)));
  step(calls, intervals.data());
  return make_trace(program_, calls, intervals, communicator_.rank());
}

void Executor::step(std::span<const Call> calls, Interval* intervals) {
  expansion_ = start_;
  const bool evaluates = calls.data() == schedule().evaluate.data();
  FlightMark mark{flight_, {++runs_, evaluates ? train_ops_ : 0}};
  for (const Call& call : calls) {
    expansion_.begin(call);
    for (const PlainOp& op : program_.blocks[static_cast<std::size_t>(call.block)].ops) {
      views_.clear();
      for (const PlainUse& use : op.uses) {
        views_.push_back(addresses_.view(use, expansion_.version(use)));
      }
      waits_.clear();
      for (const After& after : op.after) {
        const LanePosition position = expansion_.position(after);
        if (position < 0) continue;
        FPDT_ASSERT(position < std::numeric_limits<std::int32_t>::max());
        const PlainBlock& block = program_.blocks[static_cast<std::size_t>(after.block)];
        waits_.push_back({block.ops[static_cast<std::size_t>(after.op)].lane,
                          static_cast<std::int32_t>(position)});
      }
      backend_.launch({op.op, op.lane, views_, waits_, intervals, mark});
      if (intervals != nullptr) ++intervals;
      ++mark.position.number;
    }
  }
  backend_.synchronise();
  if (flight_ != nullptr) flight_->all_done();
}

void Executor::write(BufferIndex buffer, std::int64_t slot, std::span<const std::byte> contents) {
  const std::span<std::byte> target = addresses_.slot(buffer, slot);
  FPDT_ASSERT(contents.size() == target.size());
  backend_.write(target.data(), contents);
}

void Executor::write_part(BufferIndex buffer, std::int64_t slot, std::int64_t first,
                          std::span<const std::byte> contents) {
  const std::span<std::byte> target = addresses_.slot(buffer, slot);
  FPDT_ASSERT(first >= 0 && first + std::ssize(contents) <= std::ssize(target));
  backend_.write(target.data() + first, contents);
}

void Executor::read(BufferIndex buffer, std::int64_t slot, std::span<std::byte> contents) const {
  const std::span<std::byte> source = addresses_.slot(buffer, slot);
  FPDT_ASSERT(contents.size() == source.size());
  backend_.read(contents, source.data());
}

void Executor::read_part(BufferIndex buffer, std::int64_t slot, std::int64_t first,
                         std::span<std::byte> contents) const {
  const std::span<std::byte> source = addresses_.slot(buffer, slot);
  FPDT_ASSERT(first >= 0 && first + std::ssize(contents) <= std::ssize(source));
  backend_.read(contents, source.data() + first);
}

void Executor::fill(MemorySpace space, std::byte value) {
  constexpr std::size_t kPiece = 16 << 20;
  const std::span<std::byte> all = arena(space);
  const std::vector<std::byte> piece(std::min(kPiece, all.size()), value);
  for (std::size_t at = 0; at < all.size(); at += piece.size()) {
    const std::size_t size = std::min(piece.size(), all.size() - at);
    backend_.write(all.data() + at, std::span(piece).first(size));
  }
}

std::vector<std::byte> Executor::contents(MemorySpace space) const {
  const std::span<const std::byte> all = arena(space);
  std::vector<std::byte> copy(all.size());
  if (!copy.empty()) backend_.read(copy, all.data());
  return copy;
}

}  // namespace fpdt
