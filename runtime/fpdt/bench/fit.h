// From measured seconds to the rates that give them back.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/cost/demand.h"
#include "fpdt/spec/cluster.h"

namespace fpdt {

// One op, or several taken together: the sum of their demands, and of their seconds in each
// measurement.
struct Timing {
  Demand asked;
  std::vector<double> seconds;  // not empty, each over 0
};

// The lower quartile of repeated times, since disturbances only add time, with the least and the
// most as its range.
Rate spread(std::vector<double> seconds);
// `amount` over them.
Rate speed(double amount, const std::vector<double>& seconds);

// A rate and what share of it ops of each size reach.
struct Shared {
  Rate rate;
  std::vector<SizeShare> shares;
};

// Products of one size after the other, sizes ascending: flops over seconds in sum, of which the
// largest is the rate. Its range is that of all products of that size.
Shared fit_products(const std::vector<std::vector<Timing>>& sizes);

// Tiles: seconds = (flops / rate + pairs / softmax) / share. `narrow` and `wide` are full tiles of
// the same pairs with few and many flops; `sizes` ascend. Rates are those of the fastest size.
struct Tiles {
  Rate rate;
  Rate softmax;  // 0 where the flops explain everything
  std::vector<SizeShare> shares;
};
Tiles fit_tiles(const Timing& narrow, const Timing& wide, const std::vector<Timing>& sizes);

// The pace of an op that takes `alone` by itself and `beside` with company: at most 1.
Rate fit_pace(const std::vector<double>& alone, const std::vector<double>& beside);

// Every rate to four digits, more than their ranges justify.
Rates rounded(Rates rates);

}  // namespace fpdt
