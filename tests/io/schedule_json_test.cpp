// Loading is the inverse of printing. Errors name block, op and field of every damage to the form.
#include "fpdt/io/schedule_json.h"

#include <gmock/gmock.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/schedule/print.h"

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string golden(const char* name) {
  return read_file(source_path(std::string("tests/golden/") + name), 1 << 20);
}

std::string schedule_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_schedule(text, "s.json")); });
}

// A schedule that a person wrote has no hash.
constexpr std::string_view kSmall =
    R"({"fpdt_schedule":4,"ranks":2,"row_multiple":1,"problem":{"a":1},
"groups":{"sp":{"size":2,"first":0}},
"buffers":[
{"name":"x","space":"device","role":"temporary","category":"activations",
 "dtype":"f32","shape":[4,2],"slots":2},
{"name":"w","space":"device","role":"state","category":"weights",
 "dtype":"f32","shape":[8],"slots":1}],
"states":[
{"tensor":"embed.weight","kind":"parameter","shape":[4,4],"buffer":"w[0]","shards":2,"shard":"r"}],
"blocks":[{"name":"one","advance":{"x":1},"ops":[
{"op":"zero","lane":"compute.0","body":"fill","target":"x[+1]","value":0.5,"after":["last@-1"]},
{"op":"add","lane":"comm.0","body":"all_reduce","group":"sp","send":["x[+1]"],
 "receive":["x[+0] rows 0:2 +="],"after":["zero","one.zero@-2"]}]}],
"train":[{"repeat":3,"list":[{"block":"one","layer":"2*n+1"}]}],
"evaluate":[]})";

