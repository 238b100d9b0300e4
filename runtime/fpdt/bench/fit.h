// Turns measured seconds into the rates that reproduce them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "fpdt/cost/demand.h"
#include "fpdt/spec/cluster.h"

namespace fpdt {

// One op, or several together: the sum of their demands, and the sum of their seconds in each
// measurement.
struct Timing {
  Demand asked;
  std::vector<double> seconds;  // not empty; each is over 0
};

// The lower quartile of repeated times, because disturbances only add time. The least and the most
// give its range.
Rate spread(std::vector<double> seconds);
// `amount` divided by the seconds.
Rate speed(double amount, const std::vector<double>& seconds);

// A rate, and the share of it that ops of each size reach.
struct Shared {
  Rate rate;
  std::vector<SizeShare> shares;
};

// `sizes` holds products, one entry per size, ascending. The speed of a size is its total flops
// over its total seconds. The fastest is the rate; its range is that of all products of that size.
Shared fit_products(const std::vector<std::vector<Timing>>& sizes);
// The same of speeds that were measured in each size.
Shared fit_sizes(const std::map<std::int64_t, std::vector<double>>& speeds);

// Tiles obey seconds = (flops / rate + pairs / softmax) / share. `narrow` and `wide` are full tiles
// with the same pairs, and few or many flops. `sizes` ascend. The rates are those of the fastest
// size.
struct TileFit {
  Rate rate;
  Rate softmax;  // 0 if the flops explain all seconds
  std::vector<SizeShare> shares;
};
TileFit fit_tiles(const Timing& narrow, const Timing& wide, const std::vector<Timing>& sizes);

// The pace of an op that takes `alone` by itself and `beside` with company; at most 1.
Rate fit_pace(const std::vector<double>& alone, const std::vector<double>& beside);

// Rounds every rate to four digits, more than its range justifies.
Rates rounded(Rates rates);

// The share of a size among measured ones; 1 if it was not measured.
double share_of(const std::vector<SizeShare>& shares, std::int64_t size);

}  // namespace fpdt
