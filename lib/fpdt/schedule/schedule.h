// The program: buffers, blocks of ops, and the calls that make a step.
//
// Every rank runs the same program. Ops of one lane run in file order; only `after` orders ops of
// different lanes. A block is called with arguments (layer, micro_batch, segment, place); the bases
// of relative versions advance by `advance` at each call. `train` and `evaluate` are two call lists
// over the same blocks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/schedule/buffer.h"
#include "fpdt/schedule/op.h"

namespace fpdt {

struct Block {
  std::string name;
  std::vector<std::pair<BufferIndex, std::int64_t>> advance;  // by buffer index, ascending
  std::vector<Op> ops;
};

struct Call {
  std::int32_t block = 0;
  std::int32_t layer = 0;
  std::int32_t micro_batch = 0;
  std::int32_t segment = 0;
  std::int32_t place = 0;  // of the layer in its segment
  bool operator==(const Call&) const = default;
};

// The arguments of calls, and their coefficients in versions.
struct Argument {
  std::string_view name;
  std::int32_t Call::*value;
  std::int64_t Version::*coefficient;
};
inline constexpr std::array<Argument, 4> kArguments{
    {{"layer", &Call::layer, &Version::layer},
     {"micro_batch", &Call::micro_batch, &Version::micro_batch},
     {"segment", &Call::segment, &Version::segment},
     {"place", &Call::place, &Version::place}}};

// What the arguments of a call add to a version that does not depend on calls before it.
inline std::int64_t call_part(const Version& version, const Call& call) {
  return version.layer * call.layer + version.micro_batch * call.micro_batch +
         version.segment * call.segment + version.place * call.place;
}

// A communicator: `size` ranks first, first + stride, ... A negative stride counts down.
struct Group {
  std::string name;
  std::int64_t size = 1;
  std::int64_t stride = 1;
  RankExpression first;  // the first rank of the group that rank r belongs to
};

// Which tokens an input holds. Slot m of the buffer is that of micro-batch m; rank r finds in its
// rows [row, row + rows) the tokens [first.at(r), +rows) of the sequence of replica replica.at(r).
struct Feed {
  BufferIndex buffer = -1;
  Holds holds = Holds::tokens;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  RankExpression first;
  RankExpression replica;
};

// A part of a tensor, cut along an axis. From index `first` on, the axis consists of sections (one
// fused from several weights has more than one), and each section is cut into `ways` equal parts.
// Part p of the tensor is part p of every section, one after the other. Sections that are cut into
// different numbers of parts belong to several states. ways = 1: the whole tensor.
struct TensorCut {
  std::int64_t axis = 0;
  std::int64_t first = 0;
  std::vector<std::int64_t> sections;
  std::int64_t ways = 1;
  RankExpression part;
  bool operator==(const TensorCut&) const = default;
};

// Which bytes hold which named tensor. The tensor, or the part of it that `cut` says, is flat and
// zero-padded, and is then cut into `shards` equal pieces; rank r holds piece shard.at(r). One of
// several pieces can be cut into equal parts for its `replicas`, the ranks that hold it. The piece
// begins at the slot of `version` and continues through the following slots when it is longer than
// one (slots without gaps, see Buffer::slot_stride). kind is parameter, master, moment1, moment2 or
// gradient.
struct State {
  BufferIndex buffer = -1;
  std::int64_t version = 0;  // also the slot at the start of a step
  std::string tensor;        // such as "layers.3.qkv.weight"
  std::string kind;
  std::vector<std::int64_t> shape;
  TensorCut cut;
  std::int64_t shards = 1;
  RankExpression shard;
  std::int64_t replicas = 1;  // ranks that hold the same piece
};

// Elements that an entry cuts into shards: of the tensor, or of a part. Precondition: the cut fits.
std::int64_t part_elements(const State& state);
// Elements of one of its pieces, padding included.
std::int64_t piece_elements(const State& state);

struct Schedule {
  std::int64_t ranks = 1;
  std::int64_t row_multiple = 1;
  std::string problem;  // one JSON object; io writes and reads it
  std::vector<Group> groups;
  std::vector<Buffer> buffers;
  std::vector<Feed> feeds;  // none: a file of format 2, or a part of a step
  std::vector<State> states;
  std::vector<Block> blocks;
  std::vector<Call> train;
  std::vector<Call> evaluate;
};

// The format that is written, and the oldest that is read.
inline constexpr int kScheduleFormat = 4;
inline constexpr int kOldestFormat = 2;

// The end of the last buffer of a space. Precondition: every buffer is placed.
Bytes placed_bytes(const Schedule& schedule, MemorySpace space);

// Precondition of both: the group exists.
const Group& group_named(const Schedule& schedule, std::string_view name);
// The group of a collective. Precondition: is_collective(body).
const Group& group_of(const Schedule& schedule, const Body& body);

}  // namespace fpdt
