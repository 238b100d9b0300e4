// Sums bytes over the buffers of blocks and of calls in flight.
#include "fpdt/plan/bytes.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/plan/phases.h"
#include "fpdt/plan/thumbnail.h"

namespace fpdt {
namespace {

// Arenas are mapped in whole pages of the operating system.
constexpr std::int64_t kPageBytes = 4096;
constexpr std::size_t kRemembered = 16384;

// Calls found(block, buffer) with each buffer that ops of a block access, once, by their numbers.
template <class Found>
void for_each_buffer(const Program& program, Found found) {
  for (std::size_t block = 0; block < program.blocks.size(); ++block) {
    std::set<BufferIndex> touched;
    for (const PlainUse& use : program.blocks[block].uses) touched.insert(use.buffer);
    for (const BufferIndex buffer : touched) found(block, buffer);
  }
}

// "backward" for "backward_1", of the second class of layers.
std::string without_class(const std::string& block) {
  const bool numbered = block.size() > 2 && block[block.size() - 2] == '_' && block.back() >= '0' &&
                        block.back() <= '9';
  return numbered ? block.substr(0, block.size() - 2) : block;
}

using Ids = std::vector<std::size_t>;

// A small step, and the number among its declared buffers that each of its buffers has.
struct Step {
  explicit Step(const Thumbnail& small)
      : schedule(sketch(small.problem, small.strategy, small.library, uses)),
        program(uses.finish(schedule)) {
    std::unordered_map<std::string, std::size_t> id_of_name;
    for (Buffer& buffer : declared_buffers(small.problem, small.strategy, small.library)) {
      const bool fresh = id_of_name.emplace(std::move(buffer.name), declared++).second;
      FPDT_ASSERT(fresh);
    }
    for (const Buffer& buffer : schedule.buffers) id_of.push_back(id_of_name.at(buffer.name));
  }

  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  ProgramBuilder uses;
  Schedule schedule;  // without ops
  Program program;
  std::size_t declared = 0;
  Ids id_of;
};

// The number among those of a thumbnail that each of the buffers of the whole step has. Both are
// declared in the same order.
Ids stand_ins(const std::vector<Buffer>& buffers, const Thumbnail& small, std::size_t declared) {
  Ids ids(buffers.size());
  if (ids.size() == declared) {
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
  std::unordered_map<std::string, std::size_t> id_of_name;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string name = stand_in(buffers[i].name, small);
    ids[i] = id_of_name.try_emplace(name, id_of_name.size()).first->second;
  }
  FPDT_ASSERT(id_of_name.size() == declared);
  return ids;
}

// Which of the declared buffers belong together.
struct Members {
  explicit Members(const Step& step);

  struct Window {
    std::string blocks;
    Ids ids;
  };
  std::size_t declared = 0;
  Ids always;                   // states, inputs, outputs
  std::vector<Window> windows;  // two calls; without `always`

 private:
  void add_windows(const Program& program, const std::vector<Call>& calls, const Ids& id_of);
};

Members::Members(const Step& step) : declared(step.declared) {
  for (std::size_t i = 0; i < step.id_of.size(); ++i) {
    if (step.schedule.buffers[i].role != Role::temporary) always.push_back(step.id_of[i]);
  }
  add_windows(step.program, step.schedule.train, step.id_of);
  add_windows(step.program, step.schedule.evaluate, step.id_of);
}

void Members::add_windows(const Program& program, const std::vector<Call>& calls,
                          const Ids& id_of) {
  const Schedule& schedule = *program.schedule;
  const std::vector<Phase> all = phases(program, calls);
  for (std::size_t at = 0; at < all.size(); ++at) {
    const Phase& next = all[std::min(at + 1, all.size() - 1)];
    const std::string one = without_class(schedule.blocks[index(all[at].block)].name);
    const std::string other = without_class(schedule.blocks[index(next.block)].name);
    Window window{one == other ? one : fmt::format("{} and {}", one, other), {}};
    for (std::size_t i = 0; i < id_of.size(); ++i) {
      const bool temporary = schedule.buffers[i].role == Role::temporary;
      if (temporary && (all[at].alive[i] || next.alive[i])) window.ids.push_back(id_of[i]);
    }
    std::sort(window.ids.begin(), window.ids.end());
    const auto within = [](const Ids& few, const Ids& many) {
      return std::includes(many.begin(), many.end(), few.begin(), few.end());
    };
    if (std::any_of(windows.begin(), windows.end(),
                    [&](const Window& known) { return within(window.ids, known.ids); })) {
      continue;
    }
    std::erase_if(windows, [&](const Window& known) { return within(known.ids, window.ids); });
    windows.push_back(std::move(window));
  }
}

struct Asked {
  Problem problem;
  Strategy strategy;
  bool operator==(const Asked&) const = default;
};

// A hash of the fields that differ most within a search.
struct HashOfAsked {
  std::size_t operator()(const Asked& asked) const { return of(asked.problem, asked.strategy); }
  std::size_t operator()(const Thumbnail& small) const { return of(small.problem, small.strategy); }

