// Expansion: a schedule as the stream of plain ops that one step executes.
//
// `Program` resolves names, lanes and operands of every block once, into dense arrays. `Expansion`
// walks a call list and keeps the two things that change from call to call: the versions that the
// call adds, and where earlier calls of each block began on each lane. No ops of a whole step are
// stored: verifier, placement and executor see the same small structs, one call at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// The version is `offset` plus a part that depends on the call: the base of the buffer, or the
// call's arguments times constants.
struct PlainUse {
  BufferIndex buffer = 0;
  std::int32_t anchor = 0;  // index into Program::anchors
  std::int64_t offset = 0;
  std::int64_t row_first = 0;
  std::int64_t rows = 0;  // resolved: never negative
  Access access = Access::read;
  bool operator==(const PlainUse&) const = default;
};

struct PlainOp {
  const Op* op = nullptr;          // null where only its uses are known
  std::int32_t lane = 0;           // index into Program::lanes
  std::int32_t lane_position = 0;  // how many ops of the block precede it on its lane
  std::span<const PlainUse> uses;
  std::span<const After> after;
};

struct PlainBlock {
  std::vector<PlainOp> ops;
  std::vector<PlainUse> uses;
  std::vector<After> after;
  std::vector<std::int32_t> anchors;      // the absolute anchors of its uses
  std::vector<std::int64_t> advance;      // of every buffer
  std::vector<std::int32_t> ops_on_lane;  // of every lane
  std::int32_t calls_back = 0;            // largest calls_back of any edge to this block
};

// The schedule must outlive its program. Precondition: indices of the schedule are in range.
struct Program {
  Program() = default;
  explicit Program(const Schedule& schedule);

  // The version as the schedule writes it.
  [[nodiscard]] Version version(const PlainUse& use) const {
    Version version = anchors[static_cast<std::size_t>(use.anchor)];
    version.offset = use.offset;
    return version;
  }

  // Gives op i of block b the edges of edges_of(b, i).
  template <class EdgesOf>
  void set_edges(EdgesOf edges_of) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      PlainBlock& block = blocks[b];
      block.after.clear();
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        const std::vector<After>& some = edges_of(b, i);
        block.after.insert(block.after.end(), some.begin(), some.end());
      }
      std::size_t first = 0;
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        const std::size_t count = edges_of(b, i).size();
        block.ops[i].after = std::span(block.after).subspan(first, count);
        first += count;
      }
    }
    find_calls_back();
  }

  // Of each block, the largest calls_back of any edge to it.
  [[nodiscard]] std::vector<std::int32_t> calls_back() const;

  const Schedule* schedule = nullptr;
  std::vector<Lane> lanes;  // in order of kind and index
  // Versions without their offsets: the relative ones of every buffer, then each absolute one.
  std::vector<Version> anchors;
  std::vector<PlainBlock> blocks;

 private:
  void find_calls_back();
};

// Makes a program op by op.
class ProgramBuilder {
 public:
  void begin_block();
  // An op of the block, and then its operands; `rows`: of the operand's buffer.
  void add(const Lane& lane, const Op* op = nullptr);
  void use(const Operand& operand, Access access, std::int64_t rows);

  // The program of a schedule with these blocks, whose own ops are not looked at. Ends the builder.
  Program finish(const Schedule& schedule);

 private:
  std::int32_t lane_number(const Lane& lane);
  std::int32_t anchor_of(const Operand& operand);

  using Arguments = std::array<std::int64_t, kArguments.size()>;
  std::vector<Lane> lanes_;                    // in the order in which they were met
  std::vector<Version> anchors_;               // absolute ones, which count down from -1
  std::map<Arguments, std::int32_t> numbers_;  // by coefficients
  std::vector<std::int32_t> latest_;           // of each buffer; 0: none
  std::vector<PlainBlock> blocks_;
  std::vector<std::vector<std::size_t>> first_use_;  // of ops, [block][op]
};

// Which call of its block an edge means: its number among these calls, from 0; negative: none.
// `earlier`: so many calls of the block came before the running one, which is of `layer`.
// `layer_of`: the layer of one of the last `calls_back` of them, by its number.
template <class LayerOf>
std::int64_t awaited_call(const After& after, std::int64_t earlier, std::int32_t layer,
                          LayerOf layer_of) {
  const std::int64_t first = earlier - after.calls_back;
  if (!after.of_layer) return first;
  for (std::int64_t n = earlier - 1; n >= std::max<std::int64_t>(first, 0); --n) {
    if (layer_of(n) == layer) return n;
  }
  return -1;
}

// Counts the calls of each block, to tell which of them an edge means.
class RecentCalls {
 public:
  // `calls_back`: the most calls that an edge to each block reaches back.
  explicit RecentCalls(const std::vector<std::int32_t>& calls_back);

  void begin(const Call& call);
  // Numbers among the calls of a block, from 0: of its latest call, and of the one that an edge of
  // the running call means. Negative: there is none.
  [[nodiscard]] std::int64_t latest(std::int32_t block) const {
    return calls_[static_cast<std::size_t>(block)] - 1;
  }
  [[nodiscard]] std::int64_t awaited(const After& after) const;

 private:
  Call running_;
  std::vector<std::int64_t> calls_;                // of each block so far, with the running one
  std::vector<std::vector<std::int32_t>> layers_;  // [block][number mod (calls_back + 1)]
};

// Position of an op: the count of ops before it on its lane within the step. -1: no such op.
using LanePosition = std::int64_t;

class Expansion {
 public:
  explicit Expansion(const Program& program);

  // Begins the next call. Afterwards `version` and `position` refer to that call.
  void begin(const Call& call);

  [[nodiscard]] std::int64_t version(const PlainUse& use) const {
    return anchors_[static_cast<std::size_t>(use.anchor)] + use.offset;
  }
  // The same of a version as an op of this call writes it.
  [[nodiscard]] std::int64_t version(BufferIndex buffer, const Version& version) const {
    return version.offset + (version.relative ? anchors_[static_cast<std::size_t>(buffer)]
                                              : call_part(version, call_));
  }
  // Position of an op of this call on its lane.
  [[nodiscard]] LanePosition position(const PlainOp& op) const {
    return lane_begin_[static_cast<std::size_t>(op.lane)] + op.lane_position;
  }
  // Position of the awaited op on its lane; -1 when there is no such call.
  [[nodiscard]] LanePosition position(const After& after) const;

  [[nodiscard]] const Call& call() const { return call_; }

 private:
  const Program* program_;
  Call call_;
  RecentCalls recent_;
  std::vector<std::int64_t> anchors_;               // what this call adds to versions
  std::vector<std::int64_t> advance_pending_;       // bases after the running call
  std::vector<LanePosition> lane_begin_;            // of the running call
  std::vector<LanePosition> lane_end_;              // ops issued so far, with the running call
  std::vector<std::vector<LanePosition>> history_;  // [block][(calls_back + 1) * lanes], a ring
};

}  // namespace fpdt
