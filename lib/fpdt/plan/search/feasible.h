// Whether anything fits, by bytes alone, and what is short when nothing does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "fpdt/plan/search/pins.h"

namespace fpdt {

enum class Binding : std::uint8_t { device, host, compute, copies, collectives };
std::string_view word(Binding binding);

// A budget that is too small.
struct Need {
  Binding memory = Binding::device;  // device or host
  Bytes need;
  Bytes have;
};

// Why nothing was found that fits: the space that all candidates exceed, and the least bytes that
// one of them needs there. That is no bound: others are not tried.
struct Shortage {
  Binding binding = Binding::device;
  Bytes need;
  Bytes have;
  Strategy closest;  // it needs those bytes
};
Shortage shortage(const Problem& problem, const Pins& pins);
// Every budget that the closest strategy exceeds, the binding one first.
std::vector<Need> needs(const Problem& problem, const Shortage& shortage);

// The first strategy found that fits, by bytes alone, among those that are worth asking; empty when
// there is none.
std::optional<Strategy> any_fit(const Problem& problem, const Pins& pins,
                                const std::function<bool(const Strategy&)>& worth = {});

// The strategy with keys, values and their gradients on the device, in one tile over all keys.
Strategy resident_keys(const Problem& problem, Strategy strategy);
// The strategy with layer gradients in the slots of inputs, and without stored queries.
Strategy roomy(const Problem& problem, Strategy strategy);

}  // namespace fpdt
