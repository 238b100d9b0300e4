// The nearest questions and strategies that fit when the question itself does not, and fewer
// devices where they are faster.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fpdt/plan/search/search.h"

namespace fpdt {

// A value of a question with which it would fit.
struct Nearest {
  enum class What : std::uint8_t { seq_len, gpus, host_memory, device_memory };
  What what = What::seq_len;
  std::int64_t value = 0;  // tokens; devices; bytes of a node's host, or of a device
  std::int64_t nodes = 0;  // of `gpus`
};

// A shorter sequence, more devices, more host memory and more memory of each device, as far as each
// helps. Bytes are rounded up to an eighth of their unit. `machine` may be larger than the
// problem's.
std::vector<Nearest> nearest_fits(const Problem& problem, const Pins& pins,
                                  const ClusterSpec& machine, const OnProgress& progress = {});

// Fewer devices that take less time for a step of the same sequences, the others idle: where a step
// is short, ranks wait for each other. `found` is the answer for all of them.
struct Fewer {
  std::int64_t devices = 0, nodes = 0;
  double step_seconds = 0;
};
std::optional<Fewer> faster_on_fewer(const Problem& problem, const Pins& pins,
                                     const SearchResult& found);

// A strategy, what it changes, and what it needs as placed.
struct SmallerStrategy {
  Change change;  // "chunk_tokens: 64 and everything spilled"
  Usage usage;
};
// The nearest that needs less of the device than the given one and fits.
std::optional<SmallerStrategy> nearest_strategy(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
