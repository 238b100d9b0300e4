// Launches ops into rings, and runs the threads that execute them.
#include "fpdt/cpu/lanes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/threads.h"

namespace fpdt {
namespace {

constexpr int kSpins = 400;  // some 5 to 20 us, as long as a sleep and its wake-up

std::int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

Lanes::Lanes(const Shape& shape, Run run, Fail fail)
    : shape_(shape), spins_(shape.spin ? kSpins : 0), run_(std::move(run)), fail_(std::move(fail)) {
  if (shape.in_order) return;
  for (std::int32_t i = 0; i < shape.lanes; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->entries.resize(kRing);
    lane->views.resize(kRing * shape.views);
    lane->waits.resize(kRing * shape.waits);
    lanes_.push_back(std::move(lane));
  }
  try {
    for (std::int32_t i = 0; i < shape.lanes; ++i) {
      lanes_[static_cast<std::size_t>(i)]->thread = start_thread([this, i] { work(i); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

Lanes::~Lanes() { stop(); }

// Ends the lanes that run. Some may be missing if one could not be started.
void Lanes::stop() {
  for (const auto& lane : lanes_) {
    next_entry(*lane).kind = Kind::stop;
    issue(*lane);
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

// Returns the next free entry. Waits if the ring is full.
Lanes::Entry& Lanes::next_entry(Lane& lane) {
  if (lane.next - lane.freed == kRing) {
    const std::uint32_t released = lane.released.await(lane.freed + 1, spins_);
    lane.freed += (released - lane.freed) & Counter::kMask;
  }
  return lane.entries[lane.next % kRing];
}

void Lanes::issue(Lane& lane) { lane.issued.advance(++lane.next); }

void Lanes::launch(const Launch& launch) {
  FPDT_ASSERT(launch.views.size() <= shape_.views && launch.waits.size() <= shape_.waits);
  if (shape_.in_order) {
    execute(launch.lane, {Kind::op, launch.op, launch.interval, launch.flight}, launch.views);
    return;
  }
  Lane& lane = *lanes_[static_cast<std::size_t>(launch.lane)];
  Entry& entry = next_entry(lane);
  const std::size_t slot = lane.next % kRing;
  entry = {Kind::op,
           launch.op,
           launch.interval,
           launch.flight,
           static_cast<std::uint32_t>(launch.views.size()),
           static_cast<std::uint32_t>(launch.waits.size())};
  std::copy(launch.views.begin(), launch.views.end(), lane.views.data() + slot * shape_.views);
  Mark* mark = lane.waits.data() + slot * shape_.waits;
  for (const Event& event : launch.waits) {
    const Lane& other = *lanes_[static_cast<std::size_t>(event.lane)];
    *mark++ = {static_cast<std::uint32_t>(event.lane),
               other.start + static_cast<std::uint32_t>(event.position)};
  }
  ++lane.ops;
  issue(lane);
}

void Lanes::synchronise() {
  for (const auto& lane : lanes_) {
    next_entry(*lane).kind = Kind::flush;
    issue(*lane);
  }
  for (const auto& lane : lanes_) {
    lane->released.await(lane->next, spins_);
    lane->freed = lane->next;
    lane->start = lane->ops;
  }
  if (!failed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

void Lanes::work(std::int32_t index) {
  Lane& lane = *lanes_[static_cast<std::size_t>(index)];
  std::uint32_t op = 0;
  for (std::uint32_t taken = 0;; ++taken) {
    lane.issued.await(taken + 1, spins_);
    const std::size_t slot = taken % kRing;
    const Entry& entry = lane.entries[slot];
    const Kind kind = entry.kind;
    if (kind == Kind::stop) return;
    if (kind == Kind::op) {
      wait(lane, entry, slot);
      execute(index, entry, {lane.views.data() + slot * shape_.views, entry.views});
      lane.done[op % kRing].advance(op + 1);
      ++op;
    }
    if (kind == Kind::flush || (taken + 1) % (kRing / 4) == 0) lane.released.advance(taken + 1);
  }
}

void Lanes::wait(const Lane& lane, const Entry& entry, std::size_t slot) {
  for (std::size_t i = 0; i < entry.waits; ++i) {
    const Mark& mark = lane.waits[slot * shape_.waits + i];
    lanes_[mark.lane]->done[mark.op % kRing].await(mark.op + 1, spins_);
  }
}

void Lanes::execute(std::int32_t index, const Entry& entry, std::span<const View> views) {
  if (failed_.load(std::memory_order_relaxed)) return;
  if (entry.interval != nullptr) entry.interval->begin = now();
  entry.flight.begin(index, *entry.op);
  try {
    run_(index, *entry.op, views);
    entry.flight.end(index, FlightState::done);
  } catch (...) {
    // The ops of other lanes fail as a consequence, and stay marked as running.
    if (note_failure(std::current_exception())) entry.flight.end(index, FlightState::failed);
  }
  if (entry.interval != nullptr) entry.interval->end = now();
}

bool Lanes::note_failure(std::exception_ptr cause) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return false;
    error_ = cause;
  }
  failed_.store(true, std::memory_order_relaxed);
  fail_(std::move(cause));
  return true;
}

}  // namespace fpdt
