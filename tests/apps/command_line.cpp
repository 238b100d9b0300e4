// Sets up the folder and the tiny problem, and runs the shell.
#include "command_line.h"

#include <cstdlib>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fpdt/io/file.h"

#include "json_reference.h"

namespace fpdt::test {
namespace {

constexpr std::string_view kModel = R"(name: tiny
family: llama
layers: 2
hidden: 16
heads: 4
kv_heads: 2
head_dim: 4
feed_forward: 24
vocabulary: 256
norm: rms
activation: swiglu
rotary: {fraction: 1}
parameters: 12112
source: made for this test
)";
constexpr std::string_view kCluster = R"(name: two
nodes: 1
devices_per_node: 2
device_memory: 1GiB
host_memory: 1GiB
outside: {}
host_outside: {}
source: made for this test
)";
constexpr std::string_view kTimed = R"(name: timed
nodes: 1
devices_per_node: 2
device_memory: 1GiB
host_memory: 1GiB
row_multiple: 8
outside: {}
host_outside: {}
rates:
  peak_flops: 1e10
  matmul: {typical: 5e9, low: 4.5e+09, high: 5.25e+09}
  attention_forward: {typical: 4e9, low: 3e9, high: 5e9}
  attention_backward: {typical: 4e9, low: 3.6e+09, high: 4.2e+09}
  device_bandwidth: {typical: 1e10, low: 9e+09, high: 1.05e+10}
  h2d: {typical: 2e8, low: 1.8e+08, high: 2.1e+08}
  d2h: {typical: 2e8, low: 1.8e+08, high: 2.1e+08}
  link: {typical: 5e8, low: 4.5e+08, high: 5.25e+08}
  network: {typical: 1e8, low: 9e+07, high: 1.05e+08}
  op_seconds: 2e-7
source: made for this test
)";
constexpr std::string_view kStrategy = R"(storage: f32
tiles: {chunk_tokens: 32}
)";

std::string prose() {
  std::string text;
  while (text.size() < 4096) text += "It was the best of times, it was the worst of times, ";
  return text;
}

// What a verb prints with --json is in the reference, whichever test runs it.
Outcome checked(std::string_view program, std::string_view arguments, Outcome outcome) {
  if (arguments.find("--json") == std::string_view::npos) return outcome;
  const std::string_view verb = arguments.substr(0, arguments.find(' '));
  expect_documented(fmt::format("{} {}", program, verb), outcome.out);
  return outcome;
}

}  // namespace

testing::AssertionResult says(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected \"" << part << "\" in: " << text;
}

void CommandLine::SetUp() {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  folder_ = testing::TempDir() +
            fmt::format("fpdt_{}_{}_{}", info->test_suite_name(), info->name(), getpid());
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  write("text.txt", prose());
  write("model.yaml", kModel);
  write("cluster.yaml", kCluster);
  write("timed.yaml", kTimed);
  write("strategy.yaml", kStrategy);
  const Outcome planned = plan(
      "lower --model model.yaml --cluster cluster.yaml --strategy strategy.yaml --seq-len 64 "
      "--out-dir plan");
  ASSERT_EQ(planned.code, 0) << planned.err;
}

void CommandLine::TearDown() { std::filesystem::remove_all(folder_); }

Outcome CommandLine::shell(std::string_view command) const {
  // The outer redirections catch what the command itself does not redirect.
  const std::string line = fmt::format("cd '{}' && {{ RUN='{}' PLAN='{}'; {}\n}} >.out 2>.err",
                                       folder_, FPDT_RUN, FPDT_PLAN, command);
  const int status = std::system(line.c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = contents(".out");
  outcome.err = contents(".err");
  return outcome;
}

Outcome CommandLine::run(std::string_view arguments) const {
  return checked("fpdt-run", arguments, shell(fmt::format("'{}' {}", FPDT_RUN, arguments)));
}

Outcome CommandLine::plan(std::string_view arguments) const {
  return checked("fpdt-plan", arguments, shell(fmt::format("'{}' {}", FPDT_PLAN, arguments)));
}

std::string CommandLine::path(std::string_view name) const {
  return fmt::format("{}/{}", folder_, name);
}

std::string CommandLine::contents(std::string_view name) const {
  return read_file(path(name), 1 << 24);
}

void CommandLine::write(std::string_view name, std::string_view text) const {
  write_file_atomically(path(name), text);
}

bool CommandLine::exists(std::string_view name) const {
  return std::filesystem::exists(path(name));
}

}  // namespace fpdt::test
