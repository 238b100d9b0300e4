// The seam between ranks: one rank's end of it.
//
// A collective is called by every rank of its group with its own views, in the same order on the
// same lane (the verifier has checked that), and returns when the rank's receive operands are whole
// and its send operands are free. Sums are taken in rank order in f32: the same bits on every run.
#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "fpdt/runtime/view.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {

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
  virtual void collective(const Body& body, std::int32_t lane, std::span<const View> views) = 0;

  // All ranks, between steps. Throws PeerError as collective does.
  virtual void barrier() = 0;

  // Wakes every rank that waits, now and later, with PeerError. The first cause counts.
  virtual void abort(std::exception_ptr cause) noexcept = 0;
};

}  // namespace fpdt
