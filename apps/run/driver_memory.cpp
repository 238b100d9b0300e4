// A sum, four numbers and a verdict for each GPU.
#include "run/driver_memory.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/collective.h"

namespace fpdt {
namespace {

constexpr std::int64_t kGibi = 1 << 30;

Bytes predicted(const DriverMemory& memory) { return memory.arenas + memory.outside; }

Bytes tolerance(const DriverMemory& memory) {
  if (memory.arenas <= Bytes{32 * kGibi}) return Bytes{kGibi / 4};
  return Bytes{predicted(memory).value / 100};
}

Bytes growth(const DriverMemory& memory) { return memory.highest - memory.warm; }

// Signed: below 0 when more was taken than predicted.
Bytes unused(const DriverMemory& memory) { return predicted(memory) - memory.highest; }

// The deviation of the total from the prediction; "" if there is none, or nothing was predicted.
std::string verdict(const DriverMemory& memory) {
  if (memory.outside.value == 0) return "";
  if (unused(memory).value < 0) {
    return fmt::format("{} over the prediction", format_bytes(Bytes{-unused(memory).value}));
  }
  if (unused(memory) > tolerance(memory)) {
    return fmt::format("{} under the prediction", format_bytes(unused(memory)));
  }
  return "";
}

}  // namespace

void DriverMemory::note_step(Bytes used) {
  if (warm.value == 0) warm = used;
  highest = std::max(highest, used);
}

void note_step(std::span<DriverMemory> gpus, std::span<const Bytes> used) {
  FPDT_ASSERT(gpus.size() == used.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].note_step(used[i]);
}

Bytes outside_on_one_gpu(const OutsideArena& outside, std::int64_t ranks) {
  if (outside.context.value == 0) return {};
  return outside.context + ranks * (outside.libraries + outside.workspace);
}

Bytes outside_of_process(const OutsideArena& outside, const Schedule& schedule, std::int64_t rank,
                         std::span<const std::int64_t> nodes) {
  if (outside.context.value == 0) return {};
  const auto node = [&](std::int64_t of) { return nodes[static_cast<std::size_t>(of)]; };
  const auto crosses = [&](const Group& group) {
    for (std::int64_t of = 0; of < std::ssize(nodes); ++of) {
      if (node(of) != node(group.first.at(of))) return true;
    }
    return false;
  };
  std::set<std::tuple<LaneKind, std::int32_t, std::int64_t>> peers;
  std::set<std::pair<LaneKind, std::int32_t>> lanes_across;
  std::set<std::tuple<LaneKind, std::int32_t, std::string>> gathers_across;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (!is_collective(op.body)) continue;
      const Group& group = group_of(schedule, op.body);
      const Membership members = membership(group, rank);
      for (std::int64_t i = 0; i < members.size; ++i) {
        const std::int64_t peer = members.rank_of(i);
        if (peer != rank && node(peer) == node(rank)) {
          peers.emplace(op.lane.kind, op.lane.index, peer);
        }
      }
      if (members.size == 1 || !crosses(group)) continue;
      lanes_across.emplace(op.lane.kind, op.lane.index);
      if (std::holds_alternative<AllGather>(op.body)) {
        gathers_across.emplace(op.lane.kind, op.lane.index, group.name);
      }
    }
  }
  const std::int64_t here = std::count(nodes.begin(), nodes.end(), node(rank));
  return outside_on_one_gpu(outside, 1) +
         outside.channels(std::ssize(peers),
                          std::ssize(lanes_across) + std::ssize(gathers_across)) +
         outside.message_channel(here - 1, here < std::ssize(nodes));
}

std::vector<std::string> deviations(const DriverMemory& memory) {
  std::vector<std::string> found;
  if (growth(memory).value > 0) {
    found.push_back(
        fmt::format("{} of device memory was taken after warm-up", format_bytes(growth(memory))));
  }
  return found;
}

bool agrees(const DriverMemory& memory) {
  return memory.warm.value == 0 || (deviations(memory).empty() && verdict(memory).empty());
}

std::string table(const DriverMemory& memory) {
  std::string text = fmt::format(
      "device memory in use, by the driver: {} before the ranks, {} after the first step, {} at "
      "most\n",
      format_bytes(memory.before), format_bytes(memory.warm), format_bytes(memory.highest));
  if (memory.outside.value == 0) {
    text += fmt::format(
        "  arenas {}; the cluster file does not say what lies outside them: fpdt-run bench "
        "--backend cuda measures it\n",
        format_bytes(memory.arenas));
  } else {
    const std::string wrong = verdict(memory);
    text += fmt::format(
        "  predicted {}: arenas {}, outside them {}; {}\n", format_bytes(predicted(memory)),
        format_bytes(memory.arenas), format_bytes(memory.outside),
        wrong.empty() ? fmt::format("{} of it unused", format_bytes(unused(memory)))
                      : wrong + ", an estimate that fpdt-run bench --backend cuda replaces");
  }
  return text +
         fmt::format("  device memory taken after warm-up: {}\n", format_bytes(growth(memory)));
}

Json json(const DriverMemory& memory) {
  const bool known = memory.outside.value > 0;
  return {{"gpu", memory.gpu},
          {"predicted", known ? Json(predicted(memory).value) : Json()},
          {"arenas", memory.arenas.value},
          {"outside", known ? Json(memory.outside.value) : Json()},
          {"before", memory.before.value},
          {"after_first_step", memory.warm.value},
          {"highest", memory.highest.value},
          {"taken_after_warm_up", growth(memory).value},
          {"as_predicted", agrees(memory)}};
}

std::vector<std::string> deviations(std::span<const DriverMemory> gpus) {
  if (gpus.size() == 1) return deviations(gpus.front());
  std::vector<std::string> found;
  for (const DriverMemory& memory : gpus) {
    for (const std::string& one : deviations(memory)) {
      found.push_back(fmt::format("GPU {}: {}", memory.gpu, one));
    }
  }
  return found;
}

std::string table(std::span<const DriverMemory> gpus) {
  if (gpus.size() == 1) return table(gpus.front());
  std::string text;
  for (const DriverMemory& memory : gpus) {
    text += fmt::format("GPU {}: {}", memory.gpu, table(memory));
  }
  return text;
}

Json json(std::span<const DriverMemory> gpus) {
  if (gpus.empty()) return {};
  if (gpus.size() == 1) return json(gpus.front());
  Json list = Json::array();
  for (const DriverMemory& memory : gpus) list.push_back(json(memory));
  const bool all = std::all_of(gpus.begin(), gpus.end(),
                               [](const DriverMemory& memory) { return agrees(memory); });
  return {{"gpus", list}, {"as_predicted", all}};
}

}  // namespace fpdt
