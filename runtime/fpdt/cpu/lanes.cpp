// Rings, counts and the threads between them.
#include "fpdt/cpu/lanes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "fpdt/base/assert.h"

namespace fpdt {
namespace {

constexpr int kSpins = 4000;  // some 20 to 100 microseconds

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits until `reached` holds of the count, and returns it.
template <class Reached>
std::uint32_t await(const std::atomic<std::uint32_t>& count, bool spin, Reached&& reached) {
  for (int left = spin ? kSpins : 0;;) {
    const std::uint32_t value = count.load(std::memory_order_acquire);
    if (reached(value)) return value;
    if (left-- > 0) {
      pause();
    } else {
      count.wait(value, std::memory_order_acquire);
    }
  }
}

// The store is sequentially consistent because a waiter announces itself and then looks at the
// count, while this thread changes the count and then looks for waiters.
void advance(std::atomic<std::uint32_t>& count, std::uint32_t value) {
  count.store(value, std::memory_order_seq_cst);
  count.notify_all();
}

std::int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

Lanes::Lanes(const Shape& shape, Run run, Fail fail)
    : shape_(shape), run_(std::move(run)), fail_(std::move(fail)) {
  for (std::int32_t i = 0; i < shape.lanes; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->entries.resize(kRing);
    lane->views.resize(kRing * shape.views);
    lane->waits.resize(kRing * shape.waits);
    lanes_.push_back(std::move(lane));
  }
  for (std::int32_t i = 0; i < shape.lanes; ++i) {
    lanes_[static_cast<std::size_t>(i)]->thread = std::thread([this, i] { work(i); });
  }
}

Lanes::~Lanes() {
  for (const auto& lane : lanes_) {
    next_entry(*lane).kind = Kind::stop;
    publish(*lane);
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

Lanes::Entry& Lanes::next_entry(Lane& lane) {
  if (lane.next - lane.freed == kRing) {
    lane.freed = await(lane.released, shape_.spin,
                       [&lane](std::uint32_t released) { return lane.next - released < kRing; });
  }
  return lane.entries[lane.next % kRing];
}

void Lanes::publish(Lane& lane) { advance(lane.issued, ++lane.next); }

void Lanes::launch(const Launch& launch) {
  FPDT_ASSERT(launch.views.size() <= shape_.views && launch.waits.size() <= shape_.waits);
  Lane& lane = *lanes_[static_cast<std::size_t>(launch.lane)];
  Entry& entry = next_entry(lane);
  const std::size_t slot = lane.next % kRing;
  entry = {Kind::op, launch.op, launch.interval, static_cast<std::uint32_t>(launch.views.size()),
           static_cast<std::uint32_t>(launch.waits.size())};
  std::copy(launch.views.begin(), launch.views.end(), lane.views.data() + slot * shape_.views);
  std::copy(launch.waits.begin(), launch.waits.end(), lane.waits.data() + slot * shape_.waits);
  publish(lane);
}

void Lanes::synchronise() {
  for (const auto& lane : lanes_) {
    next_entry(*lane).kind = Kind::flush;
    publish(*lane);
  }
  for (const auto& lane : lanes_) {
    const std::uint32_t end = lane->next;
    lane->freed = await(lane->released, shape_.spin,
                        [end](std::uint32_t released) { return released == end; });
  }
  // All lanes are idle; what is published next tells them of the new counts.
  for (const auto& lane : lanes_) lane->completed.store(0, std::memory_order_relaxed);
  if (!failed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

void Lanes::work(std::int32_t index) {
  Lane& lane = *lanes_[static_cast<std::size_t>(index)];
  std::uint32_t issued = 0;
  std::uint32_t taken = 0;
  std::uint32_t completed = 0;
  for (;;) {
    if (issued == taken) {
      issued =
          await(lane.issued, shape_.spin, [taken](std::uint32_t value) { return value != taken; });
    }
    const std::size_t slot = taken % kRing;
    const Entry& entry = lane.entries[slot];
    if (entry.kind == Kind::stop) return;
    const bool flush = entry.kind == Kind::flush;
    if (flush) {
      completed = 0;
    } else {
      execute(index, entry, slot);
      advance(lane.completed, ++completed);
    }
    ++taken;
    if (flush || taken % (kRing / 4) == 0) advance(lane.released, taken);
  }
}

void Lanes::execute(std::int32_t index, const Entry& entry, std::size_t slot) {
  const Lane& lane = *lanes_[static_cast<std::size_t>(index)];
  const std::span<const Event> waits(lane.waits.data() + slot * shape_.waits, entry.waits);
  for (const Event& event : waits) {
    const auto position = static_cast<std::uint32_t>(event.position);
    await(lanes_[static_cast<std::size_t>(event.lane)]->completed, shape_.spin,
          [position](std::uint32_t completed) { return completed > position; });
  }
  if (failed_.load(std::memory_order_relaxed)) return;
  if (entry.interval != nullptr) entry.interval->begin = now();
  try {
    run_(index, *entry.op, {lane.views.data() + slot * shape_.views, entry.views});
  } catch (...) {
    note_failure(std::current_exception());
  }
  if (entry.interval != nullptr) entry.interval->end = now();
}

void Lanes::note_failure(std::exception_ptr cause) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return;
    error_ = cause;
  }
  failed_.store(true, std::memory_order_relaxed);
  fail_(std::move(cause));
}

}  // namespace fpdt