  static std::size_t of(const Problem& problem, const Strategy& strategy) {
    std::size_t hash = 0;
    const auto mix = [&](auto value) {
      hash = hash * 0x9E3779B97F4A7C15U + std::hash<decltype(value)>{}(value);
    };
    mix(problem.seq_len);
    mix(problem.model.layers);
    mix(strategy.mesh.ring);
    mix(strategy.zero);
    for (const std::int64_t length : strategy.segments) mix(length);
    mix(strategy.copies.optimizer_tile);
    mix(strategy.copies.overlap_all_to_all);
    mix(strategy.tiles.chunk_tokens);
    mix(strategy.tiles.ffn_rows);
    mix(strategy.tiles.loss_rows);
    mix(strategy.tiles.backward_order);
    mix(strategy.tiles.expert_loop);
    mix(strategy.tiles.long_tiles);
    for (const LayerClass& one : strategy.layer_classes) {
      mix(one.layers);
      mix(one.recompute);
      mix(one.first_stored_chunk);
      for (const double kept : one.keep) mix(kept);
    }
    return hash;
  }
};

// The value of a key, which `make` makes if it is not among those that this thread made lately.
template <class Key, class Make>
const auto& remembered(const Key& key, Make make) {
  thread_local std::unordered_map<Key, std::invoke_result_t<Make>, HashOfAsked> known;
  const auto one = known.find(key);
  if (one != known.end()) return one->second;
  if (known.size() == kRemembered) known.clear();
  return known.emplace(key, make()).first->second;
}

const Members& members_of(const Thumbnail& small) {
  return remembered(small, [&small] { return Members(Step(small)); });
}

Prediction predicted(const Problem& problem, const Strategy& strategy) {
  const Thumbnail small = thumbnail(problem, strategy);
  const Members& members = members_of(small);
  const std::vector<Buffer> buffers = declared_buffers(problem, strategy, small.library);
  using Sums = std::array<Bytes, 3>;  // by MemorySpace
  std::vector<Sums> bytes(members.declared);
  const Ids ids = stand_ins(buffers, small, members.declared);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    bytes[ids[i]][static_cast<std::size_t>(buffers[i].space)] += buffers[i].bytes();
  }
  const auto add = [&](const Ids& some, Sums& sums) {
    for (const std::size_t id : some) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += bytes[id][i];
    }
  };
  Sums always{};
  add(members.always, always);
  Sums peak = always;
  const std::string* device_peak = nullptr;
  for (const Members::Window& window : members.windows) {
    Sums sums = always;
    add(window.ids, sums);
    if (device_peak == nullptr || sums[0] > peak[0]) device_peak = &window.blocks;
    for (std::size_t i = 0; i < sums.size(); ++i) peak[i] = std::max(peak[i], sums[i]);
  }
  for (Bytes& one : peak) one.value = round_up(one.value, kPageBytes);
  return {peak[0], peak[1], peak[2], *device_peak};
}

}  // namespace

BlockBytes block_bytes(const Problem& problem, const Strategy& strategy) {
  const Thumbnail small = thumbnail(problem, strategy);
  const std::vector<Buffer> buffers = declared_buffers(problem, strategy, small.library);
  const Step step(small);
  std::vector<std::vector<const Buffer*>> stood_for(step.declared);
  const Ids ids = stand_ins(buffers, small, step.declared);
  for (std::size_t i = 0; i < ids.size(); ++i) stood_for[ids[i]].push_back(&buffers[i]);
  BlockBytes bytes;
  for_each_buffer(step.program, [&](std::size_t block, BufferIndex number) {
    for (const Buffer* const buffer : stood_for[step.id_of[index(number)]]) {
      bytes[{step.schedule.blocks[block].name, buffer->space, buffer->category}] += buffer->bytes();
    }
  });
  return bytes;
}

BlockBytes sum_of(const Schedule& schedule) {
  BlockBytes bytes;
  for_each_buffer(Program(schedule), [&](std::size_t block, BufferIndex number) {
    const Buffer& buffer = schedule.buffers[index(number)];
    bytes[{schedule.blocks[block].name, buffer.space, buffer.category}] += buffer.bytes();
  });
  return bytes;
}

// A search asks for most predictions three times.
Prediction predict(const Problem& problem, const Strategy& strategy) {
  Asked asked{problem, strategy};
  asked.problem.device_budget = asked.problem.host_budget = Bytes{};  // bytes do not depend on them
  return remembered(asked, [&] { return predicted(problem, strategy); });
}

}  // namespace fpdt
