// Prints the tables of docs/results/search.md: how far answers to drawn questions are from their
// bounds, what every lever and pair of levers gains on them, and what more of a machine does.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/plan/search/search.h"
#include "fpdt/report/axis.h"

#include "climber.h"

namespace fpdt::test {
namespace {

constexpr int kQuestions = 40, kQuestionsOfMore = 12;
constexpr double kMore = 1.25;

std::string file(const char* folder, const std::string& name) {
  return fmt::format("{}/{}/{}.yaml", FPDT_SOURCE_DIR, folder, name);
}

// At least 64K tokens a rank, on all devices or one, with all host memory or a part of it.
Problem draw(std::mt19937& random) {
  const auto of = [&]<class T>(std::initializer_list<T> choices) {
    return choices.begin()[random() % choices.size()];
  };
  Problem problem;
  const std::string model = of({"llama3-8b", "llama3-8b", "mistral-7b", "qwen3-8b", "gpt-6.7b",
                                "gpt-13b", "qwen3-32b", "llama3-70b"});
  problem.model = load_model(file("models", model));
  const std::string cluster =
      of({"a100-40g-x4", "a100-80g-x2", "a100-80g-x4", "a100-80g-x8", "a100-80g-x16",
          "a100-80g-x32", "h100-80g-x8", "h100-80g-x8", "h200-141g-x8", "l40s-48g-x8"});
  problem.cluster = load_cluster(file("configs/clusters", cluster));
  if (of({1, 2, 3, 4}) == 1) problem.cluster.devices_per_node = problem.cluster.nodes = 1;
  problem.seq_len = problem.ranks() * (of({64, 128, 192, 256, 512, 1024}) << 10);
  problem.documents = false;
  problem.device_budget = problem.cluster.device_memory;
  problem.host_budget = Bytes{problem.cluster.host_available().value / of({1, 1, 2, 4})};
  return problem;
}

std::string words(const Problem& problem) {
  return fmt::format("{}, {} on {} x {}, {} of host memory", problem.model.name,
                     format_tokens(problem.seq_len), problem.ranks(), problem.cluster.name,
                     format_bytes(problem.host_budget));
}

// False if nothing fits.
bool print_row(const Problem& problem) {
  const std::string question = words(problem);
  const SearchResult result = search(problem);
  if (!result.best && result.bound.none_fits()) return false;
  if (!result.best) {
    fmt::print("| {} | none found | | | |\n", question);
    return true;
  }
  const double step = static_cast<double>(result.best->nanoseconds) * 1e-9;
  const Climbed more = climbed(problem, *result.best);
  fmt::print("| {} | {} | {:.1f} % | {:.2f} % | {} |\n", question, format_seconds(step),
             100 * (step / result.bound.step_seconds - 1), 100 * more.gain, more.words);
  std::fflush(stdout);
  return true;
}

void increase(Bytes& bytes) {
  bytes.value = static_cast<std::int64_t>(kMore * static_cast<double>(bytes.value));
}

void increase(Rate& rate) { rate = {kMore * rate.typical, kMore * rate.low, kMore * rate.high}; }

// How much longer a step takes with a quarter more of each, and on nodes that are doubled. False if
// nothing fits.
bool print_more(const Problem& problem) {
  const SearchResult now = search(problem);
  if (!now.best) return false;
  std::string row = fmt::format("| {} |", words(problem));
  const auto print = [&](const Problem& richer) {
    const SearchResult found = search(richer);
    if (!found.best) {
      row += " none found |";
      return;
    }
    row += fmt::format(" {:+.2f} % |", 100 * (cost(*found.best) / cost(*now.best) - 1));
  };
  Problem richer = problem;
  increase(richer.host_budget);
  print(richer);
  richer = problem;
  increase(richer.device_budget);
  print(richer);
  richer = problem;
  increase(richer.cluster.rates.h2d);
  increase(richer.cluster.rates.d2h);
  print(richer);
  richer = problem;
  increase(richer.cluster.rates.link);
  increase(richer.cluster.rates.network);
  print(richer);
  richer = problem;
  richer.cluster.devices_per_node *= 2;
  richer.host_budget += problem.host_budget;
  print(richer);
  fmt::print("{}\n", row);
  std::fflush(stdout);
  return true;
}

// Calls `print` with drawn questions until it took so many.
void table(std::uint32_t seed, int rows, bool (*print)(const Problem&)) {
  std::mt19937 random(seed);
  while (rows > 0) rows -= print(draw(random)) ? 1 : 0;
}

}  // namespace
}  // namespace fpdt::test

int main(int argc, char** argv) {
  using namespace fpdt::test;
  const std::uint32_t seed = argc > 1 ? static_cast<std::uint32_t>(std::stoul(argv[1])) : 1;
  std::puts(
      "| question | step | over the bound | two levers gain | which |\n|---|---|---|---|---|");
  table(seed, kQuestions, print_row);
  std::puts(
      "\n| question | host memory | device memory | copies | links | devices |\n"
      "|---|---|---|---|---|---|");
  table(seed, kQuestionsOfMore, print_more);
  return 0;
}
