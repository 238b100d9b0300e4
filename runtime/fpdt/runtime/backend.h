// The interface to a machine: one device, as one rank sees it.
//
// One thread per rank walks the schedule and launches every op in file order. A launch returns at
// once. Ops of one lane run in launch order. Across lanes an op waits only for the events that it
// names. An event is not an object: it is the completion of the op at a position of a lane, counted
// from the start of the step. So a backend may keep a counter per lane (CPU) or a ring of device
// events (a GPU, whose streams are the lanes). The host waits only in `synchronise`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fpdt/base/units.h"
#include "fpdt/runtime/flight.h"
#include "fpdt/runtime/view.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {

// The completion of the op at `position` of `lane` (an index into Program::lanes).
struct Event {
  std::int32_t lane = 0;
  std::int32_t position = 0;
};

// When an op ran, in nanoseconds of std::chrono::steady_clock.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct Launch {
  const Op* op = nullptr;
  std::int32_t lane = 0;
  std::span<const View> views;   // one for each of operands(op->body); copied by launch
  std::span<const Event> waits;  // for ops of other lanes, launched before; copied by launch
  Interval* interval = nullptr;  // receives the time, valid after synchronise; null: not wanted
  FlightMark flight{};           // notes when the op begins and ends
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Allocates the memory of a space. Call it once, before prepare; the memory lives as long as the
  // backend. Throws MemoryError when the machine has less.
  virtual std::byte* reserve(MemorySpace space, Bytes bytes) = 0;

  // Creates lanes and scratch memory and warms libraries up. After it a step allocates nothing.
  virtual void prepare(const Program& program) = 0;

  virtual void launch(const Launch& launch) = 0;

  // Waits for everything launched, and restarts positions at zero. Rethrows the first failure of an
  // op; after a failure the backend does not run again.
  virtual void synchronise() = 0;

  // Whether arena pages become resident when they are first touched, so that counting them shows
  // what was touched (accounts.h). If not, the whole arena is allocated at once.
  [[nodiscard]] virtual bool demand_paged() const = 0;

  // How many bytes of a range have not been written since `prepare`, in whole words, counted where
  // the memory is. Nothing if the backend cannot tell.
  [[nodiscard]] virtual std::optional<Bytes> untouched(std::span<const std::byte> /*range*/) const {
    return {};
  }

  // Copy to or from any space, between steps. Complete on return.
  virtual void write(std::byte* target, std::span<const std::byte> source) = 0;
  virtual void read(std::span<std::byte> target, const std::byte* source) = 0;
};

}  // namespace fpdt
