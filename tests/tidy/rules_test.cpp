// Every rule finds what it forbids in a tree of a few lines, and accepts a similar allowed case.
#include "rules.h"

#include <gtest/gtest.h>

#include "functions.h"

namespace fpdt::tidy {
namespace {

TEST(source, tells_code_from_the_rest) {
  EXPECT_EQ(code_only("int a; // b\n\"c\\\"d\" 'e' 1'0 /* f\n */ g\n"),
            "int a;     \n\"    \" ' ' 1'0     \n    g\n");
  EXPECT_EQ(code_only("R\"x({)x\";\n"), "        ;\n");
  EXPECT_EQ(code_only("#define A { \\\n  {\nb\n"), "             \n   \nb\n");
}

TEST(source, finds_functions) {
  const std::vector<Function> found =
      functions(code_only("namespace a {\n"
                          "struct B : C<int> {\n"
                          "  B() : d_{1}, e_(2) {\n"
                          "  }\n"
                          " private:\n"
                          "  int d_ = {3};\n"
                          "};\n"
                          "template <class T>\n"
                          "int f(T g = {}) {\n"
                          "  if (g) {\n"
                          "  }\n"
                          "}\n"
                          "constexpr int h[] = {1, 2};\n"
                          "TEST(i, j) { k(); }\n"
                          "}\n"));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].first_line, 3);
  EXPECT_EQ(found[0].lines, 2);
  EXPECT_EQ(found[1].first_line, 9);
  EXPECT_EQ(found[1].lines, 4);
  EXPECT_EQ(found[2].lines, 1);
}

TEST(rules, layers) {
  const auto check = [](const std::string& path, const std::string& header) {
    return layers({{path, "#include \"fpdt/" + header + "\"\n"}}).size();
  };
  EXPECT_EQ(check("lib/fpdt/plan/place.cpp", "runtime/arena.h"), 1U);
  EXPECT_EQ(check("lib/fpdt/base/math.h", "spec/model.h"), 1U);
  EXPECT_EQ(check("runtime/fpdt/unknown/a.cpp", "base/math.h"), 1U);
  EXPECT_EQ(check("lib/fpdt/plan/methods/fpdt.cpp", "schedule/op.h"), 0U);
  EXPECT_EQ(check("lib/fpdt/plan/methods/fpdt.cpp", "plan/place.h"), 0U);
  EXPECT_EQ(check("apps/fpdt_run.cpp", "train/train.h"), 0U);
}

TEST(rules, third_parties) {
  const auto check = [](const std::string& path, const std::string& header) {
    return third_parties({{path, "#include <" + header + ">\n"}}).size();
  };
  EXPECT_EQ(check("lib/fpdt/spec/model.cpp", "yaml-cpp/yaml.h"), 1U);
  EXPECT_EQ(check("lib/fpdt/io/file.h", "fmt/format.h"), 1U);
  EXPECT_EQ(check("runtime/fpdt/cpu/kernels.cpp", "gtest/gtest.h"), 1U);
  EXPECT_EQ(check("lib/fpdt/io/file.cpp", "nlohmann/json.hpp"), 0U);
  EXPECT_EQ(check("lib/fpdt/io/file.cpp", "fmt/format.h"), 0U);
}

TEST(rules, sizes) {
  const std::string full(100, 'x');
  EXPECT_EQ(sizes({{"a.h", full + "\n"}}).size(), 0U);
  EXPECT_EQ(sizes({{"a.h", full + "x\n"}}).size(), 1U);
  std::string lines;
  for (int i = 0; i < 69; ++i) lines += "\n";
  EXPECT_EQ(sizes({{"a.cpp", "void f() {" + lines + "}\n"}}).size(), 0U);
  EXPECT_EQ(sizes({{"a.cpp", "void f() {" + lines + "\n}\n"}}).size(), 1U);
  for (int i = 0; i < 432; ++i) lines += "\n";
  EXPECT_EQ(sizes({{"a.cpp", lines}}).size(), 1U);
}

TEST(rules, repeated_types) {
  Tree tree{{"lib/fpdt/base/a.h",
             "namespace fpdt {\n"
             "struct Sample;\n"
             "template <class T>\n"
             "struct Sample {\n"
             "  struct Part {};\n"
             "};\n"
             "template <>\n"
             "struct Sample<int> {};\n"
             "enum class Which : char { a };\n"
             "namespace {\n"
             "struct Inner {};\n"
             "}\n"
             "}\n"
             "namespace fpdt::cuda {\n"
             "struct Which {};\n"
             "}\n"},
            {"tests/io/b.cpp", "namespace fpdt {\nstruct Inner {};\nstruct Part {};\n}\n"}};
  EXPECT_EQ(repeated_types(tree), Breaches{});
  tree["runtime/fpdt/cpu/c.cpp"] = "namespace fpdt {\n\nclass Sample final : Base {\n};\n}\n";
  tree["tests/io/d.h"] = "namespace fpdt::cuda {\nstruct alignas(8) Which {};\n}\n";
  EXPECT_EQ(repeated_types(tree),
            (Breaches{"runtime/fpdt/cpu/c.cpp:3: repeated type: fpdt::Sample is at "
                      "lib/fpdt/base/a.h:4 already; rename one",
                      "tests/io/d.h:2: repeated type: fpdt::cuda::Which is at "
                      "lib/fpdt/base/a.h:15 already; rename one"}));
}

