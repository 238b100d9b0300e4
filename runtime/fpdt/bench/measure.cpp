// Runs ranks as threads, with the executor and backend of training and nothing else.
#include "fpdt/bench/measure.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include <fmt/format.h>

#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/executor.h"
#include "fpdt/runtime/traces.h"

namespace fpdt {
namespace {

// Numbers without a pattern that a cache or a branch predictor could learn.
std::uint32_t scatter(std::uint32_t i) {
  i = (i ^ 61U ^ (i >> 16U)) * 9U;
  i = (i ^ (i >> 4U)) * 0x27D4EB2DU;
  return i ^ (i >> 15U);
}

template <class T>
void put(std::span<std::byte> slot, std::size_t at, T value) {
  std::memcpy(slot.data() + at * sizeof(T), &value, sizeof(T));
}

float number(std::uint32_t random, bool noise) {
  return noise ? static_cast<float>(random % 2001U) / 1000.0F - 1.0F
               : static_cast<float>(random % 1000U + 1U) / 1000.0F;
}

// Repeats the values after kPeriod elements, which is faster than making more.
void fill(std::span<std::byte> slot, Dtype dtype, const Filling& filling) {
  constexpr std::size_t kPeriod = 1 << 20;
  const auto size = static_cast<std::size_t>(dtype_bytes(dtype));
  const std::size_t count = std::min(slot.size() / size, kPeriod);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t random = scatter(static_cast<std::uint32_t>(i));
    if (dtype == Dtype::i32) {
      put(slot, i, static_cast<std::int32_t>(filling.limit > 0 ? random % filling.limit : 0));
      continue;
    }
    const auto bits = std::bit_cast<std::uint32_t>(number(random, filling.noise));
    if (dtype == Dtype::f32) put(slot, i, bits);
    if (dtype == Dtype::bf16) put(slot, i, static_cast<std::uint16_t>(bits >> 16U));
  }
  const std::size_t period = count * size;
  for (std::size_t at = period; at < slot.size(); at += period) {
    std::memcpy(slot.data() + at, slot.data(), std::min(period, slot.size() - at));
  }
}

void fill_states(Executor& executor, const Contents& contents) {
  const std::vector<Buffer>& buffers = executor.schedule().buffers;
  std::vector<std::byte> room;  // grows to the largest slot so far
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].role != Role::state && buffers[i].role != Role::input) continue;
    const auto size = static_cast<std::size_t>(buffers[i].slot_bytes().value);
    room.resize(std::max(room.size(), size));
    const auto values = std::span(room).first(size);
    fill(values, buffers[i].dtype, contents[i]);
    for (std::int64_t slot = 0; slot < buffers[i].slots; ++slot) {
      executor.write(static_cast<BufferIndex>(i), slot, values);
    }
  }
}

// The number of calls that make a step of about `seconds`: the first call and those of the ops.
// Times the smallest step to find out.
std::size_t calls_for(double seconds, const std::function<void(std::size_t calls)>& run) {
  constexpr std::size_t kLeast = 2;
  run(kLeast);
  const auto begin = std::chrono::steady_clock::now();
  run(kLeast);
  const double least =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 1 + static_cast<std::size_t>(std::clamp<double>(seconds / least, 1, Sheet::kCalls));
}

}  // namespace

Measured measure(const VerifiedSchedule& schedule, const Contents& contents,
                 const BenchMachine& machine, const MeasureOptions& options) {
  const std::span<const Call> train = schedule.schedule().train;
  std::mutex mutex;
  Measured found;
  std::atomic<std::size_t> calls{0};  // chosen by rank 0
  const auto rank_main = [&](Communicator& communicator) {
    const std::unique_ptr<Backend> backend =
        machine.make_backend
            ? machine.make_backend(communicator)
            : std::make_unique<CpuBackend>(communicator, CpuOptions{machine.threads, Populate::no});
    Executor executor(schedule, *backend, communicator);
    fill_states(executor, contents);
    communicator.barrier();
    const std::size_t own = calls_for(options.step_seconds,
                                      [&](std::size_t count) { executor.run(train.first(count)); });
    const bool leads = machine.world != nullptr || communicator.rank() == 0;
    if (leads) calls = static_cast<std::size_t>(common(machine, static_cast<double>(own)));
    communicator.barrier();
    const std::span<const Call> step = train.first(calls);
    executor.run(step);
    for (std::int32_t round = 0; round < options.rounds; ++round) {
      communicator.barrier();
      Trace trace = executor.record(step);
      const std::lock_guard lock(mutex);
      found.traces.push_back(std::move(trace));
    }
    communicator.barrier();
    if (leads) found.used = used_memory(machine);
    communicator.barrier();
  };
  if (machine.world == nullptr) {
    run_ranks(schedule.schedule().ranks, rank_main, {machine.deadline});
    return found;
  }
  machine.connect(rank_main);
  std::vector<Trace> all;
  for (const Trace& trace : found.traces) {
    for (Trace& one : gathered(*machine.world, {trace}, 0)) all.push_back(std::move(one));
  }
  if (machine.world->speaks()) found.traces = std::move(all);
  return found;
}

double common(const BenchMachine& machine, double mine) {
  if (machine.world == nullptr) return mine;
  return std::stod(broadcast(*machine.world, fmt::format("{}", mine), 0));
}

Bytes used_memory(const BenchMachine& machine) {
  const Bytes mine = machine.used_memory ? machine.used_memory() : Bytes{};
  return machine.world == nullptr ? mine : Bytes{sum(*machine.world, mine.value)};
}

double mean_seconds(const Trace& trace, std::int32_t op) {
  std::int64_t sum = 0;
  std::int64_t count = 0;
  for (const Span& span : trace.spans) {
    if (span.op != op) continue;
    sum += span.end - span.begin;
    ++count;
  }
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count) * 1e-9;
}

double mean_seconds_beside(const Trace& trace, std::int32_t op, std::int32_t beside) {
  std::int64_t begin = duration(trace);
  std::int64_t end = 0;
  for (const Span& span : trace.spans) {
    if (span.op != beside) continue;
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  Trace part;
  for (const Span& span : trace.spans) {
    if (span.begin >= begin && span.end <= end) part.spans.push_back(span);
  }
  return mean_seconds(part, op);
}

double mean_interval(const Trace& trace, std::int32_t first) {
  std::int64_t sum = 0;
  std::int64_t count = 0;
  const Span* last = nullptr;
  for (const Span& span : trace.spans) {
    const bool asked = span.op >= first;
    if (asked && last != nullptr) {
      sum += span.begin - last->begin;
      ++count;
    }
    last = asked ? &span : nullptr;
  }
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count) * 1e-9;
}

}  // namespace fpdt
