// Runs each way once to load it, then twice for about a millisecond.
#include "fpdt/cuda/product_times.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "fpdt/cuda/status.h"
#include "fpdt/cuda/streams.h"

namespace fpdt::cuda {
namespace {

// A way replaces one that cuBLASLt ranks higher only if it takes less than this share of its time.
// Closer ones change places from run to run.
constexpr double kBetter = 0.98;
constexpr double kEnough = 1e-3;  // seconds
constexpr int kRunsMost = 16;     // runs in a round
constexpr int kRounds = 2;

constexpr double kNever = std::numeric_limits<double>::infinity();

// Seconds per run, measured over `runs` runs.
double seconds_of(const std::function<bool()>& run, int runs, Stream stream) {
  const DeviceEvent begin(DeviceEvent::Times::yes);
  const DeviceEvent end(DeviceEvent::Times::yes);
  check(cudaEventRecord(begin.get(), stream), "the begin of a product");
  for (int i = 0; i < runs; ++i) run();
  check(cudaEventRecord(end.get(), stream), "the end of a product");
  check(cudaEventSynchronize(end.get()), "a product that is timed");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "the time of a product");
  return static_cast<double>(milliseconds) * 1e-3 / runs;
}

double measure(const std::function<bool()>& run, Stream stream) {
  if (!run()) return kNever;
  double least = seconds_of(run, 1, stream);
  const int runs = std::clamp(static_cast<int>(kEnough / std::max(least, 1e-9)), 1, kRunsMost);
  for (int round = 0; round < kRounds; ++round) {
    least = std::min(least, seconds_of(run, runs, stream));
  }
  return least;
}

std::string number(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.4g}", seconds) : "null";
}

}  // namespace

std::size_t ProductTimes::fastest(const std::string& product, const Ways& ways, Stream stream) {
  const std::lock_guard alone(mutex_);
  const auto [place, added] = choices_.try_emplace(product);
  Choice& choice = place->second;
  if (!added && choice.of == ways.count) return choice.chosen;
  choice = {0, ways.count, kNever, kNever};
  if (ways.count < 2) return 0;
  ways.fill();
  for (std::size_t i = 0; i < ways.count; ++i) {
    const double seconds = measure([&] { return ways.run(i); }, stream);
    if (i == 0) choice.first_seconds = seconds;
    if (i == 0 || seconds < kBetter * choice.seconds) {
      choice.chosen = i;
      choice.seconds = seconds;
    }
  }
  return choice.chosen;
}

std::string ProductTimes::json() const {
  const std::lock_guard alone(mutex_);
  std::string text;
  for (const auto& [product, choice] : choices_) {
    text +=
        fmt::format(R"({}{{"product":"{}","chosen":{},"of":{},"seconds":{},"first_seconds":{}}})",
                    text.empty() ? "" : ",", product, choice.chosen, choice.of,
                    number(choice.seconds), number(choice.first_seconds));
  }
  return "[" + text + "]";
}

}  // namespace fpdt::cuda
