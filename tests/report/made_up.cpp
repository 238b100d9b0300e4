// A list scheduler in thirty lines, with rates that belong to no machine.
#include "made_up.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "fpdt/plan/lower.h"

namespace fpdt::test {
namespace {

double attention(const AttentionForward& a) {
  return (a.q_first == a.k_first ? 2.0 : 4.0) * static_cast<double>(a.q_rows * a.k_rows) *
         static_cast<double>(a.heads * a.head_dim);
}
double attention(const AttentionBackward& a) {
  return (a.q_first == a.k_first ? 5.0 : 10.0) * static_cast<double>(a.q_rows * a.k_rows) *
         static_cast<double>(a.heads * a.head_dim);
}

double flops(const Body& body) {
  if (const auto* forward = std::get_if<AttentionForward>(&body)) return attention(*forward);
  if (const auto* backward = std::get_if<AttentionBackward>(&body)) return attention(*backward);
  if (const auto* matmul = std::get_if<Matmul>(&body)) {
    return 2.0 * static_cast<double>(matmul->m * matmul->n) * static_cast<double>(matmul->k);
  }
  return 0;
}

std::int64_t nanoseconds(const Schedule& schedule, const PlainOp& op) {
  double bytes = 0;
  for (const PlainUse& use : op.uses) {
    bytes += static_cast<double>(use.rows * schedule.buffers[index(use.buffer)].row_bytes());
  }
  const double rate = op.op->lane.kind == LaneKind::compute ? 1.5e12 : 5e10;
  return 5000 +
         static_cast<std::int64_t>(1e9 * std::max(flops(op.op->body) / 2.2e14, bytes / rate));
}

}  // namespace

Trace made_up_trace(const Program& program, const std::vector<Call>& calls, double slower) {
  Trace trace;
  trace.source = slower > 0 ? "measured" : "simulated";
  for (const Lane& lane : program.lanes) {
    trace.lanes.push_back(fmt::format("{}.{}", word(lane.kind), lane.index));
  }
  std::vector<std::int32_t> first;
  for (const Block& block : program.schedule->blocks) {
    first.push_back(static_cast<std::int32_t>(trace.ops.size()));
    for (const Op& op : block.ops) trace.ops.push_back(block.name + "." + op.name);
  }
  std::vector<std::vector<std::int64_t>> ends(program.lanes.size());
  Expansion expansion(program);
  std::int32_t number = 0;
  for (const Call& call : calls) {
    expansion.begin(call);
    std::int32_t name = first[index(call.block)];
    for (const PlainOp& op : program.blocks[index(call.block)].ops) {
      std::vector<std::int64_t>& lane = ends[index(op.lane)];
      std::int64_t begin = lane.empty() ? 0 : lane.back();
      for (const After& after : op.after) {
        const LanePosition position = expansion.position(after);
        if (position < 0) continue;
        const std::int32_t other = program.blocks[index(after.block)].ops[index(after.op)].lane;
        begin = std::max(begin, ends[index(other)][index(position)]);
      }
      const double stretch = 1 + slower * (0.5 + 0.4 * op.lane + 0.01 * (name % 7));
      const auto taken = static_cast<std::int64_t>(
          stretch * static_cast<double>(nanoseconds(*program.schedule, op)));
      lane.push_back(begin + taken);
      trace.spans.push_back({name++, op.lane, number, begin, begin + taken});
    }
    ++number;
  }
  return trace;
}

Trace cut(const Trace& trace, std::int32_t first, std::int32_t last) {
  Trace part = trace;
  part.spans.clear();
  for (const Span& span : trace.spans) {
    if (span.call >= first && span.call < last) part.spans.push_back(span);
  }
  return part;
}

std::vector<Trace> ranks_of(const Trace& trace, std::int64_t count, std::int64_t apart) {
  constexpr std::int64_t kStart = 1'000'000'000;
  std::vector<Trace> ranks(index(count), trace);
  for (std::int64_t rank = 0; rank < count; ++rank) {
    ranks[index(rank)].rank = rank;
    ranks[index(rank)].start = kStart + rank * apart;
  }
  return ranks;
}

Schedule small_schedule(std::int64_t chunks, std::int64_t segment, bool on_host) {
  Problem problem;
  problem.model.name = "tiny";
  problem.model.layers = 2;
  problem.model.hidden = 32;
  problem.model.heads = 4;
  problem.model.kv_heads = 2;
  problem.model.head_dim = 8;
  problem.model.feed_forward = 48;
  problem.model.vocabulary = 64;
  problem.model.kinds.front().rotary.fraction = 1;
  problem.model.source = "test";
  problem.cluster.name = "test";
  problem.cluster.devices_per_node = 2;
  problem.cluster.device_memory = problem.cluster.host_memory = Bytes{1 << 30};
  problem.cluster.source = "test";
  problem.device_budget = problem.host_budget = Bytes{1 << 30};
  problem.seq_len = 64 * chunks;
  Strategy strategy = default_strategy(problem);
  strategy.storage = Storage::f32;
  strategy.tiles.chunk_tokens = 64;
  strategy.segments = {segment};
  if (on_host) strategy.keep = kStateHomes.back();
  return lower(problem, strategy).schedule.schedule();
}

MadeUp::MadeUp(std::int64_t chunks, std::int64_t segment, bool on_host)
    : schedule(small_schedule(chunks, segment, on_host)),
      program(schedule),
      trace(made_up_trace(program, schedule.train)),
      measured(made_up_trace(program, schedule.train, 0.2)) {}

std::vector<TracedRun> runs_of(const MadeUp& made, const std::vector<Trace>& ranks) {
  std::vector<TracedRun> runs;
  for (const Trace& rank : ranks) runs.push_back({&made.program, &made.schedule.train, &rank});
  put_on_one_clock(runs);
  return runs;
}

}  // namespace fpdt::test
