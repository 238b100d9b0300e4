// The rates of collectives, and how copies, products and collectives slow each other.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "fpdt/bench/groups.h"

namespace fpdt {
namespace {

constexpr double kTimesMost = 16;  // repetitions of an op in a block

}  // namespace

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
    const BenchRun op = run(one.write);
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
      const BenchRun op = run(one.write);
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
  const BenchRun both = run(
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

}  // namespace fpdt
