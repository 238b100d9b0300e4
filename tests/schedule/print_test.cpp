// The canonical text equals the hand-written files byte for byte.
#include "fpdt/schedule/print.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "fpdt/io/file.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/schedule/containers.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

// After a manual edit that removed the hash, FPDT_UPDATE_GOLDEN=1 rewrites the files.
TEST(Print, GoldenFilesAreCanonical) {
  for (const char* name : {"fpdt_backward.json", "tied_head.json", "zigzag_ring_2.json",
                           "lss_2.json", "tp_sp_2.json"}) {
    if (std::getenv("FPDT_UPDATE_GOLDEN") != nullptr) test::write_golden(name);
    EXPECT_EQ(print(test::golden(name)), test::golden_text(name)) << name;
  }
}

// Collects the keys of a container.
struct Keys {
  std::vector<std::string> all;

  template <class T>
  void required(std::string_view key, const T&) {
    all.emplace_back(key);
  }
  template <class T>
  void optional(std::string_view key, const T&) {
    all.emplace_back(key);
  }
  template <class T>
  void sparse(std::string_view key, const T&, const T&) {
    all.emplace_back(key);
  }
  void extents(std::string_view key, const std::vector<std::int64_t>&) { all.emplace_back(key); }
  void buffer(std::string_view key, BufferIndex) { all.emplace_back(key); }
  void version(std::string_view key, BufferIndex, std::int64_t) { all.emplace_back(key); }
  template <class T>
  void sparse_group(std::string_view key, const T& value) {
    all.emplace_back(key);
    container_keys(value, *this);
  }
};

TEST(Print, KeysOfContainersAreDocumented) {
  Keys keys;
  const Group group;
  const Buffer buffer;
  const Feed feed;
  const State state;
  container_keys(group, keys);
  container_keys(buffer, keys);
  container_keys(feed, keys);
  container_keys(state, keys);
  EXPECT_EQ(keys.all.size(), 3U + 8 + 6 + 8 + 5);
  const std::string page = read_file(FPDT_SOURCE_DIR "/docs/schedule-format.md", 1 << 20);
  for (const std::string& key : keys.all) {
    EXPECT_NE(page.find('`' + key + '`'), std::string::npos) << key;
  }
}

std::string train_text(const Schedule& schedule) {
  const std::string text = print(schedule);
  const std::size_t begin = text.find("\"train\":") + 8;
  return text.substr(begin, text.find(",\n\"evaluate\"") - begin);
}

TEST(Print, CallsAreRunLength) {
  test::Tiny tiny;
  tiny.buffer("a").block("gather").block("forward");
  tiny.call("gather", 0);
  for (std::int32_t layer = 0; layer < 31; ++layer)
    tiny.call("gather", layer + 1).call("forward", layer);
  tiny.call("forward", 31);
  EXPECT_EQ(train_text(tiny.schedule),
            "[{\"repeat\":2,\"list\":[{\"block\":\"gather\",\"layer\":\"n\"}]},\n"
            "{\"repeat\":30,\"list\":[{\"block\":\"forward\",\"layer\":\"n\"},"
            "{\"block\":\"gather\",\"layer\":\"n+2\"}]},\n"
            "{\"repeat\":2,\"list\":[{\"block\":\"forward\",\"layer\":\"n+30\"}]}]");
}

TEST(Print, CallsThatRepeatNothingAreOneEntry) {
  test::Tiny tiny;
  tiny.block("a").block("b").block("c").call("a").call("b", 3).call("c");
  EXPECT_EQ(train_text(tiny.schedule),
            "[{\"repeat\":1,\"list\":[{\"block\":\"a\"},{\"block\":\"b\",\"layer\":3},{\"block\":"
            "\"c\"}]}]");
}

TEST(Print, CallListsSurviveTheRoundTrip) {
  test::Tiny tiny;
  tiny.block("a").block("b").block("c");
  const std::string_view names = "abc";
  std::uint32_t state = 1;
  for (int i = 0; i < 400; ++i) {
    state = state * 1664525u + 1013904223u;
    const std::string_view name = names.substr(state >> 30 == 3 ? 0 : state >> 30, 1);
    tiny.call(name, i % 37 < 20 ? i % 37 : 3);
    tiny.schedule.train.back().micro_batch = i / 50;
    tiny.schedule.train.back().segment = (state >> 20) % 2;
  }
  EXPECT_EQ(parse_schedule(print(tiny.schedule), "test").train, tiny.schedule.train);
}

TEST(Print, EqualSchedulesHaveEqualText) {
  const Schedule schedule = test::golden("tied_head.json");
  EXPECT_EQ(print(schedule), print(Schedule(schedule)));
}

TEST(Print, TheHashIsOfTheTextBefore) {
  const std::string text = test::golden_text("tied_head.json");
  const std::size_t key = text.rfind(",\n\"hash\":\"");
  ASSERT_NE(key, std::string::npos);
  EXPECT_EQ(text.substr(key + 10, 16), content_hash(text.substr(0, key)));
}

// Test vectors by the authors of FNV-1a.
TEST(Print, HashIsFnv1a) {
  EXPECT_EQ(content_hash(""), "cbf29ce484222325");
  EXPECT_EQ(content_hash("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(content_hash("foobar"), "85944171f73967e8");
}

TEST(Print, AReplicaThatIsZeroOnEveryRankIsLeftOut) {
  Schedule schedule = test::golden("lss_2.json");
  schedule.feeds[0].replica = RankExpression{0, {1, 0, 2, 1}};
  EXPECT_EQ(print(schedule), test::golden_text("lss_2.json"));
}

}  // namespace
}  // namespace fpdt
