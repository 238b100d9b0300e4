// The lanes of one rank: one thread each, fed by one issuing thread.
//
// clang-format off
//   issuer --ring--> compute.0   done: 0 1 2 3 4 5 6
//                                              ^
//                                              | an op of h2d.0 waits for op 4 of compute.0
//                                              | and looks at the mark of that op
//          --ring--> h2d.0       done: 0 1 2 3
// clang-format on
//
// Nothing else orders two lanes. Each op has its own mark (as many as the ring is long), so an edge
// orders exactly the ops that it names: a missing edge of a schedule is a data race that
// ThreadSanitizer can see. The issuer learns of a lane's progress only when a quarter of a full
// ring is free again, and at the end. If every thread can have a core, a wait spins for a while
// before it sleeps.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "fpdt/cpu/counter.h"
#include "fpdt/runtime/backend.h"

namespace fpdt {

class Lanes {
 public:
  struct Shape {
    std::int32_t lanes = 1;
    std::size_t views = 1;  // of an op, at most
    std::size_t waits = 0;  // edges of an op, at most
    bool spin = false;      // whether all threads of all ranks have a core each
    bool in_order = false;  // no threads: `launch` runs the op
  };
  // Runs one op on its lane; called from the lane's thread, or from the issuing one.
  using Run = std::function<void(std::int32_t lane, const Op& op, std::span<const View> views)>;
  // Called at once for the first op that throws, from its lane's thread.
  using Fail = std::function<void(std::exception_ptr cause)>;

  Lanes(const Shape& shape, Run run, Fail fail);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // As in Backend. After a failure, ops are marked but not run, so that nobody waits for ever.
  void launch(const Launch& launch);
  void synchronise();

 private:
  enum class Kind : std::uint8_t { op, flush, stop };
  struct Entry {
    Kind kind = Kind::op;
    const Op* op = nullptr;
    Interval* interval = nullptr;
    FlightMark flight;
    std::uint32_t views = 0;
    std::uint32_t waits = 0;
  };
  static constexpr std::uint32_t kRing = 1024;

  // Identifies an op by the number of ops before it on its lane since the start.
  struct Mark {
    std::uint32_t lane = 0;
    std::uint32_t op = 0;
  };

  // All counts wrap around.
  struct Lane {
    alignas(64) Counter issued;    // entries, set by the issuer
    alignas(64) Counter released;  // entries that the issuer may reuse, set by the lane
    alignas(64) std::array<Counter, kRing> done;  // [op mod kRing]: op + 1
    std::vector<Entry> entries;
    std::vector<View> views;
    std::vector<Mark> waits;
    // Counts that only the issuer uses.
    std::uint32_t next = 0;   // entries issued
    std::uint32_t freed = 0;  // entries known to be released
    std::uint32_t ops = 0;    // ops issued
    std::uint32_t start = 0;  // ops issued before this step
    std::thread thread;
  };

  void stop();
  Entry& next_entry(Lane& lane);
  void issue(Lane& lane);
  void work(std::int32_t index);
  void wait(const Lane& lane, const Entry& entry, std::size_t slot);
  void execute(std::int32_t index, const Entry& entry, std::span<const View> views);
  // Returns whether it is the first failure.
  bool note_failure(std::exception_ptr cause);

  Shape shape_;
  int spins_;
  Run run_;
  Fail fail_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;          // guards error_
  std::exception_ptr error_;  // the first error
};

}  // namespace fpdt
