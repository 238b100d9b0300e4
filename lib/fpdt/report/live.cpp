// Finds lives by a walk over the step, and totals by a sweep over their ends.
#include "fpdt/report/live.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fpdt/report/walk.h"

namespace fpdt {
namespace {

const Buffer& buffer_of(const Live& live, BufferIndex buffer) {
  return live.schedule->buffers[index(buffer)];
}

// Tracks the version that each slot holds.
class LiveSlots {
 public:
  explicit LiveSlots(Live& live) : live_(live) {
    for (const Buffer& buffer : live.schedule->buffers) {
      first_.push_back(held_.size());
      held_.resize(held_.size() + index(buffer.slots), -1);
    }
  }

  void touch(BufferIndex buffer, std::int64_t version, std::int64_t slots, std::int64_t begin,
             std::int64_t end, const OpPlace& place) {
    std::int32_t& held = held_[first_[index(buffer)] + index(version % slots)];
    if (held < 0 || live_.lives[index(held)].version != version) {
      // An update in place reads one version and writes the next into the same slot.
      if (held >= 0) {
        Life& before = live_.lives[index(held)];
        before.end = std::max(before.begin, std::min(before.end, begin));
      }
      held = static_cast<std::int32_t>(live_.lives.size());
      live_.lives.push_back({buffer, version, begin, end, place, place});
    }
    Life& life = live_.lives[index(held)];
    life.begin = std::min(life.begin, begin);
    life.end = std::max(life.end, end);
    life.last = place;
  }

