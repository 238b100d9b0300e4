// S1xx: names, indices and sizes. A schedule that passes can be indexed, multiplied and expanded
// without a check.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "fpdt/schedule/lasting.h"
#include "fpdt/schedule/text.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// Bounds that no machine reaches and that keep every product of two of them, and of an argument
// with a coefficient, inside 64 bits. The bounds on slots, lanes, calls and ops bound the time and
// the memory of the verifier for any file; docs/schedule-format.md, section 12, names the planner's
// largest files.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
constexpr std::int64_t kMostRankEntries = std::int64_t{1} << 26;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 56;
constexpr std::int64_t kMostSlots = std::int64_t{1} << 19;
constexpr std::int64_t kMostLanes = 16;
constexpr std::int64_t kMostArgument = std::int64_t{1} << 24;
constexpr std::int64_t kMostVersion = std::int64_t{1} << 36;
constexpr std::int64_t kMostAdvance = std::int64_t{1} << 32;
constexpr std::int64_t kMostCalls = std::int64_t{1} << 20;
constexpr std::int64_t kMostOps = std::int64_t{1} << 25;
constexpr std::int64_t kMostAccesses = std::int64_t{1} << 28;

bool within(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value >= low && value <= high;
}

class Structure {
 public:
  Structure(const Schedule& schedule, Findings& findings)
      : schedule_(schedule), findings_(findings) {}

  void check() {
    range(schedule_.ranks, 1, kMostRanks, "schedule", "ranks");
    range(schedule_.row_multiple, 1, kMostVersion, "schedule", "row_multiple");
    if (!findings_.empty()) return;
    // Expressions that differ between ranks are checked rank by rank.
    const auto entries =
        static_cast<std::int64_t>(schedule_.groups.size() + 8 * schedule_.feeds.size() +
                                  schedule_.states.size() + schedule_.blocks.size());
    range(mul(entries, schedule_.ranks), 0, kMostRankEntries, "schedule",
          "ranks times groups, feeds, states and blocks");
    if (!findings_.empty()) return;
    for (const Group& group : schedule_.groups) check_group(group);
    check_buffers();
    check_calls(schedule_.train, "train");
    check_calls(schedule_.evaluate, "evaluate");
    check_blocks();
    check_feeds();
    if (findings_.empty()) check_states();
    if (findings_.empty()) check_expansion();
  }

 private:
  void range(std::int64_t value, std::int64_t low, std::int64_t high, const std::string& where,
             std::string_view what) {
    if (within(value, low, high)) return;
    findings_.add("S103", where,
                  fmt::format("{} is {}, expected {} to {}", what, value, low, high));
  }

  template <class Names>
  void name(Names& taken, const std::string& text, const std::string& where, bool dots = true) {
    if (!is_name(text) || (!dots && text.find('.') != std::string::npos)) {
      findings_.add("S101", where, fmt::format("\"{}\" is not a name", text));
    } else if (!taken.insert(text).second) {
      findings_.add("S101", where, fmt::format("the name \"{}\" is taken", text));
    }
  }

  void expression(const RankExpression& e, const std::string& where) {
    bool fits = within(e.a, -kMostBytes, kMostBytes);
    for (const RankTerm& term : {e.first, e.second}) {
      fits = fits && term.m >= 1 && term.n >= 1 && within(term.s, 0, kMostRanks) &&
             within(term.b, -kMostVersion, kMostVersion);
    }
    if (!fits) findings_.add("S103", where, "rank expression out of range");
  }

