// The groups of measurements, and the rate that each one gives.
#include "fpdt/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/bench/cases.h"
#include "fpdt/bench/fit.h"
#include "fpdt/bench/measure.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/schedule/attention_workspace.h"

namespace fpdt {
namespace {

constexpr double kTimesMost = 16;  // repetitions of an op in a block

std::string_view word_of(AttentionDirection direction) {
  return direction == AttentionDirection::backward ? "attention_backward" : "attention_forward";
}

// The result of one schedule of the bench.
struct Run {
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
  Run run(const Write& write) { return run(write, extent_.working_set, extent_.pace); }
  Run run(const Write& write, Bytes working_set, const BenchExtent::Pace& pace);
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

void Bench::group(const std::string& name, void (Bench::*measure_group)()) {
  (this->*measure_group)();
  result_.rates = rounded(std::move(result_.rates));
  measured_.push_back(name);
  if (options_.keep) options_.keep(result_, measured_);
}

Run Bench::run(const Write& write, Bytes working_set, const BenchExtent::Pace& pace) {
  Sheet sheet(options_.ranks, working_set, options_.nodes);
  write(sheet);
  const VerifiedSchedule schedule = sheet.finish();
  Run run;
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
  const Run least = run([&](Sheet& sheet) {
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
      const Run product = run(one.write, extent_.working_set, pace_of(size, extent_.product_sizes));
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
void Bench::measure_experts() {
  constexpr std::int64_t kExperts = 4;
  const std::int64_t size = extent_.product_sizes.back();
  Timing all;
  for (const BenchCase& one : grouped_cases(size, size, kExperts, options_.storage)) {
    const Run product = run(one.write);
    const Demand& asked = product.asked.back();
    note("grouped", one.what, asked, product.spans.back());
    const std::vector<double> seconds = net({}, product.spans.back());
    all.asked.flops += asked.flops;
    all.seconds.resize(seconds.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) all.seconds[i] += seconds[i];
  }
  result_.rates.grouped_matmul =
      speed(all.asked.flops / share_of(result_.rates.matmul_shares, size), all.seconds);
}

// Tile (1,0) of a triangle, in which no key is masked.
Timing Bench::dense_tile(const BenchCase& one, std::string_view kind) {
  const Run triangle = run(one.write);
  note(kind, one.what, triangle.asked[1], triangle.spans[1]);
  return {triangle.asked[1], net(triangle.asked[1], triangle.spans[1])};
}

BenchCase Bench::tile_case(AttentionDirection direction, AttentionKernels kernels,
                           std::int64_t rows, std::int64_t head_dim) const {
  const TileShape shape{rows,
                        extent_.heads,
                        extent_.kv_heads,
                        head_dim,
                        options_.ranks,
                        options_.storage,
                        kernels == AttentionKernels::cudnn};
  return direction == AttentionDirection::backward ? attention_backward_case(shape)
                                                   : attention_forward_case(shape);
}

// All six tiles of a triangle together.
Timing Bench::triangle(const BenchCase& one, std::string_view kind, std::int64_t rows) {
  options_.progress(fmt::format("{}, {}", kind, one.what));
  const Run triangle = run(one.write, extent_.working_set, pace_of(rows, extent_.tile_rows));
  Timing all;
  all.asked.size = rows;
  all.seconds.assign(triangle.traces.size(), 0);
  for (std::size_t op = 0; op < triangle.asked.size(); ++op) {
    all.asked.flops += triangle.asked[op].flops;
    all.asked.pairs += triangle.asked[op].pairs;
    const std::vector<double> seconds = net(triangle.asked[op], triangle.spans[op]);
    for (std::size_t i = 0; i < seconds.size(); ++i) all.seconds[i] += seconds[i];
  }
  note(kind, one.what + ", diagonal", triangle.asked[0], triangle.spans[0]);
  note(kind, one.what, triangle.asked[1], triangle.spans[1]);
  return all;
}

TileFit Bench::tiles(AttentionDirection direction) {
  const std::string_view kind = word_of(direction);
  const auto make = [&](std::int64_t rows, std::int64_t head_dim) {
    return tile_case(direction, options_.attention, rows, head_dim);
  };
  options_.progress(fmt::format("{} by the size of heads", kind));
  const Timing narrow = dense_tile(make(extent_.fit_rows, extent_.narrow_head), kind);
  const Timing wide = dense_tile(make(extent_.fit_rows, extent_.wide_head), kind);
  std::vector<Timing> sizes;
  for (const std::int64_t rows : extent_.tile_rows) {
    sizes.push_back(triangle(make(rows, extent_.head_dim), kind, rows));
  }
  return fit_tiles(narrow, wide, sizes);
}

// The backend's own kernels beside a library's. A Machine takes the shares of the library's tiles,
// so the rate is the one that reproduces the largest tile.
void Bench::own_tiles(AttentionDirection direction, Rate& rate) {
  if (options_.attention == AttentionKernels::own) return;  // then the other rates are theirs
  for (const std::int64_t rows : extent_.others_rows) {
    const BenchCase one = tile_case(direction, AttentionKernels::own, rows, extent_.head_dim);
    const Timing all = triangle(one, word_of(direction), rows);
    rate = speed(all.asked.flops / share_of(result_.rates.attention_shares, rows), all.seconds);
  }
}

void Bench::measure_tiles() {
  Rates& rates = result_.rates;
  const TileFit forward = tiles(AttentionDirection::forward);
  const TileFit backward = tiles(AttentionDirection::backward);
  rates.attention_forward = forward.rate;
  rates.softmax_forward = forward.softmax;
  rates.attention_backward = backward.rate;
  rates.softmax_backward = backward.softmax;
  // Both passes share one curve, weighted by their operations: forward 4 of 14, backward 10.
  rates.attention_shares.clear();
  rates.attention_heads.clear();  // the fit over two sizes of heads says it
  for (std::size_t i = 0; i < forward.shares.size(); ++i) {
    rates.attention_shares.push_back(
        {forward.shares[i].size,
         (4 * forward.shares[i].share + 10 * backward.shares[i].share) / 14});
  }
  own_tiles(AttentionDirection::forward, rates.own_attention_forward);
  own_tiles(AttentionDirection::backward, rates.own_attention_backward);
}

void Bench::measure_memory() {
  result_.rates.kinds.clear();
  for (const BenchCase& one : memory_cases(extent_.rows, extent_.width, options_.storage)) {
    options_.progress(fmt::format("{} of {} x {}", one.what, extent_.rows, extent_.width));
    const Run op = run(one.write);
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
      const Run copy = run([&](Sheet& sheet) { write_copy(sheet, lane, bytes); });
      note(word(lane), format_bytes(Bytes{bytes}), copy.asked.front(), copy.spans.front());
      if (bytes != extent_.copy_bytes) continue;
      (lane == LaneKind::h2d ? result_.rates.h2d : result_.rates.d2h) =
          speed(static_cast<double>(bytes), net(copy.asked.front(), copy.spans.front()));
    }
  }
}

void Bench::measure_collectives() {
  Rates& rates = result_.rates;
  if (options_.nodes == 1) {
    rates.collective_seconds = measure_peer(whole_);
    rates.link = rate_of(measure_circle(whole_, rates.collective_seconds));
    return;
  }
  const std::int64_t here = options_.ranks / options_.nodes;
  const Circle node{kNode, " in a node", here, 1};
  const Circle across{kAcross, " between nodes", options_.nodes, here};
  rates.network_seconds = measure_peer(across);
  rates.collective_seconds = here > 1 ? measure_peer(node) : rates.network_seconds;
  if (here > 1) rates.link = rate_of(measure_circle(node, rates.collective_seconds));
  std::map<std::int64_t, std::vector<double>> sizes;
  for (const Sending& one : measure_circle(across, rates.network_seconds)) {
    std::vector<double>& speeds = sizes[one.to_each];
    speeds.insert(speeds.end(), one.speeds.begin(), one.speeds.end());
  }
  const Shared network = fit_sizes(sizes);
  rates.network = network.rate;
  rates.network_shares = network.shares;
  // Around the circle of all ranks, one of each node sends to the next node, by itself.
  const Rate alone = rate_of(measure_circle(whole_, rates.network_seconds), "exchange");
  rates.nics =
      std::clamp<std::int64_t>(std::llround(rates.network.typical / alone.typical), 1, here);
}

// The seconds that a collective takes for each peer, whatever it sends.
Rate Bench::measure_peer(const Circle& circle) {
  options_.progress(fmt::format("collectives of almost nothing{}", circle.words));
  std::vector<double> fixed;
  for (const BenchCase& one : collectives(circle, 1)) {
    const Run op = run(one.write);
    note(one.what, format_bytes(Bytes{4 * circle.members}) + circle.words, op.asked.front(),
         op.spans.front());
    const auto peers = static_cast<double>(op.asked.front().peers());
    for (const double seconds : net(op.asked.front(), op.spans.front()))
      fixed.push_back(seconds / peers);
  }
  return spread(fixed);
}

// Every size and kind, less the seconds that each peer takes.
std::vector<Bench::Sending> Bench::measure_circle(const Circle& circle, const Rate& peer) {
  std::vector<Sending> all;
  for (const std::int64_t bytes : extent_.collective_sizes) {
    for (const BenchCase& one : collectives(circle, bytes)) {
      options_.progress(
          fmt::format("{}{} of {}", one.what, circle.words, format_bytes(Bytes{bytes})));
      const Run op = run(one.write);
      const Demand& asked = op.asked.front();
      note(one.what, format_bytes(Bytes{bytes}) + circle.words, asked, op.spans.front());
      const double fixed_seconds = peer.typical * static_cast<double>(asked.peers());
      const auto sent = static_cast<double>(asked.sent * circle.beside);
      Sending& sending = all.emplace_back(Sending{one.what, bytes, asked.sent / asked.peers(), {}});
      for (const double seconds : net(asked, op.spans.front())) {
        sending.speeds.push_back(sent / std::max(seconds - fixed_seconds, seconds / 100));
      }
    }
  }
  return all;
}

// Of one kind, or of all, from the size that gives the rate.
Rate Bench::rate_of(const std::vector<Sending>& sendings, std::string_view kind) const {
  std::vector<double> speeds;
  for (const Sending& one : sendings) {
    if (one.bytes != extent_.collective_bytes || (!kind.empty() && one.kind != kind)) continue;
    speeds.insert(speeds.end(), one.speeds.begin(), one.speeds.end());
  }
  return spread(speeds);
}

// Keeps both lanes busy for about the same time, and measures the seconds of each while the other
// works.
void Bench::company(std::string_view kind, const std::pair<Write, Write>& lanes, Rate& first,
                    Rate& second) {
  options_.progress(fmt::format("{}", kind));
  // One slot each. Otherwise the operands of both would share the slots that those of one had
  // alone.
  constexpr Bytes kOneSlot{1};
  const std::vector<double> first_alone = run(lanes.first, kOneSlot, extent_.pace).spans.front();
  const std::vector<double> second_alone = run(lanes.second, kOneSlot, extent_.pace).spans.front();
  const double ratio =
      common(options_.machine, spread(first_alone).typical / spread(second_alone).typical);
  const auto times = [](double wanted) {
    return static_cast<int>(std::lround(std::clamp(wanted, 1.0, kTimesMost)));
  };
  const int first_times = times(1 / ratio);
  const Run both = run(
      [&](Sheet& sheet) {
        for (int i = 0; i < first_times; ++i) lanes.first(sheet);
        for (int i = 0; i < times(ratio); ++i) lanes.second(sheet);
      },
      kOneSlot, extent_.pace);
  const std::int32_t second_op = both.first_op + first_times;
  std::vector<double> first_beside, second_beside;
  for (const Trace& trace : both.traces) {
    const double one = mean_seconds_beside(trace, both.first_op, second_op);
    const double other = mean_seconds_beside(trace, second_op, both.first_op);
    if (one > 0) first_beside.push_back(one);
    if (other > 0) second_beside.push_back(other);
  }
  if (!first_beside.empty()) first = fit_pace(first_alone, first_beside);
  if (!second_beside.empty()) second = fit_pace(second_alone, second_beside);
}

void Bench::measure_company() {
  Interference& factors = result_.rates.interference;
  const Write compute = product(extent_.company).write;
  const Write h2d = [&](Sheet& s) { write_copy(s, LaneKind::h2d, extent_.copy_bytes); };
  const Write d2h = [&](Sheet& s) { write_copy(s, LaneKind::d2h, extent_.copy_bytes); };
  company("products beside copies", {compute, h2d}, factors.compute_beside_copy,
          factors.copy_beside_compute);
  company("copies both ways", {h2d, d2h}, factors.h2d_beside_d2h, factors.d2h_beside_h2d);
  if (options_.ranks == 1) return;
  const Write collective = collectives(whole_, extent_.collective_bytes).front().write;
  company("products beside collectives", {compute, collective}, factors.compute_beside_collective,
          factors.collective_beside_compute);
  company("copies beside collectives", {h2d, collective}, factors.copy_beside_collective,
          factors.collective_beside_copy);
}

// Runs all kinds of kernels in one schedule, in a process that has run nothing else, as in
// training. Kernel code takes memory at its first use. The result is rounded up, because a schedule
// may use a few more kernels.
void Bench::measure_outside() {
  constexpr std::int64_t kPiece = 64 << 20;
  options_.progress("memory outside the arenas");
  const Bytes contexts = used_memory(options_.machine);
  const Run all = run([&](Sheet& sheet) {
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

}  // namespace

BenchResult bench(const BenchOptions& options) { return Bench(options).measure_all(); }

}  // namespace fpdt
