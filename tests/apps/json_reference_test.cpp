// docs/reference/json.md is complete, as every test that asks for --json checks, and has no more.
#include "json_reference.h"

#include <filesystem>

#include <gtest/gtest-spi.h>

#include "fpdt/io/file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

class JsonReference : public CommandLine {};

TEST_F(JsonReference, TellsAKeyThatThePageLacks) {
  const Outcome verified = plan("verify plan/schedule.json --json");  // compares
  EXPECT_EQ(verified.code, 0);
  EXPECT_TRUE(says(verified.out, "\"verified\":true"));
  EXPECT_NONFATAL_FAILURE(expect_documented("fpdt-plan verify", R"({"unknown":1})"),
                          "lacks a row under fpdt-plan verify: | `unknown` | integer |");
  EXPECT_NONFATAL_FAILURE(expect_documented("fpdt-plan verify", R"({"ops":"many"})"),
                          "| `ops` | text |");
  EXPECT_NONFATAL_FAILURE(expect_documented("fpdt-plan sweep", R"({"points":[{"hue":1.5}]})"),
                          "| `points[].hue` | number |");
}

TEST_F(JsonReference, NamesOnlyKeysThatProgramsWrite) {
  std::string sources = read_file(FPDT_SOURCE_DIR "/lib/fpdt/report/compare.cpp", 1 << 20) +
                        read_file(FPDT_SOURCE_DIR "/runtime/fpdt/cuda/product_times.cpp", 1 << 20);
  for (const auto& file : std::filesystem::recursive_directory_iterator(FPDT_SOURCE_DIR "/apps")) {
    if (file.path().extension() == ".cpp") sources += read_file(file.path().string(), 1 << 20);
  }
  std::erase(sources, '\\');  // of quotes within a string
  for (const std::string& name : documented_names()) {
    EXPECT_NE(sources.find('"' + name + '"'), std::string::npos)
        << "docs/reference/json.md has `" << name << "`, which no program writes";
  }
}

}  // namespace
}  // namespace fpdt::test
