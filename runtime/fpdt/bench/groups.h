// One run of the bench: its groups of measurements and what they have found so far.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/bench/bench.h"
#include "fpdt/bench/cases.h"
#include "fpdt/bench/fit.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// The result of one schedule of the bench.
struct BenchRun {
  std::vector<Demand> asked;               // demand of each op of the called block
  std::vector<std::vector<double>> spans;  // [op]: mean seconds, per round and rank
  std::vector<Trace> traces;
  std::int32_t first_op = 0;  // of the block, as an index into Trace::ops
  Bytes outside;              // device memory in use outside of the arenas; 0: unknown
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options), extent_(options.extent), whole_{kEverybody, "", options.ranks, 1} {}

  BenchResult measure_all() {
    result_.rates = options_.declared;
    result_.outside = options_.declared_outside;
    // Measured first, before anything is loaded that training does not load.
    if (options_.machine.used_memory) group("memory outside the arenas", &Bench::measure_outside);
    group("op_seconds", &Bench::measure_least);
    // Measured before the groups that add partial results to sums in memory, because their `net`
    // subtracts the seconds of those at this bandwidth.
    group("kinds", &Bench::measure_memory);
    group("products", &Bench::measure_products);
    group("attention", &Bench::measure_tiles);
    group("copies", &Bench::measure_copies);
    if (options_.ranks > 1) group("collectives", &Bench::measure_collectives);
    group("interference", &Bench::measure_company);
    return std::move(result_);
  }

 private:
  using Write = std::function<void(Sheet&)>;

  void group(const std::string& name, void (Bench::*measure_group)());
  BenchRun run(const Write& write) { return run(write, extent_.working_set, extent_.pace); }
  BenchRun run(const Write& write, Bytes working_set, const BenchExtent::Pace& pace);
  // The pace for one of `sizes`. The largest takes long.
  [[nodiscard]] const BenchExtent::Pace& pace_of(std::int64_t size,
                                                 const std::vector<std::int64_t>& sizes) const {
    return size == sizes.back() ? extent_.long_pace : extent_.pace;
  }
  // Seconds of an op minus those that every op takes, and minus those of its partial results at the
  // measured bandwidth. A Machine adds both again.
  [[nodiscard]] std::vector<double> net(const Demand& asked, std::vector<double> seconds) const;
  void note(std::string_view kind, const std::string& what, const Demand& asked,
            const std::vector<double>& seconds);

  [[nodiscard]] BenchCase product(std::int64_t size) const {
    return matmul_cases(size, extent_.product_most, options_.storage).front();
  }
  void measure_least();
  void measure_products();
  void measure_experts();
  void measure_tiles();
  void measure_memory();
  void measure_copies();
  // A group that takes part in a collective.
  struct Circle {
    const char* group;
    std::string words;     // behind the sizes of its measurements
    std::int64_t members;  // over one
    std::int64_t beside;   // such groups on a node, which share its network
  };
  // The collectives of at least `bytes`, rounded up so that members have equal blocks of floats.
  [[nodiscard]] std::vector<BenchCase> collectives(const Circle& circle, std::int64_t bytes) const {
    return collective_cases(round_up(bytes, 4 * circle.members), circle.members, circle.group);
  }
  // One kind of a circle's collectives in one size.
  struct Sending {
    std::string kind;
    std::int64_t bytes = 0;      // as asked
    std::int64_t to_each = 0;    // bytes that a rank sends to each peer
    std::vector<double> speeds;  // of the groups of a node together, bytes per second
  };
  void measure_collectives();
  Rate measure_peer(const Circle& circle);
  std::vector<Sending> measure_circle(const Circle& circle, const Rate& peer);
  [[nodiscard]] Rate rate_of(const std::vector<Sending>& sendings,
                             std::string_view kind = "") const;
  void measure_company();
  void measure_outside();
  [[nodiscard]] BenchCase tile_case(AttentionDirection direction, AttentionKernels kernels,
                                    std::int64_t rows, std::int64_t head_dim) const;
  TileFit tiles(AttentionDirection direction);
  void own_tiles(AttentionDirection direction, Rate& rate);
  double large_head(AttentionDirection direction, AttentionKernels kernels);
  Timing dense_tile(const BenchCase& one, std::string_view kind);
  Timing triangle(const BenchCase& one, std::string_view kind, std::int64_t rows);
  void company(std::string_view kind, const std::pair<Write, Write>& lanes, Rate& first,
               Rate& second);

  const BenchOptions& options_;
  const BenchExtent& extent_;
  const Circle whole_;
  double least_span_ = 0;
  BenchResult result_;
  std::vector<std::string> measured_;  // names of the groups measured so far
};

}  // namespace fpdt
