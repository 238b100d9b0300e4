// The ops of a step in issue order, each with its span. Internal to report.
//
// A trace holds the spans of all calls or of some. The spans of a call are complete and in issue
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/base/assert.h"
#include "fpdt/report/live.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// The index in Trace::ops of the first op of each block.
std::vector<std::int32_t> first_ops(const Schedule& schedule);

// One op of one call.
struct OpSpan {
  std::int32_t call = 0;  // its number within the step
  std::int32_t op = 0;    // within its block
  const PlainOp* plain = nullptr;
  std::int64_t span = -1;  // index into Trace::spans; -1: not in the trace
  std::int64_t begin = 0;  // of the span, shifted as the run is
  std::int64_t end = 0;
};

// Calls see(one, expansion) for every op of every call.
template <class See>
void walk(const TracedRun& run, See&& see) {
  const Program& program = *run.program;
  const std::vector<std::int32_t> first = first_ops(*program.schedule);
  const std::vector<Span>& spans = run.trace->spans;
  Expansion expansion(program);
  std::size_t next = 0;
  for (std::size_t number = 0; number < run.calls->size(); ++number) {
    const Call& call = (*run.calls)[number];
    expansion.begin(call);
    const std::vector<PlainOp>& ops = program.blocks[static_cast<std::size_t>(call.block)].ops;
    const bool traced =
        next < spans.size() && spans[next].call == static_cast<std::int32_t>(number);
    OpSpan one{static_cast<std::int32_t>(number)};
    for (const PlainOp& op : ops) {
      if (traced) {
        one.span = static_cast<std::int64_t>(next);
        one.begin = spans[next].begin + run.shift;
        one.end = spans[next].end + run.shift;
        FPDT_ASSERT(next < spans.size() && spans[next].call == one.call &&
                    spans[next].op == first[static_cast<std::size_t>(call.block)] + one.op);
        ++next;
      }
      one.plain = &op;
      see(one, expansion);
      ++one.op;
    }
  }
  FPDT_ASSERT(next == spans.size());
}

}  // namespace fpdt
