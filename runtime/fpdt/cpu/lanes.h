// Lanes of one rank: a thread each, fed by one issuing thread.
//
//   issuer --ring--> compute.0   completed: 7      An op that waits for op 4 of compute.0 waits
//   until that
//          --ring--> h2d.0       completed: 5      lane's count passes 4. Nothing else joins two
//          lanes.
//
// The counts are the only thing that lanes share, so a missing edge of a schedule is a data race
// that ThreadSanitizer can see. (The issuer hears of a lane's progress once in a quarter of a ring,
// and at the end.) Waiting spins for a while when every thread can have a core, then sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "fpdt/runtime/backend.h"

namespace fpdt {

class Lanes {
 public:
  struct Shape {
    std::int32_t lanes = 1;
    std::size_t views = 1;  // most operands of an op
    std::size_t waits = 0;  // most edges of an op
    bool spin = false;      // threads of all ranks together have a core each
  };
  // Runs one op on its lane; called from the lane's thread.
  using Run = std::function<void(std::int32_t lane, const Op& op, std::span<const View> views)>;
  // Told of the first op that throws, from its lane's thread, at once.
  using Fail = std::function<void(std::exception_ptr cause)>;

  Lanes(const Shape& shape, Run run, Fail fail);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // As in Backend. After a failure ops are counted and not run, so that nobody waits for ever.
  void launch(const Launch& launch);
  void synchronise();

 private:
  enum class Kind : std::uint8_t { op, flush, stop };
  struct Entry {
    Kind kind = Kind::op;
    const Op* op = nullptr;
    Interval* interval = nullptr;
    std::uint32_t views = 0;
    std::uint32_t waits = 0;
  };
  static constexpr std::uint32_t kRing = 1024;

  // Counts wrap around; only differences are compared.
  struct Lane {
    alignas(64) std::atomic<std::uint32_t> issued{0};  // entries published, by the issuer
    alignas(64) std::atomic<std::uint32_t> released{
        0};  // entries the issuer may reuse, by the lane
    alignas(64) std::atomic<std::uint32_t> completed{0};  // ops of this step, by the lane
    alignas(64) std::vector<Entry> entries;
    std::vector<View> views;
    std::vector<Event> waits;
    std::uint32_t next = 0;   // the issuer's copy of issued
    std::uint32_t freed = 0;  // the issuer's copy of released
    std::thread thread;
  };

  Entry& next_entry(Lane& lane);
  void publish(Lane& lane);
  void work(std::int32_t index);
  void execute(std::int32_t index, const Entry& entry, std::size_t slot);
  void note_failure(std::exception_ptr cause);

  Shape shape_;
  Run run_;
  Fail fail_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;          // guards error_
  std::exception_ptr error_;  // the first
};

}  // namespace fpdt
