// Sums the collectives of a program.
#include "fpdt/schedule/traffic.h"

#include <type_traits>
#include <variant>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// The bytes that a rank sends to each of its receivers in an op; 0 if the op is no collective.
std::int64_t sent_by(const Schedule& schedule, const Op& op, std::int64_t members,
                     const std::function<bool(const Buffer&)>& counts) {
  return std::visit(
      [&](const auto& body) -> std::int64_t {
        using Collective = std::decay_t<decltype(body)>;
        if constexpr (IsCollective<Collective>) {
          std::int64_t bytes = 0;
          for (const Operand& operand : body.send) {
            const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(operand.buffer)];
            if (counts && !counts(buffer)) continue;
            const std::int64_t rows = operand.rows < 0 ? buffer.rows() : operand.rows;
            bytes = add(bytes, mul(rows, buffer.row_bytes()));
          }
          return bytes_to_each<Collective>(members, bytes);
        } else {
          return 0;
        }
      },
      op.body);
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  node = add(node, other.node);
  network = add(network, other.network);
  return *this;
}

Traffic to_others(const Group& group, std::int64_t rank, std::int64_t bytes,
                  std::int64_t devices_per_node, std::int64_t hop) {
  Traffic sent;
  const std::int64_t first = group.first.at(rank);
  for (std::int64_t i = 0; i < group.size; ++i) {
    const std::int64_t peer = first + i * group.stride;
    if (peer == rank) continue;
    if (hop > 0 && ((rank - first) / group.stride + hop) % group.size != i) continue;
    const bool near = peer / devices_per_node == rank / devices_per_node;
    std::int64_t& sum = near ? sent.node : sent.network;
    sum = add(sum, bytes);
  }
  return sent;
}

Traffic traffic(const Schedule& schedule, const std::vector<Call>& calls, std::int64_t rank,
                std::int64_t devices_per_node, const std::function<bool(const Buffer&)>& counts) {
  std::vector<std::int64_t> times(schedule.blocks.size());
  for (const Call& call : calls) ++times[static_cast<std::size_t>(call.block)];
  Traffic total;
  for (std::size_t b = 0; b < times.size(); ++b) {
    for (const Op& op : schedule.blocks[b].ops) {
      if (!is_collective(op.body)) continue;
      const Group& group = group_of(schedule, op.body);
      const std::int64_t bytes = mul(times[b], sent_by(schedule, op, group.size, counts));
      total += to_others(group, rank, bytes, devices_per_node, hop_of(op.body));
    }
  }
  return total;
}

}  // namespace fpdt
