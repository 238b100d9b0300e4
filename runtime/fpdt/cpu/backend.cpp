// The memory, kernels and lanes of one rank on a CPU.
#include "fpdt/cpu/backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/collective.h"

namespace fpdt {
namespace {

std::int64_t cores() { return std::max<std::int64_t>(1, std::thread::hardware_concurrency()); }

bool only_collectives(const Program& program, std::int32_t lane) {
  for (const PlainBlock& block : program.blocks) {
    for (const PlainOp& op : block.ops) {
      if (op.lane == lane && !is_collective(op.op->body)) return false;
    }
  }
  return true;
}

Lanes::Shape shape_of(const Program& program, std::int64_t local_ranks) {
  Lanes::Shape shape;
  shape.lanes = static_cast<std::int32_t>(program.lanes.size());
  for (const PlainBlock& block : program.blocks) {
    for (const PlainOp& op : block.ops) {
      shape.views = std::max(shape.views, op.uses.size());
      shape.waits = std::max(shape.waits, op.after.size());
    }
  }
  // An issuer sleeps while its lanes work, so it needs no core of its own.
  shape.spin = local_ranks * shape.lanes <= cores();
  return shape;
}

}  // namespace

CpuBackend::CpuBackend(Communicator& communicator, const CpuOptions& options)
    : communicator_(communicator), options_(options) {}

CpuBackend::~CpuBackend() = default;

std::byte* CpuBackend::reserve(MemorySpace space, Bytes bytes) {
  Reservation& reservation = reservations_[static_cast<std::size_t>(space)];
  FPDT_ASSERT(reservation.bytes().empty());
  reserved_ += bytes;
  const std::int64_t ranks = communicator_.local_ranks();
  require_memory(ranks * reserved_,
                 ranks == 1 ? "the rank" : fmt::format("this host with {} ranks", ranks));
  reservation = Reservation(bytes, options_.populate, fmt::format("the arena of {}", word(space)));
  return reservation.bytes().data();
}

void CpuBackend::prepare(const Program& program) {
  FPDT_ASSERT(lanes_ == nullptr);
  const std::int64_t share = std::max<std::int64_t>(1, cores() / communicator_.local_ranks());
  const auto threads = options_.threads > 0 ? options_.threads : static_cast<std::int32_t>(share);
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    Worker worker;
    if (!only_collectives(program, static_cast<std::int32_t>(lane))) {
      const bool compute = program.lanes[lane].kind == LaneKind::compute;
      worker.pool = std::make_unique<Pool>(compute ? threads : 1);
      worker.kernels = std::make_unique<Kernels>(*worker.pool);
    }
    workers_.push_back(std::move(worker));
  }
  Lanes::Shape shape = shape_of(program, communicator_.local_ranks());
  shape.in_order = options_.in_order;
  lanes_ = std::make_unique<Lanes>(
      shape,
      [this](std::int32_t lane, const Op& op, std::span<const View> views) {
        run(lane, op, views);
      },
      [this](std::exception_ptr cause) { communicator_.abort(std::move(cause)); });
}

void CpuBackend::run(std::int32_t lane, const Op& op, std::span<const View> views) {
  if (is_collective(op.body)) {
    HostMover mover;
    communicator_.collective(op.body, lane, views, mover);
  } else {
    workers_[static_cast<std::size_t>(lane)].kernels->run(op.body, views, communicator_.rank());
  }
  if (options_.after) options_.after(lane, op, views);
}

void CpuBackend::launch(const Launch& launch) { lanes_->launch(launch); }

void CpuBackend::synchronise() { lanes_->synchronise(); }

void CpuBackend::write(std::byte* target, std::span<const std::byte> source) {
  std::memcpy(target, source.data(), source.size());
}

void CpuBackend::read(std::span<std::byte> target, const std::byte* source) {
  std::memcpy(target.data(), source, target.size());
}

Bytes CpuBackend::workspace_bytes() const {
  Bytes sum;
  for (const Worker& worker : workers_) {
    if (worker.kernels != nullptr) sum += Bytes{worker.kernels->workspace_bytes()};
  }
  return sum;
}

}  // namespace fpdt
