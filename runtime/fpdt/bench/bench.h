// Measures the rates of this machine, with the executor, the backend and the communicator that
// training uses: schedules of an op or two, on as many ranks at once as a training step has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/schedule/buffer.h"
#include "fpdt/spec/cluster.h"

namespace fpdt {

struct BenchOptions {
  std::int64_t ranks = 1;
  std::int32_t threads = 0;  // of each rank; 0: the rank's part of the cores
  Dtype storage = Dtype::bf16;
  bool quick = false;  // small, few and short: whether it works, not how fast the machine is
  std::function<void(std::string_view what)> progress;  // told before each measurement
};

// One op, as it was measured.
struct Measurement {
  std::string kind;  // word of the op, or of two lanes
  std::string what;  // sizes
  Rate seconds;      // of one op; low is the fastest
  double flops = 0;
  std::int64_t bytes = 0;
};

struct BenchResult {
  Rates rates;
  std::vector<Measurement> measurements;
};

BenchResult bench(const BenchOptions& options);

}  // namespace fpdt
