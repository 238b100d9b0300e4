// The groups of measurements of ops alone, and the rate that each one gives.
#include "fpdt/bench/bench.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/bench/groups.h"
#include "fpdt/bench/measure.h"
#include "fpdt/runtime/arena.h"

namespace fpdt {

void Bench::group(const std::string& name, void (Bench::*measure_group)()) {
  (this->*measure_group)();
  result_.rates = rounded(std::move(result_.rates));
  measured_.push_back(name);
  if (options_.keep) options_.keep(result_, measured_);
}

BenchRun Bench::run(const Write& write, Bytes working_set, const BenchExtent::Pace& pace) {
  Sheet sheet(options_.ranks, working_set, options_.nodes);
  write(sheet);
  const VerifiedSchedule schedule = sheet.finish();
  BenchRun run;
  run.first_op = static_cast<std::int32_t>(schedule.schedule().blocks.front().ops.size());
  run.asked = demands(schedule.schedule()).back();
  Measured found =
      measure(schedule, sheet.contents(), options_.machine, {pace.rounds, pace.step_seconds});
  run.traces = std::move(found.traces);
  run.outside = found.used - options_.ranks * arena_bytes(schedule.schedule(), MemorySpace::device);
  for (std::size_t op = 0; op < run.asked.size(); ++op) {
    std::vector<double>& spans = run.spans.emplace_back();
    for (const Trace& trace : run.traces) {
      spans.push_back(mean_seconds(trace, run.first_op + static_cast<std::int32_t>(op)));
    }
  }
  return run;
}

std::vector<double> Bench::net(const Demand& asked, std::vector<double> seconds) const {
  // Caches move partial results faster than the bandwidth of memory says, so limit the share.
  constexpr double kPartialMost = 0.5;
  const double bandwidth = result_.rates.device_bandwidth.typical;
  const double partial = asked.partial > 0 ? static_cast<double>(asked.partial) / bandwidth : 0;
  for (double& one : seconds) {
    one = std::max(one - least_span_, one / 100);
    one -= std::min(partial, kPartialMost * one);
  }
  return seconds;
}

void Bench::note(std::string_view kind, const std::string& what, const Demand& asked,
                 const std::vector<double>& seconds) {
  result_.measurements.push_back(
      {std::string(kind), what, spread(seconds), asked.work, asked.flops, asked.bytes});
}

// Ops that do nothing: measures the interval after which a lane is ready for the next op.
void Bench::measure_least() {
  options_.progress("ops that do nothing");
  const BenchRun least = run([&](Sheet& sheet) {
    if (extent_.least_behind > 0) product(extent_.least_behind).write(sheet);
    for (std::int64_t i = 0; i < extent_.least_ops; ++i) least_case().write(sheet);
  });
  const std::int32_t first = least.first_op + (extent_.least_behind > 0 ? 1 : 0);
  std::vector<double> steps;
  for (const Trace& trace : least.traces) {
    steps.push_back(std::max(mean_interval(trace, first), 1e-9));
  }
  result_.rates.op_seconds = spread(steps);
  least_span_ = spread(least.spans.back()).typical;
  note("fill", "one number, with its lane", least.asked.back(), steps);
}

void Bench::measure_products() {
  std::vector<std::vector<Timing>> sizes;
  double fastest = 0;  // including all fixed costs
  for (const std::int64_t size : extent_.product_sizes) {
    options_.progress(fmt::format("matrix products of {}", size));
    std::vector<Timing>& samples = sizes.emplace_back();
    for (const BenchCase& one : matmul_cases(size, extent_.product_most, options_.storage)) {
      const BenchRun product =
          run(one.write, extent_.working_set, pace_of(size, extent_.product_sizes));
      note("matmul", one.what, product.asked.front(), product.spans.front());
      fastest = std::max(fastest,
                         speed(product.asked.front().flops, net({}, product.spans.front())).high);
      samples.push_back({product.asked.front(), net(product.asked.front(), product.spans.front())});
    }
  }
  const Shared fit = fit_products(sizes);
  result_.rates.matmul = fit.rate;
  result_.rates.matmul_shares = fit.shares;
  result_.rates.peak_flops = options_.peak_flops > 0 ? options_.peak_flops : fastest;
  measure_experts();
}

// A Machine takes the shares of other products, so the rate is the one that reproduces the largest.
// Products of 32 experts an eighth as wide, like those that models have, are noted beside it.
void Bench::measure_experts() {
  const std::int64_t largest = extent_.product_sizes.back();
  const auto all_of = [this](std::int64_t experts, std::int64_t size) {
    Timing all;
    for (const BenchCase& one : grouped_cases(size, size, experts, options_.storage)) {
      const BenchRun product = run(one.write);
      const Demand& asked = product.asked.back();
      note("grouped", one.what, asked, product.spans.back());
      const std::vector<double> seconds = net({}, product.spans.back());
      all.asked.flops += asked.flops;
      all.seconds.resize(seconds.size());
      for (std::size_t i = 0; i < seconds.size(); ++i) all.seconds[i] += seconds[i];
    }
    return all;
  };
  all_of(32, div_exact(largest, 8));
  const Timing all = all_of(4, largest);
  result_.rates.grouped_matmul =
      speed(all.asked.flops / share_of(result_.rates.matmul_shares, largest), all.seconds);
}

void Bench::measure_memory() {
  result_.rates.kinds.clear();
  for (const BenchCase& one : memory_cases(extent_.rows, extent_.width, options_.storage)) {
    options_.progress(fmt::format("{} of {} x {}", one.what, extent_.rows, extent_.width));
    const BenchRun op = run(one.write);
    const Demand& asked = op.asked.back();
    note(one.what, fmt::format("{} x {}", extent_.rows, extent_.width), asked, op.spans.back());
    const Rate rate = speed(static_cast<double>(asked.bytes), net(asked, op.spans.back()));
    result_.rates.kinds.push_back({one.what, rate});
    if (one.what == "copy") result_.rates.device_bandwidth = rate;
  }
}

void Bench::measure_copies() {
  for (const LaneKind lane : {LaneKind::h2d, LaneKind::d2h}) {
    for (const std::int64_t bytes : extent_.copy_sizes) {
      options_.progress(fmt::format("copies {} of {}", word(lane), format_bytes(Bytes{bytes})));
      const BenchRun copy = run([&](Sheet& sheet) { write_copy(sheet, lane, bytes); });
      note(word(lane), format_bytes(Bytes{bytes}), copy.asked.front(), copy.spans.front());
      if (bytes != extent_.copy_bytes) continue;
      (lane == LaneKind::h2d ? result_.rates.h2d : result_.rates.d2h) =
          speed(static_cast<double>(bytes), net(copy.asked.front(), copy.spans.front()));
    }
  }
}

// Runs all kinds of kernels in one schedule, in a process that has run nothing else, as in
// training. Kernel code takes memory at its first use. The result is rounded up, because a schedule
// may use a few more kernels.
void Bench::measure_outside() {
  constexpr std::int64_t kPiece = 64 << 20;
  options_.progress("memory outside the arenas");
  const Bytes contexts = used_memory(options_.machine);
  const BenchRun all = run([&](Sheet& sheet) {
    for (const BenchCase& one :
         matmul_cases(extent_.company, extent_.product_most, options_.storage)) {
      one.write(sheet);
    }
    for (const auto direction : {AttentionDirection::forward, AttentionDirection::backward}) {
      const std::int64_t rows = extent_.tile_rows.front();
      tile_case(direction, options_.attention, rows, extent_.head_dim).write(sheet);
    }
    for (const BenchCase& one : memory_cases(extent_.rows, extent_.width, options_.storage)) {
      one.write(sheet);
    }
    write_copy(sheet, LaneKind::h2d, extent_.copy_bytes);
    write_copy(sheet, LaneKind::d2h, extent_.copy_bytes);
  });
  const Bytes workspace = options_.machine.workspace;
  const Bytes rest = std::max(all.outside - contexts - options_.ranks * workspace, Bytes{0});
  result_.outside.context = Bytes{div_ceil(contexts.value, options_.machine.devices)};
  result_.outside.workspace = workspace;
  result_.outside.libraries = Bytes{round_up(div_ceil(rest.value, options_.ranks), kPiece)};
}

BenchResult bench(const BenchOptions& options) { return Bench(options).measure_all(); }

}  // namespace fpdt
