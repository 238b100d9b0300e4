// A walk that remembers which op wrote each slot of the host, and which fetched slots of the device
// still wait for their first use.
#include "fpdt/report/flows.h"

#include <utility>
#include <variant>

#include "fpdt/report/walk.h"

namespace fpdt {
namespace {

// The last write of a slot: its version, and the op.
struct Written {
  std::int64_t version = -1;
  std::int64_t spill = -1;  // the op that spilled the value, if any
  std::int64_t fetch = -1;  // on the device: the op that fetched the value, until its first use
};

class FlowSlots {
 public:
  explicit FlowSlots(const Schedule& schedule)
      : schedule_(schedule), slots_(schedule.buffers.size()) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].resize(index(schedule.buffers[i].slots));
    }
  }
  Written& at(const PlainUse& use, std::int64_t version) {
    return slots_[index(use.buffer)][index(version % buffer(use).slots)];
  }
  [[nodiscard]] const Buffer& buffer(const PlainUse& use) const {
    return schedule_.buffers[index(use.buffer)];
  }
  [[nodiscard]] bool on_device(const PlainUse& use) const {
    return buffer(use).space == MemorySpace::device;
  }

 private:
  const Schedule& schedule_;
  std::vector<std::vector<Written>> slots_;
};

// The source and target of an op that copies between spaces; null for other ops.
std::pair<const PlainUse*, const PlainUse*> transfer(const PlainOp& op, const FlowSlots& slots) {
  if (!std::holds_alternative<Copy>(op.op->body)) return {};
  const PlainUse* source = nullptr;
  const PlainUse* target = nullptr;
  for (const PlainUse& use : op.uses) {
    (use.access == Access::read ? source : target) = &use;
  }
  if (source == nullptr || target == nullptr) return {};
  if (slots.on_device(*source) == slots.on_device(*target)) return {};
  return {source, target};
}

}  // namespace

std::vector<Flow> find_flows(const TracedRun& run) {
  FlowSlots slots(*run.program->schedule);
  std::vector<Flow> flows;
  walk(run, [&](const OpSpan& one, const Expansion& expansion) {
    for (const PlainUse& use : one.plain->uses) {
      Written& written = slots.at(use, expansion.version(use));
      const bool first_use = written.version == expansion.version(use) && written.fetch >= 0 &&
                             use.access != Access::write && slots.on_device(use);
      if (!first_use) continue;
      if (one.span >= 0) flows.push_back({written.spill, written.fetch, one.span});
      written.fetch = -1;
    }
    const auto [source, target] = transfer(*one.plain, slots);
    if (source == nullptr) return;
    Written& to = slots.at(*target, expansion.version(*target));
    const bool fetch = slots.on_device(*target);
    to = {expansion.version(*target), fetch ? -1 : one.span, -1};
    if (!fetch || one.span < 0) return;
    const Written& from = slots.at(*source, expansion.version(*source));
    if (from.version != expansion.version(*source) || from.spill < 0) return;
    to.spill = from.spill;
    to.fetch = one.span;
  });
  return flows;
}

}  // namespace fpdt
