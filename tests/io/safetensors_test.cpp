// Breaks each rule of the format once. What we write is read back to the bit.
#include "fpdt/io/safetensors.h"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <limits>

#include <gtest/gtest.h>

#include "fpdt/io/file.h"
#include "fpdt/io/safetensors_writer.h"

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with this header and this many bytes after it.
std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string error_of(const std::string& bytes) {
  const ScratchDirectory scratch;
  const std::string path = scratch.write("x.safetensors", bytes);
  return input_error([&] { const SafetensorsFile file(path); });
}

TEST(Safetensors, RoundTripsPieceByPiece) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("x.safetensors");
  SafetensorsWriter writer(path,
                           {{"none", "F32", {0, 3}},
                            {"a", "F32", {2, 2}},
                            {"s", "F32", {}},
                            {"h", "BF16", {3}},
                            {"end", "F32", {0}}},
                           {{"format", "pt"}});
  writer.write_f32(std::vector<float>{1, 2, 3});
  writer.write_f32(
      std::vector<float>{4, 5, 1.00390625F});  // across three tensors; 1 + 2^-8 is a tie in bf16
  writer.write_f32(std::vector<float>{-2, 1e30F});
  writer.commit();
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.entries().size(), 5U);
  EXPECT_THAT(file.find("a")->shape, ElementsAre(2, 2));
  EXPECT_EQ(file.find("b"), nullptr);
  std::vector<float> values(2);
  file.read_f32("a", 1, values);
  EXPECT_THAT(values, ElementsAre(2, 3));
  values.resize(3);
  file.read_f32("h", 0, values);
  EXPECT_THAT(values, ElementsAre(1, -2, testing::FloatNear(1e30F, 4e27F)));
}

TEST(Safetensors, ReadsFloatsOnly) {
  const ScratchDirectory scratch;
  const SafetensorsFile file(scratch.write(
      "x", file_with(R"({"i":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", 8)));
  std::vector<float> values(2);
  EXPECT_THAT(input_error([&] { file.read_f32("i", 0, values); }),
              HasSubstr("i: expected F32, BF16"));
}

TEST(Safetensors, ConvertsHalvesExactly) {
  const ScratchDirectory scratch;
  std::string bytes = file_with(R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]}})", 0);
  for (const int half : {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0x8000}) {
    bytes += static_cast<char>(half & 0xFF);
    bytes += static_cast<char>(half >> 8);
  }
  const SafetensorsFile file(scratch.write("x", bytes));
  std::vector<float> values(6);
  file.read_f32("h", 0, values);
  EXPECT_THAT(values,
              ElementsAre(1, -2, 0x1p-24F, 65504, std::numeric_limits<float>::infinity(), 0));
  EXPECT_TRUE(std::signbit(values[5]));
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(error_of(file_with("{}", 0)), "");
  EXPECT_EQ(error_of(file_with("{}      ", 0)), "");
  EXPECT_EQ(error_of(file_with(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},
      "__metadata__":{"a":"b"}, "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                               6)),
            "");
}

struct Broken {
  std::string header;
  std::size_t data_bytes;
  std::string message;
};

