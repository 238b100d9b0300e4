// Measures the rates of a machine with the executor, backend and communicator of training: it runs
// schedules of one or two ops on as many ranks at once as a training step has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/bench/extent.h"
#include "fpdt/bench/measure.h"
#include "fpdt/cost/demand.h"
#include "fpdt/schedule/buffer.h"
#include "fpdt/spec/cluster.h"

namespace fpdt {

// One op, as it was measured.
struct Measurement {
  std::string kind;  // word of the op, or of two lanes
  std::string what;  // sizes
  Rate seconds;      // of one op; low is the fastest
  Work work = Work::memory;
  double flops = 0;
  std::int64_t bytes = 0;
};

struct BenchResult {
  Rates rates;
  OutsideArena outside;  // what could be measured of it
  std::vector<Measurement> measurements;
};

struct BenchOptions {
  std::int64_t ranks = 1;
  BenchMachine machine;
  Extent extent;
  Dtype storage = Dtype::bf16;
  // Whose attention tiles give the rates; the extent says whether the others are measured too.
  AttentionKernels attention = AttentionKernels::own;
  double peak_flops = 0;  // of the datasheet; 0: the fastest product
  Rates declared;         // used until they are measured
  OutsideArena declared_outside;
  std::function<void(std::string_view what)> progress;  // called before each measurement
  // Called after each group of measurements with the result so far and the names of the groups.
  std::function<void(const BenchResult& result, const std::vector<std::string>& measured)> keep;
};

BenchResult bench(const BenchOptions& options);

// What share of its ceiling an op reaches: of the peak's flops, or of the bytes that the device
// moves when it copies within itself. 0 for ops that have neither.
double share_of_ceiling(const BenchResult& result, const Measurement& one);

}  // namespace fpdt
