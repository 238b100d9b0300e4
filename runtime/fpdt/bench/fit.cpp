// Computes quartiles, and solves two equations with two unknowns.
#include "fpdt/bench/fit.h"

#include <algorithm>
#include <cmath>

#include "fpdt/base/assert.h"
#include "fpdt/bench/bench.h"

namespace fpdt {
namespace {

double typical(const std::vector<double>& seconds) { return spread(seconds).typical; }

double rounded(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  // Division by whole powers of ten keeps the decimal short.
  return unit >= 1 ? std::round(value / unit) * unit
                   : std::round(value / unit) / std::round(1 / unit);
}

Rate scaled(const Rate& rate, double factor) {
  return {rate.typical * factor, rate.low * factor, rate.high * factor};
}

// `value` with the relative range of `amount` over the seconds.
Rate ranged(double value, double amount, const std::vector<double>& seconds) {
  const Rate found = speed(amount, seconds);
  return scaled(found, value / found.typical);
}

// Takes the rate of one more size. Shares are rates until all sizes are there.
void add_size(Shared& fit, std::int64_t size, const Rate& rate) {
  if (rate.typical > fit.rate.typical) fit.rate = rate;
  fit.shares.push_back({size, rate.typical});
}

void end_sizes(Shared& fit) {
  for (SizeShare& one : fit.shares) one.share /= fit.rate.typical;
}

}  // namespace

Rate spread(std::vector<double> seconds) {
  FPDT_ASSERT(!seconds.empty());
  std::sort(seconds.begin(), seconds.end());
  return {seconds[(seconds.size() - 1) / 4], seconds.front(), seconds.back()};
}

Rate speed(double amount, const std::vector<double>& seconds) {
  const Rate time = spread(seconds);
  FPDT_ASSERT(time.low > 0);
  return {amount / time.typical, amount / time.high, amount / time.low};
}

Shared fit_products(const std::vector<std::vector<Timing>>& sizes) {
  Shared fit;
  std::vector<double> rates;
  for (const std::vector<Timing>& timings : sizes) {
    double flops = 0;
    double seconds = 0;
    Rate range;
    for (const Timing& timing : timings) {
      flops += timing.asked.flops;
      seconds += typical(timing.seconds);
      const Rate own = speed(timing.asked.flops, timing.seconds);
      range.low = range.low > 0 ? std::min(range.low, own.low) : own.low;
      range.high = std::max(range.high, own.high);
    }
    range.typical = flops / seconds;
    add_size(fit, timings.front().asked.size, range);
  }
  end_sizes(fit);
  return fit;
}

Shared fit_sizes(const std::map<std::int64_t, std::vector<double>>& speeds) {
  Shared fit;
  for (const auto& [size, all] : speeds) add_size(fit, size, spread(all));
  end_sizes(fit);
  return fit;
}

TileFit fit_tiles(const Timing& narrow, const Timing& wide, const std::vector<Timing>& sizes) {
  FPDT_ASSERT(narrow.asked.pairs == wide.asked.pairs && narrow.asked.flops < wide.asked.flops);
  const double short_time = typical(narrow.seconds);
  const double long_time = typical(wide.seconds);
  double flops_time = (long_time - short_time) / (wide.asked.flops - narrow.asked.flops);
  double pair_time = (short_time - narrow.asked.flops * flops_time) / wide.asked.pairs;
  if (!(flops_time > 0) || !(pair_time > 0)) {
    flops_time = long_time / wide.asked.flops;
    pair_time = 0;
  }
  TileFit fit;
  fit.rate = ranged(1 / flops_time, wide.asked.flops, wide.seconds);
  if (pair_time > 0) fit.softmax = ranged(1 / pair_time, narrow.asked.pairs, narrow.seconds);
  double best = 1;
  for (const Timing& timing : sizes) {
    const double expected = timing.asked.flops * flops_time + timing.asked.pairs * pair_time;
    fit.shares.push_back({timing.asked.size, expected / typical(timing.seconds)});
    best = std::max(best, fit.shares.back().share);
  }
  fit.rate = scaled(fit.rate, best);
  fit.softmax = scaled(fit.softmax, best);
  for (SizeShare& one : fit.shares) one.share /= best;
  return fit;
}

Rate fit_pace(const std::vector<double>& alone, const std::vector<double>& beside) {
  const Rate pace = speed(typical(alone), beside);
  return {std::min(1.0, pace.typical), std::min(1.0, pace.low), std::min(1.0, pace.high)};
}

Rates rounded(Rates rates) {
  Interference& pace = rates.interference;
  std::vector<Rate*> all{&rates.matmul,
                         &rates.grouped_matmul,
                         &rates.attention_forward,
                         &rates.attention_backward,
                         &rates.own_attention_forward,
                         &rates.own_attention_backward,
                         &rates.softmax_forward,
                         &rates.softmax_backward,
                         &rates.device_bandwidth,
                         &rates.h2d,
                         &rates.d2h,
                         &rates.link,
                         &rates.network,
                         &rates.op_seconds,
                         &rates.collective_seconds,
                         &rates.network_seconds,
                         &pace.compute_beside_copy,
                         &pace.compute_beside_collective,
                         &pace.copy_beside_compute,
                         &pace.copy_beside_collective,
                         &pace.collective_beside_compute,
                         &pace.collective_beside_copy,
                         &pace.h2d_beside_d2h,
                         &pace.d2h_beside_h2d};
  for (KindRate& one : rates.kinds) all.push_back(&one.bytes_per_second);
  for (Rate* rate : all) {
    *rate = {rounded(rate->typical), rounded(rate->low), rounded(rate->high)};
  }
  for (std::vector<SizeShare>* shares :
       {&rates.matmul_shares, &rates.attention_shares, &rates.network_shares}) {
    for (SizeShare& one : *shares) one.share = rounded(one.share);
  }
  rates.peak_flops = rounded(rates.peak_flops);
  // Of attention without a softmax; with one it is a term of a fit.
  const Rate forward = rates.softmax_forward.typical > 0 ? Rate{} : rates.attention_forward;
  const Rate backward = rates.softmax_backward.typical > 0 ? Rate{} : rates.attention_backward;
  for (const Rate& rate : {rates.matmul, rates.grouped_matmul, forward, backward,
                           rates.own_attention_forward, rates.own_attention_backward}) {
    rates.peak_flops = std::max(rates.peak_flops, rate.typical);
  }
  return rates;
}

double share_of(const std::vector<SizeShare>& shares, std::int64_t size) {
  for (const SizeShare& of : shares) {
    if (of.size == size) return of.share;
  }
  return 1;
}

double share_of_ceiling(const BenchResult& result, const Measurement& one) {
  const double seconds = one.seconds.typical;
  if (one.flops > 0) return one.flops / seconds / result.rates.peak_flops;
  if (one.work != Work::memory) return 0;
  return static_cast<double>(one.bytes) / seconds / result.rates.device_bandwidth.typical;
}

}  // namespace fpdt
