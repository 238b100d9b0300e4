// The states of the closest strategy, its needs, and what needs less.
#include "plan/shortage.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/spec/attention_kernels.h"

#include "plan/figures.h"

namespace fpdt {
namespace {

// The states that the closest strategy keeps at any sequence length: the rank's shards.
struct ModelStates {
  PeakBytes short_of;                      // in the memory that is short: of a device, or of a node
  Bytes gradients, optimizer;              // in any memory
  Bytes moments;                           // of these, the two moments
  MemorySpace home = MemorySpace::device;  // of the optimizer states
};

ModelStates states_of(const Answer& answer) {
  ModelStates states{};
  const Shortage& shortage = *answer.search.shortage;
  const bool device = shortage.binding == Binding::device;
  const std::int64_t sharers = device ? 1 : answer.problem.cluster.devices_per_node;
  const std::vector<LibraryTiles> library = library_tiles(answer.problem, shortage.closest);
  for (const Buffer& buffer : declared_buffers(answer.problem, shortage.closest, library)) {
    if (buffer.role != Role::state) continue;
    const Bytes bytes = buffer.bytes();
    const Bytes there = device == (buffer.space == MemorySpace::device) ? sharers * bytes : Bytes{};
    if (buffer.category == Category::weights) states.short_of.parameters += there;
    if (buffer.category == Category::gradients) {
      states.gradients += bytes;
      states.short_of.gradients += there;
    }
    if (buffer.category != Category::optimizer) continue;
    states.optimizer += bytes;
    states.short_of.optimizer += there;
    if (buffer.name.starts_with("moment")) states.moments += bytes;
    states.home = buffer.space;
  }
  return states;
}

// Empty unless states are at least half of what a memory lacks room for: then shorter sequences and
// smaller chunks do not help.
std::string states_line(const Shortage& shortage, const PeakBytes& states) {
  const Bytes sum = states.parameters + states.gradients + states.optimizer;
  if (2 * sum < shortage.need) return "";
  std::string parts;
  for (const auto& [name, bytes] :
       {std::pair("parameters", states.parameters), std::pair("gradients", states.gradients),
        std::pair("optimizer states", states.optimizer)}) {
    if (bytes.value == 0) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  return wrapped("", fmt::format("{} of it are states of the model at any sequence length: {}",
                                 format_bytes(sum), parts));
}

// The bytes that moments of 8 bits save against moments of 32 bits.
Bytes saved_by_8_bits(const ModelStates& states) { return Bytes{states.moments.value / 4 * 3}; }

// A size as a flag takes it: "4.25GiB".
std::string size_flag(Bytes bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::int64_t unit = 1;
  std::size_t name = 0;
  for (; name + 1 < kUnits.size() && bytes.value / unit >= 1024; ++name) unit *= 1024;
  return fmt::format("{}{}", static_cast<double>(bytes.value) / static_cast<double>(unit),
                     kUnits[name]);
}

std::string place_text(MemorySpace space) {
  return space == MemorySpace::device ? "the device" : "the host";
}

// Levers that people know and the search does not have, as such.
std::string others_line(const ModelStates& states) {
  return wrapped(
      "not here",
      fmt::format("LoRA, which has nearly none of a rank's {} of gradients and {} of optimizer "
                  "states on {}; moments of 8 bits, which take {} less there",
                  format_bytes(states.gradients), format_bytes(states.optimizer),
                  place_text(states.home), format_bytes(saved_by_8_bits(states))));
}

// "1.5M tokens on the same machine", and the flag that asks for it: "--seq-len 1536K"; empty where
// none can.
struct NearestText {
  std::string what, flag;
};
NearestText text_of(const Problem& problem, const Nearest& nearest) {
  const Bytes bytes{nearest.value};
  switch (nearest.what) {
    case Nearest::What::seq_len:
      return {fmt::format("{} tokens on the same machine", format_tokens(nearest.value)),
              fmt::format("--seq-len {}", format_tokens(nearest.value))};
    case Nearest::What::gpus:
      return {fmt::format("{} GPUs ({} {})", nearest.value, nearest.nodes,
                          nearest.nodes == 1 ? "node" : "nodes"),
              fmt::format("--gpus {}", nearest.value)};
    case Nearest::What::host_memory:
      return {fmt::format("{} of host memory per node", format_bytes(bytes)),
              fmt::format("--host-budget {}", size_flag(bytes))};
    case Nearest::What::device_memory:
      return {fmt::format("{} of memory per device", format_bytes(bytes)),
              bytes <= problem.cluster.device_memory
                  ? fmt::format("--device-budget {}", size_flag(bytes))
                  : ""};
  }
  return {};
}

// What no strategy needs less of.
std::string bound_text(const Bound& bound) {
  const auto memory = [](const Bound::Memory& one) {
    return fmt::format("{} of {}", format_bytes(one.need), format_bytes(one.have));
  };
  return wrapped("bound",
                 fmt::format("every strategy needs at least {} per GPU, and {} on all GPUs "
                             "and hosts{}",
                             memory(bound.device), memory(bound.all),
                             bound.none_fits() ? "" : ": one that fits may exist"));
}

Json bound_json(const Bound& bound) {
  const auto memory = [](const Bound::Memory& one) -> Json {
    return {{"need_bytes", one.need.value}, {"have_bytes", one.have.value}};
  };
  return {{"device", memory(bound.device)}, {"all", memory(bound.all)}};
}

Json others_json(const ModelStates& states) {
  return {{{"what", "LoRA"}, {"saves_at_most_bytes", (states.gradients + states.optimizer).value}},
          {{"what", "moments of 8 bits"}, {"saves_at_most_bytes", saved_by_8_bits(states).value}}};
}

}  // namespace

bool proven_infeasible(const Answer& answer) {
  return answer.pins.strategy.has_value() || answer.search.bound.none_fits();
}

std::string shortage_text(const Answer& answer) {
  const Shortage& shortage = *answer.search.shortage;
  const ModelStates states = states_of(answer);
  const std::vector<Need> all = needs(answer.problem, shortage);
  std::string text =
      line("short of", fmt::format("{} memory: {}", word(all.front().memory),
                                   need_text(answer.pins, all.front().need, all.front().have)));
  text += states_line(shortage, states.short_of);
  for (auto other = all.begin() + 1; other != all.end(); ++other) {
    text += line(
        "", fmt::format("{} memory: that strategy needs {}, and there is {}", word(other->memory),
                        format_bytes(other->need), format_bytes(other->have)));
  }
  if (!answer.pins.strategy) text += bound_text(answer.search.bound);
  for (const Nearest& nearest : answer.nearest) {
    const auto [what, flag] = text_of(answer.problem, nearest);
    text += line(&nearest == &answer.nearest.front() ? "would fit" : "",
                 flag.empty() ? what : fmt::format("{:<42} {}", what, flag));
  }
  if (answer.nearest.empty()) text += line("would fit", "nothing near");
  return text + others_line(states);
}

Json shortage_json(const Answer& answer) {
  const Shortage& shortage = *answer.search.shortage;
  const ModelStates states = states_of(answer);
  Json needed = Json::array();
  for (const Need& one : needs(answer.problem, shortage)) {
    needed.push_back({{"memory", word(one.memory)},
                      {"need_bytes", one.need.value},
                      {"have_bytes", one.have.value}});
  }
  Json nearest = Json::array();
  for (const Nearest& one : answer.nearest) {
    const auto [what, flag] = text_of(answer.problem, one);
    nearest.push_back({{"what", what}, {"flag", flag}});
  }
  const PeakBytes& there = states.short_of;
  const Json kept{{"parameters", there.parameters.value},
                  {"gradients", there.gradients.value},
                  {"optimizer", there.optimizer.value}};
  return {{"proven", proven_infeasible(answer)},
          {"bound", bound_json(answer.search.bound)},
          {"needs", needed},
          {"state_bytes", kept},
          {"nearest", nearest},
          {"not_offered", others_json(states)}};
}

}  // namespace fpdt