  // Every rank must be a member of the group it names, and all members must name the same group.
  void check_group(const Group& group) {
    const std::string where = "groups." + group.name;
    name(group_names_, group.name, where);
    range(group.size, 1, schedule_.ranks, where, "size");
    range(group.stride, -schedule_.ranks, schedule_.ranks, where, "stride");
    if (group.stride == 0) findings_.add("S103", where, "stride is 0, expected a distance");
    expression(group.first, where);
    if (!findings_.empty()) return;
    std::vector<std::int64_t> members(index(schedule_.ranks), 0);
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t first = group.first.at(rank);
      const auto [low, high] = std::minmax({first, first + (group.size - 1) * group.stride});
      const bool member = low >= 0 && high < schedule_.ranks && within(rank, low, high) &&
                          (rank - first) % group.stride == 0;
      if (!member) {
        findings_.add("S108", where,
                      fmt::format("rank {} is not in its group from rank {}", rank, first));
        return;
      }
      ++members[index(first)];
    }
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t count = members[index(rank)];
      if (count == 0 || count == group.size) continue;
      findings_.add(
          "S108", where,
          fmt::format("{} of {} members name the group from rank {}", count, group.size, rank));
      return;
    }
  }

  void check_buffers() {
    std::int64_t slots = 0;
    for (const Buffer& buffer : schedule_.buffers) {
      const std::string where = "buffers." + buffer.name;
      name(buffer_names_, buffer.name, where);
      range(buffer.slots, 1, kMostSlots, where, "slots");
      if (buffer.shape.empty()) findings_.add("S103", where, "the shape is empty");
      std::int64_t bytes = dtype_bytes(buffer.dtype);
      for (const std::int64_t extent : buffer.shape) {
        range(extent, 1, kMostBytes, where, "an extent");
        if (extent < 1 || __builtin_mul_overflow(bytes, extent, &bytes)) bytes = kMostBytes + 1;
      }
      range(bytes, 1, kMostBytes / 2, where, "bytes of a slot");
      if (bytes > kMostBytes / 2 || !within(buffer.slots, 1, kMostSlots)) continue;
      slots += buffer.slots;
      if ((bytes + kAlignment) > kMostBytes / buffer.slots) {
        findings_.add("S103", where, "the ring is too large");
      }
    }
    range(slots, 0, kMostSlots, "buffers", "slots of all buffers");
  }

  void check_calls(const std::vector<Call>& calls, const std::string& where) {
    range(static_cast<std::int64_t>(calls.size()), 0, kMostCalls, where, "calls");
    std::vector<std::int64_t> count(schedule_.blocks.size(), 0);
    calls_of_.resize(schedule_.blocks.size(), 0);
    for (const Call& call : calls) {
      if (!within(call.block, 0, static_cast<std::int64_t>(count.size()) - 1)) {
        findings_.add("S102", where, fmt::format("no block with index {}", call.block));
        continue;
      }
      ++count[index(call.block)];
      for (const Argument& argument : kArguments) {
        const std::int32_t value = call.*argument.value;
        if (!within(value, 0, kMostArgument)) {
          findings_.add("S111", where, fmt::format("call argument {} is out of range", value));
        }
      }
    }
    for (std::size_t b = 0; b < count.size(); ++b) calls_of_[b] = std::max(calls_of_[b], count[b]);
  }

  void check_blocks() {
    std::set<std::string> taken;
    std::set<Lane> lanes;
    for (std::size_t b = 0; b < schedule_.blocks.size(); ++b) {
      const Block& block = schedule_.blocks[b];
      name(taken, block.name, "blocks." + block.name, false);
      check_advance(block);
      std::unordered_set<std::string_view> op_names;
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        const std::string where = place_of(block, block.ops[i]);
        name(op_names, block.ops[i].name, where);
        lanes.insert(block.ops[i].lane);
        range(block.ops[i].lane.index, 0, kMostLanes - 1, where, "lane");
        check_operands(block.ops[i], where);
        check_constants(block.ops[i], where);
        check_after(b, i, where);
        check_lane_and_group(block.ops[i], where);
      }
    }
    range(static_cast<std::int64_t>(lanes.size()), 0, kMostLanes, "blocks", "lanes");
    range(mul(by_rank_, schedule_.ranks), 0, kMostRankEntries, "blocks",
          "ranks times constants that depend on them");
  }

  void check_advance(const Block& block) {
    const std::string where = "blocks." + block.name;
    BufferIndex before = -1;
    for (const auto& [buffer, n] : block.advance) {
      if (!within(buffer, 0, static_cast<std::int64_t>(schedule_.buffers.size()) - 1)) {
        findings_.add("S102", where,
                      fmt::format("advance of buffer {}, which does not exist", buffer));
      } else if (buffer <= before) {
        findings_.add("S109", where, "advance must name buffers once, in order");
      }
      range(n, 0, kMostAdvance, where, "advance");
      before = buffer;
    }
  }

  void check_operands(const Op& op, const std::string& where) {
    for (const Use& use : operands(op.body)) {
      const Operand& operand = use.operand;
      if (!within(operand.buffer, 0, static_cast<std::int64_t>(schedule_.buffers.size()) - 1)) {
        findings_.add("S102", where,
                      fmt::format("{}: no buffer with index {}", use.field, operand.buffer));
        continue;
      }
      const Version& v = operand.version;
      range(v.offset, -kMostVersion, kMostVersion, where, "a coefficient of a version");
      for (const Argument& argument : kArguments) {
        range(v.*argument.coefficient, -kMostVersion, kMostVersion, where,
              "a coefficient of a version");
      }
    }
  }

  // Ignores all fields except the constants that later checks compute with.
  struct Constants : FieldVisitor<Constants> {
    Constants(Structure& to, const std::string& at) : structure(to), where(at) {}
    Structure& structure;
    const std::string& where;

    void read(std::string_view, const Operand&) {}
    void target(std::string_view, const Target&) {}
    template <class T>
    void constant(std::string_view field, const T& value) {
      if constexpr (std::is_same_v<T, std::int64_t>) {
        structure.range(value, -1, kMostBytes, where, field);
      } else if constexpr (std::is_same_v<T, double>) {
        if (!std::isfinite(value)) {
          structure.findings_.add("S103", where, fmt::format("{} is not finite", field));
        }
      } else if constexpr (std::is_same_v<T, std::vector<double>>) {
        for (const double one : value) constant(field, one);
      } else if constexpr (std::is_same_v<T, RankExpression>) {
        structure.expression(value, where);
        if (!is_constant(value.first) && !is_constant(value.second)) ++structure.by_rank_;
      }
    }
  };

  void check_constants(const Op& op, const std::string& where) {
    std::visit([&](const auto& body) { body.fields(body, Constants(*this, where)); }, op.body);
  }

  void check_after(std::size_t block, std::size_t op, const std::string& where) {
    for (const After& after : schedule_.blocks[block].ops[op].after) {
      const auto blocks = static_cast<std::int64_t>(schedule_.blocks.size());
      if (!within(after.block, 0, blocks - 1) ||
          !within(after.op, 0,
                  static_cast<std::int64_t>(schedule_.blocks[index(after.block)].ops.size()) - 1)) {
        findings_.add("S102", where,
                      fmt::format("after: no op {} of block {}", after.op, after.block));
        continue;
      }
      const bool own = index(after.block) == block;
      const Block& awaited = schedule_.blocks[index(after.block)];
      const std::string text = after_text(
          {awaited.name, awaited.ops[index(after.op)].name, after.calls_back, after.of_layer});
      const bool here = after.calls_back == 0;
      if (after.calls_back < 0 || (here && (after.of_layer || !own || index(after.op) >= op))) {
        findings_.add("S104", where, fmt::format("after {}, which is not earlier", text));
      } else if (after.of_layer && after.calls_back > kMostLayerCalls) {
        findings_.add(
            "S105", where,
            fmt::format("after {}: at most {} calls are looked at", text, kMostLayerCalls));
      } else if (after.calls_back > calls_of_[index(after.block)]) {
        findings_.add("S105", where,
                      fmt::format("after {}: the block is called {} times", text,
                                  calls_of_[index(after.block)]));
      }
    }
  }

  void check_lane_and_group(const Op& op, const std::string& where) {
    const bool on_comm = op.lane.kind == LaneKind::comm;
    if (is_collective(op.body) != on_comm) {
      findings_.add("S106", where,
                    fmt::format("{} cannot run on {}", body_name(op.body), lane_text(op.lane)));
    }
    std::visit(
        [&](const auto& body) {
          if constexpr (requires { body.group; }) {
            if (group_names_.count(body.group) == 0) {
              findings_.add("S107", where, fmt::format("no group \"{}\"", body.group));
            }
          }
        },
        op.body);
  }

  void check_feeds() {
    const auto buffers = static_cast<std::int64_t>(schedule_.buffers.size());
    for (std::size_t i = 0; i < schedule_.feeds.size(); ++i) {
      const Feed& feed = schedule_.feeds[i];
      const std::string where = fmt::format("feeds[{}]", i);
      if (!within(feed.buffer, 0, buffers - 1)) {
        findings_.add("S102", where, fmt::format("no buffer with index {}", feed.buffer));
      }
      range(feed.row, 0, kMostBytes, where, "row");
      range(feed.rows, 1, kMostBytes, where, "rows");
      expression(feed.first, where);
      expression(feed.replica, where);
    }
  }

  void check_states() {
    constexpr std::array<std::string_view, 5> kKinds{"parameter", "master", "moment1", "moment2",
                                                     "gradient"};
    std::set<std::string> taken;
    for (const State& state : schedule_.states) {
      const std::string where = "states." + entry_name(state);
      name(taken,
           entry_name(state) + (state.cut.first > 0 ? fmt::format(".{}", state.cut.first) : ""),
           where);
      if (std::find(kKinds.begin(), kKinds.end(), state.kind) == kKinds.end()) {
        findings_.add("S110", where, fmt::format("unknown kind \"{}\"", state.kind));
      }
      check_state_bytes(state, where);
      check_shards(state, where);
    }
    if (!findings_.any("S110") && !findings_.any("S101")) check_sections();
  }

  static std::string entry_name(const State& state) { return state.tensor + "/" + state.kind; }

  void check_state_bytes(const State& state, const std::string& where) {
    if (!within(state.buffer, 0, static_cast<std::int64_t>(schedule_.buffers.size()) - 1)) {
      findings_.add("S102", where, fmt::format("no buffer with index {}", state.buffer));
      return;
    }
    const Buffer& buffer = schedule_.buffers[index(state.buffer)];
    std::int64_t elements = 1;
    for (const std::int64_t extent : state.shape) {
      if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements)) elements = kMostBytes;
    }
    const bool f32_only =
        state.kind == "master" || state.kind == "moment1" || state.kind == "moment2";
    if (buffer.dtype == Dtype::i32 || (f32_only && buffer.dtype != Dtype::f32)) {
      findings_.add("S110", where,
                    fmt::format("a {} in {}, expected {}", state.kind, word(buffer.dtype),
                                f32_only ? "f32" : "f32 or bf16"));
    }
    // A piece longer than a slot continues in the following slots, which must then leave no gaps.
    const bool gapless = buffer.slot_bytes() == buffer.slot_stride();
    const bool exists = within(state.version, 0, buffer.slots - 1);
    const std::int64_t slots = gapless && exists ? buffer.slots - state.version : 1;
    const std::int64_t room = buffer.rows() * buffer.row_elements() * slots;
    if (!check_cut(state, where)) return;
    if (elements < kMostBytes) elements = part_elements(state);
    const bool shared = within(state.shards, 1, schedule_.ranks) &&
                        within(state.replicas, 1, schedule_.ranks / state.shards);
    if (buffer.role != Role::state || !exists || !shared || elements >= kMostBytes ||
        piece_elements(state) > room) {
      findings_.add("S110", where,
                    fmt::format("{}[{}] does not hold one of {} pieces of the tensor's {} elements",
                                buffer.name, state.version, state.shards, elements));
      return;
    }
    const StateSlots held = slots_of(schedule_, state);
    for (std::int64_t i = held.first; i < held.first + held.count; ++i) {
      const auto [other, is_free] = held_.emplace(std::pair(state.buffer, i), where);
      if (is_free) continue;
      findings_.add("S110", where,
                    fmt::format("{}[{}] holds {} already", buffer.name, i, other->second));
      return;
    }
  }

  // The sections of a cut lie on its axis, and each is cut into equal parts.
  bool check_cut(const State& state, const std::string& where) {
    const TensorCut& cut = state.cut;
    if (cut == TensorCut{} && !state.shape.empty()) return true;
    const auto axes = static_cast<std::int64_t>(state.shape.size());
    bool fits = within(cut.axis, 0, axes - 1) && within(cut.ways, 1, schedule_.ranks) &&
                !cut.sections.empty();
    const std::int64_t extent = fits ? state.shape[index(cut.axis)] : 0;
    fits = fits && within(cut.first, 0, extent);
    std::int64_t left = extent - cut.first;
    for (const std::int64_t section : cut.sections) {
      fits = fits && within(section, 1, left) && section % cut.ways == 0;
      left -= section;
    }
    if (fits) return true;
    findings_.add("S110", where,
                  fmt::format("the sections of a cut in {} are not equal parts of axis {}",
                              cut.ways, cut.axis));
    return false;
  }

  // The entries of one kind of a tensor hold its axis together, each index once.
  void check_sections() {
    std::map<std::string, std::vector<const State*>> entries;
    for (const State& state : schedule_.states) entries[entry_name(state)].push_back(&state);
    for (auto& [key, all] : entries) {
      std::sort(all.begin(), all.end(),
                [](const State* a, const State* b) { return a->cut.first < b->cut.first; });
      const State& one = *all.front();
      std::int64_t end = 0;
      bool fits = true;
      for (const State* state : all) {
        fits = fits && state->shape == one.shape && state->cut.axis == one.cut.axis &&
               state->cut.first == end;
        for (const std::int64_t section : state->cut.sections) end += section;
        if (state->cut.sections.empty()) end = state->shape[index(state->cut.axis)];
      }
      if (fits && end == one.shape[index(one.cut.axis)]) continue;
      findings_.add(
          "S110", "states." + key,
          fmt::format("its entries do not hold each index of axis {} once", one.cut.axis));
    }
  }

  void check_shards(const State& state, const std::string& where) {
    expression(state.shard, where);
    expression(state.cut.part, where);
    range(state.shards, 1, schedule_.ranks, where, "shards");
    range(state.cut.ways, 1, schedule_.ranks, where, "ways");
    if (findings_.any("S103")) return;
    const std::int64_t pieces = mul(state.cut.ways, state.shards);
    if (pieces > schedule_.ranks) {
      findings_.add("S110", where, fmt::format("{} ranks hold {} pieces", schedule_.ranks, pieces));
      return;
    }
    std::vector<std::int64_t> holders(index(pieces), 0);
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t shard = state.shard.at(rank);
      const std::int64_t part = state.cut.part.at(rank);
      if (!within(shard, 0, state.shards - 1) || !within(part, 0, state.cut.ways - 1)) {
        findings_.add("S110", where,
                      fmt::format("rank {} holds piece {} of {} of part {} of {}", rank, shard,
                                  state.shards, part, state.cut.ways));
        return;
      }
      ++holders[index(part * state.shards + shard)];
    }
    for (const std::int64_t count : holders) {
      if (count == state.replicas) continue;
      findings_.add("S110", where,
                    fmt::format("{} ranks hold a piece, expected {}", count, state.replicas));
      return;
    }
  }

  // Counts operands and edges over all calls of a list: they take as long to verify as ops do.
  void check_expansion() {
    std::vector<std::int64_t> accesses;
    for (const Block& block : schedule_.blocks) {
      std::size_t count = 0;
      for (const Op& op : block.ops) count += operands(op.body).size() + op.after.size();
      accesses.push_back(static_cast<std::int64_t>(count));
    }
    for (const auto* calls : {&schedule_.train, &schedule_.evaluate}) {
      std::int64_t ops = 0;
      std::int64_t all = 0;
      for (const Call& call : *calls) {
        ops += static_cast<std::int64_t>(schedule_.blocks[index(call.block)].ops.size());
        all += accesses[index(call.block)];
      }
      range(ops, 0, kMostOps, "schedule", "ops of a step");
      range(all, 0, kMostAccesses, "schedule", "operands and edges of a step");
    }
  }

  const Schedule& schedule_;
  Findings& findings_;
  std::set<std::string> group_names_;
  std::set<std::string> buffer_names_;
  std::map<std::pair<BufferIndex, std::int64_t>, std::string> held_;  // slots that entries hold
  std::int64_t by_rank_ = 0;            // constants of ops that are checked rank by rank
  std::vector<std::int64_t> calls_of_;  // of each block, in the longer of the two lists
};

}  // namespace

void check_structure(const Schedule& schedule, Findings& findings) {
  Structure(schedule, findings).check();
}

}  // namespace fpdt
