// The interface between ranks: one rank's end of it.
//
// Every rank of a group calls a collective with its own views, in the same order on the same lane
// (the verifier has checked that). Once the lane has passed the collective, the rank's receive
// operands are whole and its send operands are free. On a CPU, whose lanes are the callers, that is
// when the call returns. On a GPU, whose lanes are streams, it is when the stream gets there. Sums
// run in rank order in f32: the same bits on every run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "fpdt/runtime/view.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/traffic.h"

namespace fpdt {

// A point of a lane that other ranks can wait for; null: already reached.
using Mark = void*;

// The operations of a rank's machine on a lane for a collective whose members can address each
// other's memory. The communicator decides when they run.
class Mover {
 public:
  virtual ~Mover() = default;

  // Marks the point behind everything launched on the lane so far. Each `number` names one point,
  // which may be set again once no rank waits for it.
  virtual Mark mark(std::size_t number) = 0;
  // Everything launched on this lane from now on runs after a peer's mark.
  virtual void await(Mark mark) = 0;
  // Copies and sums what member `mine` receives. views[i] are the operands of member i, as in
  // Communicator::collective; only the sends of other members are read.
  virtual void receive(const Body& body, std::int64_t mine,
                       std::span<const std::span<const View>> views) = 0;
  // The lane as the machine's own libraries know it, such as a cudaStream_t; null on a CPU.
  [[nodiscard]] virtual void* stream() const { return nullptr; }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual std::int64_t rank() const = 0;
  [[nodiscard]] virtual std::int64_t ranks() const = 0;
  // How many ranks share this host's memory.
  [[nodiscard]] virtual std::int64_t local_ranks() const = 0;

  // Call it before the first collective of a program. After it a collective allocates nothing.
  virtual void prepare(const Program& program) = 0;

  // Call it after prepare, with the device's arena, whose contents do not matter yet. A library
  // opens here what it would otherwise open, and allocate, in its first collectives.
  virtual void warm_up(std::span<std::byte> /*arena*/) {}

  // `lane` is an index into Program::lanes. Collectives of different lanes may run at the same
  // time. `views` are the sends, the receives, and the workspace of a sum that has one. Throws
  // PeerError when a peer failed or the deadline passed.
  virtual void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                          Mover& mover) = 0;

  // Call it when all lanes are drained. Throws PeerError if the result of a collective is not
  // whole: on a GPU a collective that fails ends after it was launched.
  virtual void settle() {}

  // Waits for all ranks, between steps. Throws PeerError as `collective` does.
  virtual void barrier() = 0;

  // Wakes every rank that waits, now or later, with PeerError. Only the first cause is kept.
  virtual void abort(std::exception_ptr cause) noexcept = 0;

  // The bytes that this rank has sent in collectives so far. Call it between steps.
  [[nodiscard]] Traffic sent() const { return {node_.load(), network_.load()}; }

 protected:
  // Counts bytes sent to another rank, of this node or not. Any thread may call it.
  void count(bool near, std::int64_t bytes) { (near ? node_ : network_) += bytes; }

 private:
  std::atomic<std::int64_t> node_{0}, network_{0};
};

}  // namespace fpdt