TEST(Safetensors, RefusesEachBrokenRule) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  const std::vector<Broken> cases{
      {" {}", 0, "begin with {"},
      {"[]", 0, "begin with {"},
      {"{", 0, "cut off"},
      {"{}x", 0, "syntax error"},
      {"{\"a\xff\":1}", 0, "UTF-8"},
      {"{" + a + "," + a + "}", 8, "\"a\": duplicate key"},
      {R"({"__metadata__":{"n":1}})", 0, "__metadata__.n: expected a text"},
      {R"({"a":3})", 0, "a: expected a map"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "data_offsets: expected [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "a.x: unknown key"},
      {R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "name of 1 to 512"},
      {tensor("F4", "[2]", "[0,1]"), 1, "a: dtype \"F4\" is not supported"},
      {tensor("F33", "[2]", "[0,8]"), 8, "a: dtype \"F33\""},
      {tensor("F32", "[-2]", "[0,8]"), 8, "a: shape: expected a list of sizes"},
      {tensor("F32", "[2.0]", "[0,8]"), 8, "a: shape"},
      {tensor("F32", "2", "[0,8]"), 8, "a: shape"},
      {tensor("F32", "[4294967296,4294967296]", "[0,8]"), 8, "overflowing"},
      {tensor("F32", "[4611686018427387904]", "[0,0]"), 0, "overflowing"},
      {tensor("F32", "[2]", "[0,7]"), 7, "do not hold the 8 bytes"},
      {tensor("F32", "[2]", "[8,0]"), 8, "do not hold the 8 bytes"},
      {tensor("F32", "[2]", "[0,8,9]"), 8, "data_offsets: expected"},
      {tensor("F32", "[2]", "[-8,0]"), 8, "data_offsets: expected"},
      {tensor("F32", "[2]", "[4,12]"), 12, "a: begins at byte 4 of the data, expected 0"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}})", 8,
       "b: begins at byte 7"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10,
       "b: begins at byte 9"},
      {"{" + a + "}", 9, "hold 8 bytes, the file 9"},
      {"{" + a + "}", 7, "hold 8 bytes, the file 7"},
  };
  for (const Broken& broken : cases) {
    EXPECT_THAT(error_of(file_with(broken.header, broken.data_bytes)), HasSubstr(broken.message))
        << broken.header;
  }
}

TEST(Safetensors, RefusesLengthsThatLie) {
  EXPECT_THAT(error_of(""), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error_of(std::string(8, '\xff') + "{}"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error_of(std::string(7, '\0') + '\x7f' + "{}"), HasSubstr("not a safetensors file"));
  const std::string whole =
      file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(error_of(whole), "");
  EXPECT_NE(error_of(whole + "x"), "");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of(whole.substr(0, length)), "") << length;
  }
}

TEST(Safetensors, SurvivesEveryFlippedHeaderByte) {
  const std::string whole =
      file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  for (std::size_t i = 0; i < whole.size() - 8; ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x15);
    static_cast<void>(error_of(flipped));  // a renamed tensor is legal; a crash is not
  }
}

// The error for each tensor of a file that we wrote, after one bit of the file was flipped.
TEST(Safetensors, NamesTheTensorOfAFlippedBit) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("x.safetensors");
  SafetensorsWriter writer(path,
                           {{"none", "F32", {0}}, {"a", "F32", {100, 1000}}, {"h", "BF16", {3}}});
  writer.write_f32(std::vector<float>(100003, 1.5F));
  const std::uint64_t header = writer.commit();
  EXPECT_EQ(SafetensorsFile(path).header_checksum(), header);
  const std::string whole = read_file(path, 1 << 20);
  const std::size_t data = whole.size() - 400000 - 6;
  const auto damage = [&](std::size_t byte, const std::string& name) {
    std::string flipped = whole;
    flipped[data + byte] = static_cast<char>(flipped[data + byte] ^ 1);
    const SafetensorsFile file(scratch.write("flipped", flipped));
    const std::string error = input_error([&] { file.verify(name); });
    EXPECT_EQ(input_error([&] { file.stream_f32(name, [](auto, auto) {}); }), error);
    return error;
  };
  for (const std::size_t byte : {0U, 270000U, 399999U}) {
    EXPECT_THAT(damage(byte, "a"), HasSubstr("flipped: a: the bytes have the checksum")) << byte;
  }
  EXPECT_THAT(damage(400000, "h"), HasSubstr("flipped: h: the bytes"));
  EXPECT_EQ(damage(400000, "a"), "");
  EXPECT_EQ(damage(400000, "none"), "");
}