TEST(rules, banned_text) {
  const auto check = [](const std::string& path, const std::string& text) {
    return banned_text({{path, text}}).size();
  };
  EXPECT_EQ(check("lib/fpdt/base/a.h", "using namespace std;\n"), 1U);
  EXPECT_EQ(check("lib/fpdt/base/a.cpp", "using namespace std::literals;\n"), 0U);
  EXPECT_EQ(check("lib/fpdt/base/a.cpp", "std::cout << 1;\n"), 1U);
  EXPECT_EQ(check("lib/fpdt/base/a.cpp", "// std::cout\n"), 0U);
  EXPECT_EQ(check("lib/fpdt/base/a.cpp", "// TODO\n"), 1U);
  EXPECT_EQ(check("lib/fpdt/base/a.h", "#include <atomic>\n"), 1U);
  EXPECT_EQ(check("runtime/fpdt/cpu/a.h", "#include <atomic>\n"), 0U);
  EXPECT_EQ(check("runtime/fpdt/cpu/a.cpp", "return rand();\n"), 1U);
  EXPECT_EQ(check("runtime/fpdt/cpu/a.cpp", "operand(1);\n"), 0U);
  for (const char* file : {"a.cu", "a.cuh", "a.h", "a.cpp"}) {
    const std::string path = std::string("runtime/fpdt/cuda/") + file;
    EXPECT_EQ(check(path, "#if __CUDA_ARCH__ >= 900\n"), 1U) << file;
  }
}

TEST(rules, opening_comments) {
  EXPECT_EQ(opening_comments({{"a.h", "#pragma once\n"}, {"b.h", "// It.\n"}}).size(), 1U);
}

TEST(rules, unlisted_sources) {
  const std::string list = "fpdt_library(plan HEADERS place.h SOURCES methods/fpdt.cpp)\n";
  const Tree tree{{"lib/fpdt/plan/CMakeLists.txt", list},
                  {"lib/fpdt/plan/place.h", ""},
                  {"lib/fpdt/plan/methods/fpdt.cpp", ""},
                  {"lib/fpdt/plan/methods/forgotten.cpp", ""}};
  EXPECT_EQ(
      unlisted_sources(tree),
      Breaches{"lib/fpdt/plan/methods/forgotten.cpp:1: unlisted: add it to its CMakeLists.txt"});
}

TEST(rules, untested_headers) {
  Tree tree{
      {"runtime/fpdt/cpu/CMakeLists.txt", "fpdt_library(cpu HEADERS pool.h SOURCES parts.h)\n"},
      {"runtime/fpdt/cpu/pool.h", "#include \"fpdt/cpu/view.h\"\n"},
      {"runtime/fpdt/cpu/parts.h", ""}};
  EXPECT_EQ(untested_headers(tree).size(), 1U);
  tree["tests/cpu/pool_test.cpp"] = "#include \"fpdt/cpu/pool.h\"\n";
  EXPECT_EQ(untested_headers(tree), Breaches{});
  tree["runtime/fpdt/cpu/CMakeLists.txt"] = "fpdt_library(cpu HEADERS pool.h view.h lanes.h)\n";
  tree["runtime/fpdt/cpu/view.h"] = "";   // included by pool.h
  tree["runtime/fpdt/cpu/lanes.h"] = "";  // not included
  EXPECT_EQ(untested_headers(tree).size(), 1U);
}

TEST(rules, broken_links) {
  const auto check = [](const std::string& text) {
    return broken_links({{"docs/a.md", text},
                         {"README.md", ""},
                         {"docs/adr/0001.md", "## 1. Why: it `is`\n"}})
        .size();
  };
  EXPECT_EQ(
      check("[x](adr/0001.md#1-why-it-is) [y](../README.md) [z](adr) [w](https://example.org)\n"),
      0U);
  EXPECT_EQ(check("[x](b.md) and [y](README.md)\n"), 2U);
  EXPECT_EQ(check("```\n[x](b.md)\n```\n"), 0U);
  EXPECT_EQ(check("# A b\n[x](#a-b) [y](#b) [z](adr/0001.md#why)\n"), 2U);
}

TEST(rules, undocumented_words) {
  Tree tree{{"docs/schedule-format.md", "`device` `matmul` `f32`"},
            {"lib/fpdt/schedule/buffer.h",
             "constexpr auto words_of(MemorySpace) { return word_list(\"device\", \"host\"); }  // "
             "arenas\n"},
            {"lib/fpdt/schedule/op.h",
             "OpTraits kTraits{\"matmul\", Covers::rows};\nOpTraits kTraits{\"permute\", "
             "Covers::rows};\n"}};
  EXPECT_EQ(undocumented_words(tree).size(), 2U);
  tree["docs/schedule-format.md"] += " `host` `permute`";
  EXPECT_EQ(undocumented_words(tree), Breaches{});
}

TEST(rules, undocumented_codes) {
  Tree tree{{"lib/fpdt/schedule/verify.cpp", "add(\"S203\", where);\n"}, {"docs/a.md", "S202"}};
  EXPECT_EQ(undocumented_codes(tree).size(), 1U);
  tree["docs/a.md"] = "S203: a race";
  EXPECT_EQ(undocumented_codes(tree).size(), 0U);
}

}  // namespace
}  // namespace fpdt::tidy
