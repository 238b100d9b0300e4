// The work of an op, from which pictures and exports compute its rate. Internal to report.
#pragma once

#include <cstdint>

#include "fpdt/cost/demand.h"

namespace fpdt {

struct Amount {
  double flops = 0;  // executed under the causal mask
  // The bytes of device memory, or of the transfer; for a collective, the bytes that one rank
  // sends.
  std::int64_t bytes = 0;
  bool operator==(const Amount&) const = default;
};

inline Amount amount_of(const Demand& asked) {
  const bool sends = asked.work == Work::collective;
  return {asked.flops, sends ? asked.sent : asked.bytes + asked.partial};
}

}  // namespace fpdt
