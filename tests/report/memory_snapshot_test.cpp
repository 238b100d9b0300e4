// A memory snapshot is a readable pickle whose allocations are the lives of values.
#include "fpdt/report/memory_snapshot.h"

#include <gmock/gmock.h>
#include <map>
#include <stdexcept>

#include "fpdt/base/error.h"
#include "fpdt/report/pickle.h"
#include "fpdt/report/timeline.h"

#include "made_up.h"
#include "unpickle.h"

namespace fpdt {
namespace {

using Json = nlohmann::json;

TEST(Pickle, IsTheBytesOfTheFormat) {
  Pickle pickle;
  pickle.begin_dictionary();
  pickle.key("a");
  pickle.integer(255);
  pickle.key("b");
  pickle.text("a");
  pickle.end_dictionary();
  // pickletools.dis: PROTO 2, EMPTY_DICT, MARK, BINUNICODE 'a', LONG_BINPUT 0, BININT1 255,
  // BINUNICODE 'b', LONG_BINPUT 1, LONG_BINGET 0, SETITEMS, STOP.
  const std::string expected(
      "\x80\x02}(X\x01\0\0\0ar\0\0\0\0K\xFFX\x01\0\0\0br\x01\0\0\0j\0\0\0\0u.", 35);
  EXPECT_EQ(pickle.finish(), expected);
}

TEST(Pickle, IntegersOfEverySize) {
  const std::vector<std::int64_t> values{
      0, 255, 256, -1, 2147483647, -2147483648LL, 2147483648LL, -2147483649LL, INT64_MAX};
  Pickle pickle;
  pickle.begin_list();
  for (const std::int64_t value : values) {
    pickle.integer(value);
    pickle.next_batch();
  }
  pickle.boolean(true);
  pickle.tuple(3, 4);
  pickle.end_list();
  Json expected = values;
  expected.push_back(true);
  expected.push_back(Json{3, 4});
  EXPECT_EQ(test::unpickle(pickle.finish()), expected);
  EXPECT_THROW(test::unpickle("\x80\x02K"), std::runtime_error);
}

// Replays allocations and frees at addresses, as the viewer does. What is left at the end are the
// active blocks of the segment.
std::int64_t replayed_peak(const Json& snapshot, std::size_t device) {
  std::int64_t stays = 0;
  for (const Json& segment : snapshot["segments"]) {
    if (segment["device"] != device) continue;
    std::int64_t sizes = 0;
    for (const Json& block : segment["blocks"]) {
      EXPECT_EQ(block["address"], sizes);
      sizes += block["size"].get<std::int64_t>();
      if (block["state"] == "active_allocated")
        stays += block["requested_size"].get<std::int64_t>();
    }
    EXPECT_EQ(segment["total_size"], sizes);
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  std::int64_t time = 0;
  std::map<std::int64_t, std::int64_t> allocated;
  const Json& events = snapshot["device_traces"][device];
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    const std::int64_t address = event["addr"];
    const std::int64_t size = event["size"];
    EXPECT_GE(event["time_us"], time);
    time = event["time_us"];
    if (event["action"] == "alloc") {
      // The place must be free.
      const auto next = allocated.lower_bound(address);
      EXPECT_TRUE(next == allocated.end() || next->first >= address + size);
      EXPECT_TRUE(next == allocated.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= address);
      allocated[address] = size;
      live += size;
    } else if (event["action"] == "free_completed") {
      EXPECT_EQ(events[i - 1]["action"], "free_requested");
      EXPECT_EQ(allocated.count(address), 1U);
      allocated.erase(address);
      live -= size;
    }
    peak = std::max(peak, live);
  }
  EXPECT_EQ(live, stays);
  return peak;
}

class MemorySnapshot : public testing::TestWithParam<bool> {};

TEST_P(MemorySnapshot, ReplaysToThePeak) {
  const test::MadeUp made(3, 1, GetParam());
  const std::string bytes = memory_snapshot(made.run());
  const Json snapshot = test::unpickle(bytes);
  const Live live = find_live(made.run());
  EXPECT_EQ(replayed_peak(snapshot, 0), find_peak(live, MemorySpace::device).bytes.value);
  EXPECT_EQ(replayed_peak(snapshot, 1), find_peak(live, MemorySpace::host_pinned).bytes.value);
  EXPECT_EQ(snapshot["segments"][0]["total_size"],
            arena_end(made.schedule, MemorySpace::device).value);
  EXPECT_EQ(bytes, memory_snapshot(made.run()));
}

INSTANTIATE_TEST_SUITE_P(StatesOnTheHost, MemorySnapshot, testing::Bool());

TEST(MemorySnapshots, RefusesWhatTheViewerCannotOpen) {
  const test::MadeUp made(2);
  const Json snapshot = test::unpickle(memory_snapshot(made.run()));
  std::size_t values = 0;
  for (const Json& events : snapshot["device_traces"]) {
    for (const Json& event : events) values += event["action"] == "free_completed";
  }
  EXPECT_NO_THROW(memory_snapshot(made.run(), values));
  EXPECT_THAT([&] { memory_snapshot(made.run(), values - 1); },
              testing::ThrowsMessage<InputError>(
                  testing::AllOf(testing::HasSubstr(std::to_string(values) + " values"),
                                 testing::HasSubstr("--format perfetto"))));
}

TEST(MemorySnapshots, FramesNameBufferAndOp) {
  const test::MadeUp made(2);
  const Json snapshot = test::unpickle(memory_snapshot(made.run()));
  bool found = false;
  for (const Json& event : snapshot["device_traces"][0]) {
    const std::string buffer = event["frames"][0]["name"];
    if (event["action"] != "alloc" || !buffer.starts_with("q_new[")) continue;
    EXPECT_EQ(event["frames"][0]["filename"], "activations");
    const std::string op = event["frames"][1]["name"];
    EXPECT_NE(op.find(".a2a_qkv."), std::string::npos) << op;
    found = true;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace fpdt
