// Live bytes: the recorder's totals, a thinned curve that loses no peak, and the buffers at the
// peak.
#include "fpdt/report/live.h"

#include <algorithm>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "fpdt/runtime/recorder.h"

#include "made_up.h"

namespace fpdt {
namespace {

std::vector<Interval> intervals(const Trace& trace) {
  std::vector<Interval> all;
  for (const Span& span : trace.spans) all.push_back({span.begin, span.end});
  return all;
}

std::int64_t most(const std::vector<LiveStep>& steps) {
  std::int64_t value = 0;
  for (const LiveStep& step : steps) value = std::max(value, total(step.bytes));
  return value;
}

// A coarse clock makes ops without length, and many that begin and end together.
class LiveClock : public testing::TestWithParam<std::int64_t> {};

TEST_P(LiveClock, TotalsAreThoseOfTheRecorder) {
  const test::MadeUp made(3);
  Trace trace = made.trace;
  for (Span& span : trace.spans) {
    span.begin /= GetParam();
    span.end /= GetParam();
  }
  const Live live = find_live({&made.program, &made.schedule.train, &trace});
  const Trace recorded = make_trace(made.program, made.schedule.train, intervals(trace), 0);
  for (const MemorySpace space :
       {MemorySpace::device, MemorySpace::host_pinned, MemorySpace::host}) {
    const LiveCurve& curve = *find_curve(recorded, word(space));
    const std::vector<LiveStep> steps =
        live_steps(live, space, live.begin, live.end, std::size_t{1} << 14);
    // Each point of the curve before the end of the step is the total of the step at its time.
    std::size_t at = 0;
    for (const LivePoint& point : curve.points) {
      if (point.time >= live.end) continue;
      while (steps[at].end <= point.time) ++at;
      EXPECT_EQ(total(steps[at].bytes), point.bytes.value) << word(space) << " " << point.time;
    }
    EXPECT_EQ(find_peak(live, space).bytes, peak(curve));
  }
}
INSTANTIATE_TEST_SUITE_P(Live, LiveClock, testing::Values(1, 5000, 40000));

// An update on the device reads a stage of a state and writes the next version into its slot.
TEST(Live, AnUpdateInPlaceNeedsItsSlotOnce) {
  const test::MadeUp made(2, 1, true);
  const Live live = find_live(made.run());
  std::map<std::pair<BufferIndex, std::int64_t>, std::vector<Interval>> of_slots;
  for (const Life& life : live.lives) {
    const Buffer& buffer = made.schedule.buffers[static_cast<std::size_t>(life.buffer)];
    of_slots[{life.buffer, life.version % buffer.slots}].push_back({life.begin, life.end});
  }
  for (const auto& [slot, lives] : of_slots) {
    for (std::size_t i = 1; i < lives.size(); ++i) {
      EXPECT_GE(lives[i].begin, lives[i - 1].end)
          << made.schedule.buffers[static_cast<std::size_t>(slot.first)].name;
    }
  }
}

TEST(Live, FewStepsKeepThePeak) {
  const test::MadeUp made(4);
  const Live live = find_live(made.run());
  const std::int64_t peak = find_peak(live, MemorySpace::device).bytes.value;
  for (const std::size_t steps : {1U, 2U, 7U, 100U}) {
    const std::vector<LiveStep> few =
        live_steps(live, MemorySpace::device, live.begin, live.end, steps);
    EXPECT_EQ(few.size(), steps);
    EXPECT_EQ(most(few), peak);
    EXPECT_EQ(few.front().begin, live.begin);
    EXPECT_EQ(few.back().end, live.end);
    for (std::size_t i = 1; i < few.size(); ++i) EXPECT_EQ(few[i].begin, few[i - 1].end);
  }
}

TEST(Live, StepsOfAWindowAreThoseOfTheWhole) {
  const test::MadeUp made(3);
  const Live live = find_live(made.run());
  const auto whole = live_steps(live, MemorySpace::device, live.begin, live.end, 1 << 14);
  const std::int64_t from = whole[whole.size() / 3].begin + 1;
  const std::int64_t to = whole[whole.size() / 2].begin;
  const auto part = live_steps(live, MemorySpace::device, from, to, 1 << 14);
  EXPECT_EQ(part.size(), whole.size() / 2 - whole.size() / 3);
  EXPECT_EQ(part.front().begin, from);
  EXPECT_EQ(part.front().bytes, whole[whole.size() / 3].bytes);
}

TEST(Live, PeakNamesItsBuffers) {
  const test::MadeUp made(3);
  const Live live = find_live(made.run());
  const LivePeak peak = find_peak(live, MemorySpace::device);
  Bytes sum;
  PartBytes categories{};
  for (const LiveBuffer& one : peak.buffers) {
    const Buffer& buffer = made.schedule.buffers[static_cast<std::size_t>(one.buffer)];
    EXPECT_EQ(buffer.space, MemorySpace::device);
    EXPECT_EQ(one.lives.empty(), buffer.role != Role::temporary);
    for (const std::int32_t number : one.lives) {
      const Life& life = live.lives[static_cast<std::size_t>(number)];
      EXPECT_LE(life.begin, peak.time);
      EXPECT_GT(life.end, peak.time);
    }
    const auto slots =
        one.lives.empty() ? buffer.slots : static_cast<std::int64_t>(one.lives.size());
    EXPECT_EQ(one.bytes, slots * buffer.slot_bytes());
    sum += one.bytes;
    categories[static_cast<std::size_t>(part_of(buffer))] += one.bytes.value;
  }
  EXPECT_EQ(sum, peak.bytes);
  EXPECT_EQ(categories, peak.parts);
  EXPECT_TRUE(std::is_sorted(peak.buffers.begin(), peak.buffers.end(),
                             [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
}

TEST(Live, OriginTellsBlockLayersAndChunks) {
  const test::MadeUp made(3);
  const Live live = find_live(made.run());
  const LivePeak peak = find_peak(live, MemorySpace::host_pinned);
  std::string layer_inputs;
  for (const LiveBuffer& one : peak.buffers) {
    const std::string& name = made.schedule.buffers[static_cast<std::size_t>(one.buffer)].name;
    if (name == "layer_input_host") layer_inputs = origin(live, made.schedule.train, one);
  }
  EXPECT_EQ(layer_inputs.substr(0, 7), "embed, ") << layer_inputs;
  EXPECT_NE(layer_inputs.find("forward"), std::string::npos) << layer_inputs;
  EXPECT_NE(layer_inputs.find("chunks 0-2"), std::string::npos) << layer_inputs;
}

// Parts of parameters have numbers too, and some blocks are of no layer.
TEST(Live, OriginTellsNoChunkOfAParameterAndNoLayerOfAnEnd) {
  const test::MadeUp made(3);
  const Live live = find_live(made.run());
  bool head = false;
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host_pinned}) {
    for (const LiveBuffer& one : find_peak(live, space).buffers) {
      if (one.lives.empty()) continue;
      const std::string text = origin(live, made.schedule.train, one);
      const Buffer& buffer = made.schedule.buffers[static_cast<std::size_t>(one.buffer)];
      if (part_of(buffer) != Part::activations) {
        EXPECT_EQ(text.find("chunk"), text.npos) << text;
      }
      if (text.find("forward") == text.npos && text.find("backward") == text.npos) {
        EXPECT_EQ(text.find("layer"), text.npos) << text;
        head = true;
      }
    }
  }
  EXPECT_TRUE(head);
}

TEST(Live, ChunkIsTheFirstNumberOfAName) {
  EXPECT_EQ(chunk_of("attn.3.0"), 3);
  EXPECT_EQ(chunk_of("norm_qkv.weight"), -1);
  EXPECT_EQ(chunk_of("zero.up.7"), 7);
  EXPECT_EQ(chunk_of("reduce"), -1);
  EXPECT_EQ(chunk_of("a.12345678901234567890"), -1);
}

// A value that is made before the traced calls and used in or after them is live throughout.
TEST(Live, SomeCallsSeeWhatOthersLeft) {
  const test::MadeUp made(3);
  const Live whole = find_live(made.run());
  const auto calls = static_cast<std::int32_t>(made.schedule.train.size());
  // In the head all layer inputs wait on the host.
  std::int32_t head = 0;
  const auto name = [&](std::int32_t call) {
    const auto block = made.schedule.train[static_cast<std::size_t>(call)].block;
    return made.schedule.blocks[static_cast<std::size_t>(block)].name;
  };
  while (head < calls && name(head) != "head") ++head;
  ASSERT_LT(head, calls);
  const Trace part = test::cut(made.trace, head, head + 1);
  const Live live = find_live({&made.program, &made.schedule.train, &part});
  for (const Span& span : part.spans) EXPECT_LE(live.begin, span.begin);
  const std::int64_t middle = (live.begin + live.end) / 2;
  EXPECT_EQ(find_live_at(live, MemorySpace::host_pinned, middle).bytes,
            find_live_at(whole, MemorySpace::host_pinned, middle).bytes);
}

}  // namespace
}  // namespace fpdt
