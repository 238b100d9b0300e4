// Runs the programs in a folder of their own and keeps their output.
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace fpdt::test {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

// Whether `text` contains `part`.
testing::AssertionResult says(const std::string& text, std::string_view part);

// A fixture whose test works in a fresh folder that holds text.txt (4 KB of prose),
// plan/schedule.json (a tiny Llama in f32, two ranks, sequences of 64 tokens) and its model.yaml,
// cluster.yaml and strategy.yaml, and timed.yaml, a cluster of two devices with rates.
class CommandLine : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Runs `fpdt-run arguments` by the shell, in the folder.
  [[nodiscard]] Outcome run(std::string_view arguments) const;
  [[nodiscard]] Outcome plan(std::string_view arguments) const;
  // Runs any shell command. $RUN is fpdt-run and $PLAN is fpdt-plan.
  [[nodiscard]] Outcome shell(std::string_view command) const;

  [[nodiscard]] std::string path(std::string_view name) const;
  [[nodiscard]] std::string contents(std::string_view name) const;
  void write(std::string_view name, std::string_view text) const;
  [[nodiscard]] bool exists(std::string_view name) const;

 private:
  std::string folder_;
};

}  // namespace fpdt::test
