// Measures the rates of a machine with the executor, backend and communicator of training. It runs
// schedules of one or two ops, on as many ranks at once as a training step has.
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

// The measurement of one op.
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
  OutsideArena outside;  // the parts that could be measured
  std::vector<Measurement> measurements;
};

struct BenchOptions {
  std::int64_t ranks = 1;  // of all processes
  std::int64_t nodes = 1;  // with as many ranks on each, numbered node by node
  BenchMachine machine;
  BenchExtent extent;
  Dtype storage = Dtype::bf16;
  // The kernels whose attention tiles give the rates. The extent decides whether the others are
  // measured too.
  AttentionKernels attention = AttentionKernels::own;
  std::int64_t largest_cudnn_head = 128;  // as in ClusterSpec
  // The peak of the datasheet; 0: that of the fastest product. Measured rates above it replace it.
  double peak_flops = 0;
  Rates declared;  // used until measured
  OutsideArena declared_outside;
  std::function<void(std::string_view what)> progress;  // called before each measurement
  // Called after each group of measurements, with the result and the names of the groups so far.
  std::function<void(const BenchResult& result, const std::vector<std::string>& measured)> keep;
};

// Together, where there are several processes. Process 0 has measured all ranks, others their own.
BenchResult bench(const BenchOptions& options);

// The share of its ceiling that an op reaches: of the peak flops, or of the bandwidth at which the
// device copies within itself. 0 for ops that have neither ceiling.
double share_of_ceiling(const BenchResult& result, const Measurement& one);

}  // namespace fpdt