std::string changed(std::string_view from, std::string_view to) {
  std::string text(kSmall);
  const std::size_t bad_edge = text.find("\"last@-1\"");
  text.replace(bad_edge, 9, "\"one.add@-1\"");
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ScheduleJson, LoadsWhatItSays) {
  const Schedule schedule = parse_schedule(changed("[4,2]", "[4,2]"), "s.json");
  EXPECT_EQ(schedule.problem, "{\"a\":1}");
  EXPECT_EQ(schedule.buffers.at(0).shape, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(schedule.buffers[0].offset, kUnplaced);
  EXPECT_EQ(schedule.states.at(0).shard.at(1), 1);
  const Block& block = schedule.blocks.at(0);
  EXPECT_EQ(std::get<Fill>(block.ops.at(0).body).value, 0.5);
  const auto& reduce = std::get<AllReduce>(block.ops.at(1).body);
  EXPECT_EQ(reduce.receive.at(0), (Target{{0, Version::plus(0), 0, 2}, true}));
  EXPECT_EQ(block.ops[0].after.at(0), (After{0, 1, 1}));
  EXPECT_EQ(block.ops[1].after.at(1), (After{0, 0, 2}));
  EXPECT_EQ(schedule.train.at(2), (Call{0, 5, 0, 0}));
}

TEST(ScheduleJson, RoundTripsToTheByte) {
  for (const char* name : {"tied_head.json", "fpdt_backward.json", "tp_sp_2.json"}) {
    const Schedule schedule = parse_schedule(golden(name), name);
    const std::string text = print(schedule);
    EXPECT_EQ(print(parse_schedule(text, name)), text) << name;
  }
}

// What a planner writes can be read again, or it is not written.
TEST(ScheduleJson, WritesNoMoreThanIsRead) {
  const Schedule schedule = parse_schedule(golden("tied_head.json"), "s.json");
  const std::string text = print(schedule);
  const auto bytes = static_cast<std::int64_t>(text.size());
  EXPECT_EQ(schedule_text(schedule), text);
  EXPECT_EQ(schedule_text(schedule, bytes), text);
  const std::string error =
      input_error([&] { static_cast<void>(schedule_text(schedule, bytes - 1)); });
  EXPECT_NE(error.find(fmt::format("at most {} are read", bytes - 1)), std::string::npos) << error;
}

// Files that this program wrote before format 4.
TEST(ScheduleJson, LoadsTheOldFormats) {
  const std::string text = golden("format_2.json");
  EXPECT_THAT(text, testing::StartsWith("{\"fpdt_schedule\":2,"));
  EXPECT_EQ(print(parse_schedule(text, "format_2.json")), golden("tied_head.json"));
  std::string third = golden("tied_head.json");
  third.replace(third.find(":4,"), 3, ":3,");
  third.replace(third.rfind(",\n\"hash\""), std::string::npos, "}");
  EXPECT_EQ(print(parse_schedule(third, "format_3.json")), golden("tied_head.json"));
}

TEST(ScheduleJson, SeesEveryChangeThroughTheHash) {
  const std::string text = print(parse_schedule(changed("[4,2]", "[4,2]"), "s.json"));
  EXPECT_EQ(schedule_error(text), "");
  for (std::size_t i = 0; i < text.size() - 1; ++i) {
    std::string damaged = text;
    damaged[i] = damaged[i] == '1' ? '2' : '1';
    EXPECT_NE(schedule_error(damaged), "") << i;
    EXPECT_THAT(schedule_error(text.substr(0, i)), HasSubstr("cut off")) << i;
  }
  EXPECT_NE(schedule_error(text + "x"), "");
}

TEST(ScheduleJson, NamesBlockOpAndField) {
  EXPECT_THAT(schedule_error(std::string(kSmall)),
              HasSubstr("s.json: one.zero.after: expected \"op\", \"block.op@-k\" or"));
  const std::vector<std::vector<std::string>> cases{
      {"\"fpdt_schedule\":4", "\"fpdt_schedule\":5", "reads formats 2 to 4, but the file has 5"},
      {"\"fpdt_schedule\":4", "\"fpdt_schedule\":1", "rename `token_first` of matmul,"},
      {"\"fpdt_schedule\":4", "\"fpdt_shedule\":2", "did you mean \"fpdt_schedule\"?"},
      {"\"ranks\":2", "\"ranks\":2.0", "ranks: expected an integer"},
      {"\"ranks\":2", "\"ranks\":2,\"ranks\":2", "duplicate key"},
      {"\"role\":\"state\"", "\"role\":\"stat\"", "buffers[1].role: expected one of"},
      {"\"shape\":[8]", "\"shape\":[]", "buffers[1].shape: expected a list of integers"},
      {"\"name\":\"w\"", "\"name\":\"x\"", "buffers[1].name: the name \"x\" is taken"},
      {"w[0]", "w[+0]", "states[0].buffer: expected a buffer and a constant version"},
      {"\"r\"}", "\"r*\"}", "states[0].shard: expected an integer or an expression"},
      {"{\"x\":1}", "{\"y\":1}", "one.advance: there is no buffer \"y\""},
      {"compute.0", "compute", "one.zero.lane: expected a lane"},
      {"\"fill\"", "\"fil\"", "one.zero.body: unknown op \"fil\"; did you mean \"fill\"?"},
      {"\"value\"", "\"valu\"", "one.zero.valu: unknown key; did you mean \"value\"?"},
      {"\"x[+1]\",\"value", "\"x[+1\",\"value", "one.zero.target: expected an operand"},
      {"\"x[+1]\",\"value", "\"xx[+1]\",\"value", "one.zero.target: there is no buffer \"xx\""},
      {"[\"x[+1]\"]", "[\"x[+1] +=\"]", "one.add.send: is not a target"},
      {"[\"x[+1]\"]", "\"x[+1]\"", "one.add.send: expected a list of operands"},
      {"\"op\":\"add\"", "\"op\":\"zero\"", "one.zero: the name \"zero\" is taken"},
      {"[\"zero\"", "[\"zer\"", "one.add.after: there is no op \"zer\"; did you mean \"zero\"?"},
      {"one.zero@-2", "two.zero@-2", "one.add.after: there is no block \"two\""},
      {"{\"block\":\"one\"", "{\"block\":\"on\"", "train[0].list: there is no block \"on\""},
      {"2*n+1", "2*m", "layer: expected an integer or an expression"},
      {"2*n+1", "-n", "expected arguments of 0 to 2^31 - 1"},
      {"\"repeat\":3", "\"repeat\":1000000000000000", "calls in all"},
      {"\"repeat\":3", "\"repeat\":-1", "calls in all"},
      {"\"train\"", "\"trains\"", "train: this key is required"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(schedule_error(changed(one[0], one[1])), HasSubstr(one[2])) << one[1];
  }
}

TEST(ScheduleJson, SurvivesHostileText) {
  for (const std::string& text :
       {std::string(), std::string(1000000, '['), std::string("null"), std::string("[]"),
        std::string("{\"a\":1e999}"), std::string("\xEF\xBB\xBF{}"),
        std::string("{\"a\":\"\0\"}", 9),
        std::string("{\"fpdt_schedule\":4,\"blocks\":[1,null,[]],\"buffers\":[{}],\"train\":[[]]}"),
        std::string(
            "{\"fpdt_schedule\":4,\"groups\":[1],\"blocks\":[{\"ops\":[3,{\"op\":1}]}]}")}) {
    EXPECT_NE(schedule_error(text), "");
  }
  EXPECT_THAT(schedule_error("{}"),
              AllOf(HasSubstr("fpdt_schedule"), HasSubstr("ranks"), HasSubstr("train")));
}

// Two bytes of the file would become a hundred bytes of memory.
TEST(HostileSchedule, ValuesAreCountedBeforeTheyAreStored) {
  std::string zeros = "[0";
  for (int i = 0; i < 100000; ++i) zeros += ",0";
  EXPECT_NE(schedule_error(zeros + "]").find("may hold 100002 values"), std::string::npos);
  EXPECT_EQ(schedule_error("[\"" + std::string(100000, '[') + "\"]").find("may hold"),
            std::string::npos)
      << "brackets in a text are none";
}

TEST(HostileSchedule, FindingsEndWithTheHundredth) {
  std::string keys;
  for (int i = 0; i < 1000; ++i) keys += fmt::format("\"unknown_key_{}\": {},", i, i);
  const std::string error = schedule_error(
      fmt::format("{{{}\"fpdt_schedule\":4,\"ranks\":1,\"row_multiple\":1,\"train\":[]}}", keys));
  EXPECT_NE(error.find("... and 80 more"), std::string::npos) << error;
}

}  // namespace
}  // namespace fpdt::test