TEST(Safetensors, RefusesChecksumsThatAreNone) {
  const std::string tensor = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  for (const char* digits : {"", "0123", "0123456789abcdeg", "0123456789abcdef0123456789abcdef"}) {
    const std::string start = R"({"__metadata__":{"fpdt_xxh3":")" + std::string(digits);
    EXPECT_THAT(error_of(file_with(start + "\"}," + tensor, 1)),
                HasSubstr("expected 16 hexadecimal digits for each of 1 tensors"))
        << digits;
  }
}

class SafetensorsIndex : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"one", "two"}) {
      SafetensorsWriter writer(scratch_.file(std::string(name) + ".safetensors"),
                               {{name, "F32", {1}}});
      writer.write_f32(std::vector<float>{name[0] == 'o' ? 1.0F : 2.0F});
      writer.commit();
    }
  }
  std::string error_with(const std::string& map) {
    static_cast<void>(
        scratch_.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}"));
    return input_error([&] { const SafetensorsSet set(scratch_.path()); });
  }

  ScratchDirectory scratch_;
};

TEST_F(SafetensorsIndex, FindsTensorsInTheirFiles) {
  EXPECT_EQ(error_with(R"({"one":"one.safetensors","two":"two.safetensors"})"), "");
  const SafetensorsSet set(scratch_.path());
  EXPECT_THAT(set.names(), ElementsAre("one", "two"));
  std::vector<float> value(1);
  set.file_of("two").read_f32("two", 0, value);
  EXPECT_EQ(value[0], 2);
  EXPECT_THAT(input_error([&] { static_cast<void>(set.file_of("three")); }),
              HasSubstr("no tensor \"three\""));
}

// The files of a set may lie in several directories.
TEST_F(SafetensorsIndex, FindsFilesWhereTheyAre) {
  std::filesystem::create_directory(scratch_.file("later"));
  std::filesystem::rename(scratch_.file("one.safetensors"), scratch_.file("later/one.safetensors"));
  const std::string index = scratch_.write(
      "later/any.json", R"({"weight_map":{"one":"one.safetensors","two":"two.safetensors"}})");
  const SafetensorsSet set(index, [&](const std::string& name) {
    return scratch_.file(name == "one.safetensors" ? "later/" + name : name);
  });
  EXPECT_THAT(set.names(), ElementsAre("one", "two"));
  EXPECT_THAT(input_error([&] { static_cast<void>(set.file_of("three")); }),
              HasSubstr("later/any.json: no tensor"));
}

