// Prints the tables of docs/results/search.md: how far answers to drawn questions are from their
// bounds, and what every lever and pair of levers gains on them.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/estimates.h"
#include "fpdt/plan/search/search.h"
#include "fpdt/report/axis.h"

namespace fpdt::test {
namespace {

constexpr int kQuestions = 40;

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

struct Climbed {
  double gain = 0;  // of the answer's time, at most
  std::string words;
};

// The fastest of all strategies one or two levers away that fit as placed.
Climbed climbed(const Problem& problem, const Candidate& answer) {
  const Problem roomier = fits(problem, answer.strategy)
                              ? problem
                              : with_room(problem, placement_gain(problem, answer.strategy));
  Estimates estimates(problem);
  const auto now = static_cast<double>(estimates.nanoseconds(answer.strategy));
  struct Found {
    double nanoseconds;
    Strategy strategy;
    std::string words;
  };
  std::vector<Found> found;
  const auto consider = [&](const Strategy& strategy, const std::string& words) {
    if (!within(roomier, usage(problem, strategy))) return;
    const auto estimate = static_cast<double>(estimates.nanoseconds(strategy));
    if (estimate < now) found.push_back({estimate, strategy, words});
  };
  const std::vector<Lever> all = levers();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Change& one : all[i].changes(roomier, answer.strategy)) {
      const std::string first = one.words.empty() ? all[i].name : one.words;
      consider(one.strategy, first);
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        for (const Change& two : all[j].changes(roomier, one.strategy)) {
          consider(two.strategy, first + "; " + two.words);
        }
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.nanoseconds < b.nanoseconds; });
  const Machine machine(problem.cluster, RateEnd::typical);
  const auto before = static_cast<double>(answer.nanoseconds);
  Climbed best;
  constexpr std::size_t kSimulated = 8;
  for (std::size_t i = 0; i < std::min(kSimulated, found.size()); ++i) {
    Usage placed = usage(problem, found[i].strategy);
    const Room gain_of = placement_gain(problem, found[i].strategy);
    placed.device = placed.device - gain_of.device;
    placed.host_node = placed.host_node - gain_of.host;
    if (!within(problem, placed)) continue;
    const double gain =
        1 - static_cast<double>(step_nanoseconds(problem, found[i].strategy, machine)) / before;
    if (gain > best.gain) best = {gain, found[i].words};
  }
  return best;
}

// False if nothing fits.
bool print_row(const Problem& problem) {
  const std::string question = fmt::format(
      "{}, {} on {} x {}, {} of host memory", problem.model.name, format_tokens(problem.seq_len),
      problem.ranks(), problem.cluster.name, format_bytes(problem.host_budget));
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

}  // namespace
}  // namespace fpdt::test

int main(int argc, char** argv) {
  std::mt19937 random(argc > 1 ? static_cast<std::uint32_t>(std::stoul(argv[1])) : 1);
  std::puts(
      "| question | step | over the bound | two levers gain | which |\n|---|---|---|---|---|");
  for (int rows = 0; rows < fpdt::test::kQuestions;) {
    if (fpdt::test::print_row(fpdt::test::draw(random))) ++rows;
  }
  return 0;
}
