// Spans and curves as bytes. Names are the same on every rank, since all run one program.
#include "fpdt/runtime/traces.h"

#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <type_traits>

#include "fpdt/base/assert.h"

namespace fpdt {
namespace {

std::int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

template <class T>
void send_all(World& world, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::array<std::int64_t, 1> size{std::ssize(values)};
  world.send(0, std::as_bytes(std::span(size)));
  if (!values.empty()) world.send(0, std::as_bytes(std::span(values)));
}

template <class T>
std::vector<T> receive_all(World& world, std::int64_t process) {
  std::array<std::int64_t, 1> size{};
  world.receive(process, std::as_writable_bytes(std::span(size)));
  std::vector<T> values(static_cast<std::size_t>(size[0]));
  if (!values.empty()) world.receive(process, std::as_writable_bytes(std::span(values)));
  return values;
}

void send_trace(World& world, const Trace& trace) {
  send_all(world, std::vector<std::int64_t>{trace.rank, trace.start});
  send_all(world, trace.spans);
  for (const LiveCurve& curve : trace.memory) send_all(world, curve.points);
}

// `like` is a trace of the same program.
Trace receive_trace(World& world, std::int64_t process, const Trace& like) {
  Trace trace = like;
  const auto numbers = receive_all<std::int64_t>(world, process);
  FPDT_ASSERT(numbers.size() == 2);
  trace.rank = numbers[0];
  trace.start = numbers[1];
  trace.spans = receive_all<Span>(world, process);
  for (LiveCurve& curve : trace.memory) curve.points = receive_all<LivePoint>(world, process);
  return trace;
}

}  // namespace

std::int64_t clock_lead(World& world) {
  constexpr int kRounds = 20;
  if (world.place().nodes == 1) return 0;
  std::int64_t lead = 0;
  const std::int64_t me = world.place().process;
  // Process 0 answers each process in turn with its clock.
  for (std::int64_t process = 1; process < world.place().processes; ++process) {
    std::int64_t shortest = 0;
    for (int round = 0; round < kRounds && (me == 0 || me == process); ++round) {
      std::array<std::int64_t, 1> theirs{};
      if (me == 0) {
        world.receive(process, std::as_writable_bytes(std::span(theirs)));
        theirs[0] = now();
        world.send(process, std::as_bytes(std::span(theirs)));
        continue;
      }
      const std::int64_t before = now();
      world.send(0, std::as_bytes(std::span(theirs)));
      world.receive(0, std::as_writable_bytes(std::span(theirs)));
      const std::int64_t after = now();
      if (round > 0 && after - before >= shortest) continue;
      shortest = after - before;
      lead = before + shortest / 2 - theirs[0];
    }
  }
  return lead;
}

std::vector<Trace> gathered(World& world, std::vector<Trace> mine, std::int64_t clock_lead) {
  if (world.place().processes == 1) return mine;
  FPDT_ASSERT(mine.size() == 1);
  mine.front().start -= clock_lead;
  if (!world.speaks()) {
    send_trace(world, mine.front());
    return {};
  }
  for (std::int64_t process = 1; process < world.place().processes; ++process) {
    mine.push_back(receive_trace(world, process, mine.front()));
  }
  return mine;
}

}  // namespace fpdt