TEST_F(SafetensorsIndex, RefusesPathsAndLinksThatLeave) {
  for (const char* name :
       {"../one.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "a\\u0000"}) {
    EXPECT_THAT(error_with(std::string(R"({"one":")") + name + "\"}"),
                HasSubstr("expected plain file names"))
        << name;
  }
  const ScratchDirectory elsewhere;
  std::filesystem::create_symlink(elsewhere.write("far", "x"), scratch_.file("far.safetensors"));
  EXPECT_THAT(error_with(R"({"one":"far.safetensors"})"),
              HasSubstr("link that leaves its directory"));
  EXPECT_THAT(error_with(R"({"one":"two.safetensors"})"),
              HasSubstr("one: is not in two.safetensors"));
  EXPECT_THAT(error_with(R"({"one":3})"), HasSubstr("expected a file name"));
  EXPECT_THAT(error_with("[]"), HasSubstr("weight_map"));
}

TEST(SafetensorsSet, SaysWhatIsNeededAndHowToGetIt) {
  const ScratchDirectory scratch;
  const auto open = [&] { const SafetensorsSet set(scratch.path()); };
  EXPECT_THAT(io_error(open), HasSubstr("no weights: expected model.safetensors or"));
  for (const char* name : {"pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    static_cast<void>(scratch.write(name, "PK"));
    EXPECT_THAT(input_error(open), HasSubstr(std::string("has ") + name));
    EXPECT_THAT(input_error(open), HasSubstr("save_pretrained"));
  }
}

std::vector<SafetensorsEntry> entries_of_sizes(const std::vector<std::int64_t>& elements) {
  std::vector<SafetensorsEntry> entries;
  for (const std::int64_t count : elements) {
    entries.push_back({"t" + std::to_string(entries.size()), "F32", {count}});
  }
  return entries;
}

// How many tensors each file holds, when a file takes ten elements.
std::vector<std::size_t> cut(const std::vector<std::int64_t>& elements) {
  const ScratchDirectory scratch;
  ShardedWriter writer(scratch.path(), "model", entries_of_sizes(elements), {}, 40);
  std::vector<float> values;
  for (const std::int64_t count : elements)
    values.resize(values.size() + static_cast<std::size_t>(count));
  writer.write_f32(values);
  const std::size_t files = writer.commit().size();
  EXPECT_EQ(scratch.entries(), files == 1 ? 1 : files + 1);
  std::vector<std::size_t> tensors;
  const SafetensorsSet set(scratch.path());
  for (const SafetensorsFile& file : set.files()) {
    tensors.push_back(file.entries().size());
  }
  return tensors;
}

TEST(ShardedWriter, CutsByOrderAndSize) {
  EXPECT_THAT(cut({}), ElementsAre(0));
  EXPECT_THAT(cut({3, 3, 4}), ElementsAre(3));
  EXPECT_THAT(cut({3, 3, 5}), ElementsAre(2, 1));
  EXPECT_THAT(cut({11}), ElementsAre(1));  // too large for any file
  EXPECT_THAT(cut({1, 25, 1, 9, 1}), ElementsAre(1, 1, 2, 1));
  EXPECT_THAT(cut({11, 0, 0}), ElementsAre(1, 2));
}

TEST(ShardedWriter, WritesWhatTransformersReads) {
  const ScratchDirectory scratch;
  ShardedWriter writer(scratch.path(), "model", entries_of_sizes({10, 2, 3, 9}), {{"format", "pt"}},
                       40);
  for (int i = 0; i < 24; i += 3) writer.write_f32(std::vector<float>(3, static_cast<float>(i)));
  const std::vector<std::uint64_t> headers = writer.commit();
  const std::vector<std::string> names = shard_names("model", 3);
  EXPECT_THAT(names,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors"));
  EXPECT_EQ(read_file(scratch.file("model.safetensors.index.json"), 1000), R"({
  "metadata": {
    "total_size": 96
  },
  "weight_map": {
    "t0": "model-00001-of-00003.safetensors",
    "t1": "model-00002-of-00003.safetensors",
    "t2": "model-00002-of-00003.safetensors",
    "t3": "model-00003-of-00003.safetensors"
  }
}
)");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const SafetensorsFile file(scratch.file(names[i]));
    EXPECT_EQ(file.header_checksum(), headers[i]);
    EXPECT_EQ(file.metadata().at("format"), "pt");
  }
  std::vector<float> last(9);
  SafetensorsSet(scratch.path()).file_of("t3").read_f32("t3", 0, last);
  EXPECT_THAT(last, ElementsAre(15, 15, 15, 18, 18, 18, 21, 21, 21));
}

// The cache keeps snapshots/<revision>/<name> as links into blobs/.
TEST_F(SafetensorsIndex, FollowsTheLinksOfTheHuggingFaceCache) {
  namespace fs = std::filesystem;
  const fs::path cache(scratch_.file("models--x"));
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots" / "abc");
  fs::rename(scratch_.file("one.safetensors"), cache / "blobs" / "123");
  fs::create_symlink("../../blobs/123", cache / "snapshots" / "abc" / "one.safetensors");
  static_cast<void>(scratch_.write("models--x/snapshots/abc/model.safetensors.index.json",
                                   R"({"weight_map":{"one":"one.safetensors"}})"));
  const SafetensorsSet set((cache / "snapshots" / "abc").string());
  EXPECT_THAT(set.names(), ElementsAre("one"));
}

}  // namespace
}  // namespace fpdt::test
