// The seam between ranks: one rank's end of it.
//
// A collective is called by every rank of its group with its own views, in the same order on the
// same lane (the verifier has checked that). When the lane has passed it, the rank's receive
// operands are whole and its send operands are free: on a CPU, whose lanes are the callers, when
// the call returns; on a GPU, whose lanes are streams, when the stream gets there. Sums are taken
// in rank order in f32: the same bits on every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "fpdt/runtime/view.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {

// A point of a lane that other ranks can wait for; null: it is reached already.
using Mark = void*;

// What a rank's machine does on a lane for collectives whose members can address each other's
// memory. The communicator says when.
class Mover {
 public:
  virtual ~Mover() = default;

  // The point behind everything that was launched on the lane so far. Each `number` is one point,
  // which may be set again when no rank waits for it any more.
  virtual Mark mark(std::size_t number) = 0;
  // Everything launched on this lane from now on runs after that point of a peer.
  virtual void await(Mark mark) = 0;
  // Moves and sums what member `mine` receives; views[i] are the operands of member i (the sends,
  // then the receives), and of the others only the sends are read.
  virtual void receive(const Body& body, std::int64_t mine,
                       std::span<const std::span<const View>> views) = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual std::int64_t rank() const = 0;
  [[nodiscard]] virtual std::int64_t ranks() const = 0;
  // Ranks that share this host's memory.
  [[nodiscard]] virtual std::int64_t local_ranks() const = 0;

  // Before the first collective of a program; afterwards a collective allocates nothing.
  virtual void prepare(const Program& program) = 0;

  // `lane` is an index into Program::lanes: collectives of different lanes may run at the same
  // time. Throws PeerError when a peer failed or the deadline passed.
  virtual void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                          Mover& mover) = 0;

  // All ranks, between steps. Throws PeerError as collective does.
  virtual void barrier() = 0;

  // Wakes every rank that waits, now and later, with PeerError. The first cause counts.
  virtual void abort(std::exception_ptr cause) noexcept = 0;
};

}  // namespace fpdt