 private:
  Live& live_;
  std::vector<std::size_t> first_;  // slot 0 of each buffer in held_
  std::vector<std::int32_t> held_;  // the life in each slot; -1: none yet
};

void sort_changes(Live& live) {
  for (std::size_t i = 0; i < live.lives.size(); ++i) {
    const Life& life = live.lives[i];
    auto& changes = live.changes[index(static_cast<int>(buffer_of(live, life.buffer).space))];
    changes.push_back({life.begin, static_cast<std::int32_t>(i), true});
    changes.push_back({life.end, static_cast<std::int32_t>(i), false});
  }
  for (std::vector<LiveChange>& changes : live.changes) {
    std::sort(changes.begin(), changes.end(), [](const LiveChange& a, const LiveChange& b) {
      if (a.time != b.time) return a.time < b.time;
      return a.begins != b.begins ? b.begins : a.life < b.life;
    });
  }
}

// Replays the changes of a space: calls see(step) for every non-empty stretch of equal bytes that
// begins before `until`, in order of time.
template <class See>
void replay(const Live& live, MemorySpace space, std::int64_t until, See&& see) {
  struct Slot {
    std::int64_t bytes;
    std::size_t part;
    int tint;
  };
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < live.tint.size(); ++i) {
    const Buffer& buffer = live.schedule->buffers[i];
    slots.push_back(
        {buffer.slot_bytes().value, index(static_cast<int>(part_of(buffer))), live.tint[i]});
  }
  LiveStep step{
      std::numeric_limits<std::int64_t>::min(), 0, live.always[index(static_cast<int>(space))], {}};
  for (const LiveChange& change : live.changes[index(static_cast<int>(space))]) {
    if (change.time > step.begin) {
      step.end = change.time;
      see(std::as_const(step));
      step.begin = change.time;
      if (step.begin >= until) return;
    }
    const Slot& slot = slots[index(live.lives[index(change.life)].buffer)];
    const std::int64_t size = change.begins ? slot.bytes : -slot.bytes;
    step.bytes[slot.part] += size;
    if (slot.tint >= 0) step.tints[index(slot.tint)] += size;
  }
  step.end = std::numeric_limits<std::int64_t>::max();
  see(std::as_const(step));
}

// The tensor of a ring: its name without those of its layer class and home
// (plan/lowering/home.cpp).
std::string_view tensor_of(std::string_view ring) {
  for (const std::string_view home : {"_kept", "_host", "_new"}) {
    if (ring.ends_with(home)) ring.remove_suffix(home.size());
  }
  const std::size_t last = ring.find_last_not_of("0123456789");
  if (last != 0 && last + 1 < ring.size() && ring[last] == '_') ring = ring.substr(0, last);
  return ring;
}

bool is_activation(const Buffer& buffer) {
  return buffer.role == Role::temporary && part_of(buffer) == Part::activations;
}

// The tensors that are visible at the peak of a space, heaviest first.
std::vector<std::string> heaviest_activations(const Live& live, MemorySpace space) {
  constexpr std::int64_t kVisible = 100;  // that part of the peak
  const LivePeak peak = find_peak(live, space);
  std::map<std::string, std::int64_t> bytes;
  for (const LiveBuffer& one : peak.buffers) {
    const Buffer& buffer = buffer_of(live, one.buffer);
    if (is_activation(buffer)) bytes[std::string(tensor_of(buffer.name))] += one.bytes.value;
  }
  std::vector<std::pair<std::string, std::int64_t>> order(bytes.begin(), bytes.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> tensors;
  for (const auto& [tensor, sum] : order) {
    if (kVisible * sum >= peak.bytes.value) tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

std::vector<std::int32_t> first_ops(const Schedule& schedule) {
  std::vector<std::int32_t> first;
  std::int32_t count = 0;
  for (const Block& block : schedule.blocks) {
    first.push_back(count);
    count += static_cast<std::int32_t>(block.ops.size());
  }
  return first;
}

std::int64_t total(const PartBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t total(const TintBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

void put_on_one_clock(std::vector<TracedRun>& runs) {
  std::int64_t first = 0;
  for (const TracedRun& run : runs) {
    const std::int64_t start = run.trace->start;
    if (start != 0 && (first == 0 || start < first)) first = start;
  }
  for (TracedRun& run : runs) run.shift = run.trace->start == 0 ? 0 : run.trace->start - first;
}

Live find_live(const TracedRun& run) {
  Live live;
  live.schedule = run.program->schedule;
  live.tint.assign(live.schedule->buffers.size(), -1);
  for (const Buffer& buffer : live.schedule->buffers) {
    if (buffer.role == Role::temporary) continue;
    live.always[index(static_cast<int>(buffer.space))][index(static_cast<int>(part_of(buffer)))] +=
        buffer.slots * buffer.slot_bytes().value;
  }
  const std::vector<Span>& spans = run.trace->spans;
  live.begin = live.end = run.shift;
  if (!spans.empty()) live.begin = spans.front().begin + run.shift;
  for (const Span& span : spans) {
    live.begin = std::min(live.begin, span.begin + run.shift);
    live.end = std::max(live.end, span.end + run.shift);
  }
  std::int64_t now = live.begin;  // the end of the traced ops so far
  LiveSlots slots(live);
  walk(run, [&](const OpSpan& one, const Expansion& expansion) {
    std::int64_t begin = now;
    std::int64_t end = now;
    if (one.span >= 0) {
      begin = one.begin;
      end = one.end;
      now = std::max(now, end);
    }
    for (const PlainUse& use : one.plain->uses) {
      const Buffer& buffer = live.schedule->buffers[index(use.buffer)];
      if (buffer.role != Role::temporary) continue;
      slots.touch(use.buffer, expansion.version(use), buffer.slots, begin, end, {one.call, one.op});
    }
  });
  // Most values between traced calls live at one moment, and so at none.
  std::erase_if(live.lives, [](const Life& life) { return life.begin == life.end; });
  std::stable_sort(live.lives.begin(), live.lives.end(),
                   [](const Life& a, const Life& b) { return a.begin < b.begin; });
  sort_changes(live);
  return live;
}

void tint_heaviest(Live& live) {
  const std::array heaviest_of{heaviest_activations(live, MemorySpace::device),
                               heaviest_activations(live, MemorySpace::host_pinned)};
  for (std::size_t rank = 0; rank < kTints; ++rank) {
    for (const std::vector<std::string>& heaviest : heaviest_of) {
      if (rank >= heaviest.size() || live.tinted.size() == kTints) continue;
      const std::string& tensor = heaviest[rank];
      if (std::find(live.tinted.begin(), live.tinted.end(), tensor) != live.tinted.end()) continue;
      for (std::size_t i = 0; i < live.tint.size(); ++i) {
        const Buffer& buffer = live.schedule->buffers[i];
        if (is_activation(buffer) && tensor_of(buffer.name) == tensor) {
          live.tint[i] = static_cast<std::int8_t>(live.tinted.size());
        }
      }
      live.tinted.push_back(tensor);
    }
  }
}

std::vector<LiveStep> live_steps(const Live& live, MemorySpace space, std::int64_t from,
                                 std::int64_t to, std::size_t most) {
  FPDT_ASSERT(most > 0);
  std::vector<LiveStep> steps;
  // Stops adding when there are too many.
  replay(live, space, to, [&](LiveStep step) {
    step.begin = std::max(step.begin, from);
    step.end = std::min(step.end, to);
    if (step.begin < step.end && steps.size() <= most) steps.push_back(step);
  });
  if (steps.size() <= most) return steps;
  steps.clear();
  const double width = static_cast<double>(to - from) / static_cast<double>(most);
  for (std::size_t i = 0; i < most; ++i) {
    const auto at = from + static_cast<std::int64_t>(width * static_cast<double>(i));
    if (i > 0) steps.back().end = at;
    steps.push_back({at, to, {}, {}});
  }
  std::size_t first = 0;  // the first that the next stretch can touch
  replay(live, space, to, [&](const LiveStep& step) {
    const std::int64_t sum = total(step.bytes);
    while (first < most && steps[first].end <= step.begin) ++first;
    for (std::size_t i = first; i < most && steps[i].begin < step.end; ++i) {
      if (sum <= total(steps[i].bytes)) continue;
      steps[i].bytes = step.bytes;
      steps[i].tints = step.tints;
    }
  });
  return steps;
}

LivePeak find_live_at(const Live& live, MemorySpace space, std::int64_t time) {
  std::map<BufferIndex, LiveBuffer> found;
  const auto at = [&](BufferIndex buffer) -> LiveBuffer& {
    LiveBuffer& one = found[buffer];
    one.buffer = buffer;
    return one;
  };
  for (std::size_t i = 0; i < live.schedule->buffers.size(); ++i) {
    const Buffer& buffer = live.schedule->buffers[i];
    if (buffer.space != space || buffer.role == Role::temporary) continue;
    at(static_cast<BufferIndex>(i)).bytes = buffer.slots * buffer.slot_bytes();
  }
  for (std::size_t i = 0; i < live.lives.size(); ++i) {
    const Life& life = live.lives[i];
    const Buffer& buffer = buffer_of(live, life.buffer);
    if (buffer.space != space || time < life.begin || time >= life.end) continue;
    LiveBuffer& one = at(life.buffer);
    one.bytes += buffer.slot_bytes();
    one.lives.push_back(static_cast<std::int32_t>(i));
  }
  LivePeak peak;
  peak.time = time;
  for (auto& [number, one] : found) {
    peak.bytes += one.bytes;
    peak.parts[index(static_cast<int>(part_of(buffer_of(live, number))))] += one.bytes.value;
    peak.buffers.push_back(std::move(one));
  }
  std::stable_sort(peak.buffers.begin(), peak.buffers.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  return peak;
}

LivePeak find_peak(const Live& live, MemorySpace space) {
  return find_peak(live, space, live.begin, live.end);
}

LivePeak find_peak(const Live& live, MemorySpace space, std::int64_t from, std::int64_t to) {
  std::int64_t time = from;
  std::int64_t most = -1;
  replay(live, space, to, [&](const LiveStep& step) {
    const std::int64_t sum = total(step.bytes);
    if (step.end <= from || step.begin >= to || sum <= most) return;
    most = sum;
    time = std::max(step.begin, from);
  });
  return find_live_at(live, space, time);
}

std::int64_t chunk_of(const std::string& op) {
  for (std::size_t dot = op.find('.'); dot != std::string::npos; dot = op.find('.', dot + 1)) {
    const std::string part = op.substr(dot + 1, op.find('.', dot + 1) - dot - 1);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    if (number) return std::stoll(part);
  }
  return -1;
}

std::string ranges(std::string_view word, const std::set<std::int64_t>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    while (++it != numbers.end() && *it == last + 1) last = *it;
    if (!text.empty()) text += ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return fmt::format("{}{} {}", word, numbers.size() == 1 ? "" : "s", text);
}

std::string origin(const Live& live, const std::vector<Call>& calls, const LiveBuffer& buffer) {
  if (buffer.lives.empty()) return std::string(word(buffer_of(live, buffer.buffer).role));
  // Numbers in names of ops are chunks, where the tensor has chunks.
  const bool has_chunks = part_of(buffer_of(live, buffer.buffer)) == Part::activations;
  const auto has_layers = [&](std::int32_t block) {
    return std::any_of(calls.begin(), calls.end(),
                       [&](const Call& call) { return call.block == block && call.layer != 0; });
  };
  std::set<std::string> blocks;
  std::set<std::int64_t> layers;
  std::set<std::int64_t> chunks;
  for (const std::int32_t number : buffer.lives) {
    const OpPlace& first = live.lives[index(number)].first;
    const Call& call = calls[index(first.call)];
    const Block& block = live.schedule->blocks[index(call.block)];
    blocks.insert(block.name);
    if (has_layers(call.block)) layers.insert(call.layer);
    const std::int64_t chunk = has_chunks ? chunk_of(block.ops[index(first.op)].name) : -1;
    if (chunk >= 0) chunks.insert(chunk);
  }
  std::string text;
  for (const std::string& block : blocks) text += (text.empty() ? "" : ", ") + block;
  if (!layers.empty()) text += ", " + ranges("layer", layers);
  return chunks.empty() ? text : text + ", " + ranges("chunk", chunks);
}

std::string op_text(const Schedule& schedule, const std::vector<Call>& calls,
                    const OpPlace& place) {
  const Call& call = calls[index(place.call)];
  const Block& block = schedule.blocks[index(call.block)];
  return fmt::format("{}.{}, layer {}", block.name, block.ops[index(place.op)].name, call.layer);
}

}  // namespace fpdt
