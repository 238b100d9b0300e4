// Collectives through NCCL give the bits of ranks that share their memory.
#include "fpdt/nccl/communicator.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/cuda/collective.h"
#include "fpdt/cuda/memory.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/runtime/collective.h"

#include "fake_runtime.h"
#include "processes.h"

namespace fpdt {
namespace {

enum class Kind { all_to_all, all_gather, reduce_scatter, all_reduce, exchange };

// A collective of a test.
struct Trial {
  Kind kind = Kind::all_to_all;
  std::string group = "world";
  std::int32_t lane = 0;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> blocks{1};  // of each pair: elements that one member gets from another
  Access access = Access::write;
  Bytes workspace{};     // of a sum
  std::int64_t hop = 1;  // of an exchange

  [[nodiscard]] bool sums() const {
    return kind == Kind::reduce_scatter || kind == Kind::all_reduce;
  }
  [[nodiscard]] std::int64_t sent(std::int64_t block, std::int64_t members) const {
    return kind == Kind::all_to_all || kind == Kind::reduce_scatter ? members * block : block;
  }
  [[nodiscard]] std::int64_t received(std::int64_t block, std::int64_t members) const {
    return kind == Kind::all_to_all || kind == Kind::all_gather ? members * block : block;
  }
};

template <class Collective>
Body body_of(const std::string& group, BufferIndex first, std::size_t pairs, bool accumulate) {
  Collective body;
  body.group = group;
  for (std::size_t i = 0; i < pairs; ++i) {
    body.send.push_back({first++, {}});
  }
  for (std::size_t i = 0; i < pairs; ++i) {
    body.receive.push_back({{first++, {}}, accumulate});
  }
  if constexpr (requires { body.workspace; }) body.workspace = {first, {}};
  return body;
}

// The operands of every rank, on the host, and the schedule that names them.
class Stage {
 public:
  Schedule schedule;
  std::vector<Trial> trials;
  int node = 64;  // ranks that share a host

  Stage(std::int64_t ranks, std::vector<Group> groups, std::vector<Trial> given)
      : trials(std::move(given)) {
    schedule.ranks = ranks;
    schedule.groups = std::move(groups);
    schedule.groups.push_back({"world", ranks, 1, {}});
    schedule.blocks.push_back({"step", {}, {}});
    for (const Trial& trial : trials) add(trial);
  }

  [[nodiscard]] std::int64_t ranks() const { return schedule.ranks; }

  // Operands of a trial as a rank fills them; finite values that use all bits of their mantissas.
  [[nodiscard]] std::vector<std::vector<std::byte>> operands(std::size_t trial,
                                                             std::int64_t rank) const {
    std::vector<std::vector<std::byte>> all;
    for (std::size_t i = first_[trial]; i < first_[trial + 1]; ++i) {
      const Buffer& buffer = schedule.buffers[i];
      std::vector<std::byte>& bytes = all.emplace_back();
      std::uint64_t random = 977 * i + static_cast<std::uint64_t>(rank) + 1;
      for (std::int64_t k = 0; k < buffer.rows(); ++k) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        const auto integer = static_cast<std::int32_t>(random >> 32);
        const float value = static_cast<float>(integer) * 0x1p-31F;
        const std::uint16_t half = narrow(value);
        const void* const source = buffer.dtype == Dtype::i32   ? static_cast<const void*>(&integer)
                                   : buffer.dtype == Dtype::f32 ? static_cast<const void*>(&value)
                                                                : &half;
        const auto* const begin = static_cast<const std::byte*>(source);
        bytes.insert(bytes.end(), begin, begin + dtype_bytes(buffer.dtype));
      }
    }
    return all;
  }

  // Views of operands in memory.
  template <class Operands>
  [[nodiscard]] std::vector<View> views(std::size_t trial, Operands& operands) const {
    std::vector<View> all;
    const std::size_t pairs = trials[trial].blocks.size();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Buffer& buffer = schedule.buffers[first_[trial] + i];
      const Access access = i < pairs       ? Access::read
                            : i < 2 * pairs ? trials[trial].access
                                            : Access::scratch;
      all.push_back({operands[i].data(), buffer.rows(), buffer.dtype, access});
    }
    return all;
  }

  // What a rank then holds, as ranks that share their memory compute it.
  [[nodiscard]] std::vector<std::vector<std::byte>> expected(std::size_t trial,
                                                             std::int64_t rank) const {
    const Body& body = schedule.blocks[0].ops[trial].body;
    const Membership members = membership(group_of(schedule, body), rank);
    std::vector<std::vector<std::vector<std::byte>>> held;
    for (std::int64_t i = 0; i < members.size; ++i) {
      held.push_back(operands(trial, members.first + i * members.stride));
    }
    std::vector<std::vector<View>> views_of;
    for (auto& one : held) views_of.push_back(views(trial, one));
    receive(body, members.mine,
            std::vector<std::span<const View>>(views_of.begin(), views_of.end()));
    return held[static_cast<std::size_t>(members.mine)];
  }

 private:
  void add(const Trial& trial) {
    const auto group = std::find_if(schedule.groups.begin(), schedule.groups.end(),
                                    [&](const Group& one) { return one.name == trial.group; });
    const std::int64_t members = group->size;
    const std::size_t pairs = trial.blocks.size();
    const auto first = static_cast<BufferIndex>(schedule.buffers.size());
    first_.back() = schedule.buffers.size();
    const auto buffer = [&](std::int64_t elements, Dtype dtype) {
      Buffer one;
      one.dtype = dtype;
      one.shape = {elements};
      schedule.buffers.push_back(one);
    };
    for (const std::int64_t block : trial.blocks) {
      buffer(trial.sent(block, members), trial.dtype);
    }
    for (const std::int64_t block : trial.blocks) {
      buffer(trial.received(block, members), trial.dtype);
    }
    if (trial.sums()) buffer(div_ceil(trial.workspace.value, 4), Dtype::f32);
    first_.push_back(schedule.buffers.size());
    const bool adds = trial.access == Access::accumulate;
    Body body = trial.kind == Kind::all_to_all ? body_of<AllToAll>(trial.group, first, pairs, adds)
                : trial.kind == Kind::all_gather
                    ? body_of<AllGather>(trial.group, first, pairs, adds)
                : trial.kind == Kind::exchange ? body_of<Exchange>(trial.group, first, pairs, adds)
                : trial.kind == Kind::reduce_scatter
                    ? body_of<ReduceScatter>(trial.group, first, pairs, adds)
                    : body_of<AllReduce>(trial.group, first, pairs, adds);
    if (auto* exchange = std::get_if<Exchange>(&body)) exchange->hop = trial.hop;
    schedule.blocks[0].ops.push_back({fmt::format("op{}", schedule.blocks[0].ops.size()),
                                      {LaneKind::comm, trial.lane},
                                      body,
                                      {}});
  }

  std::vector<std::size_t> first_{0};  // [trial]: its first buffer
};

// A rank's operands on its GPU.
class Held {
 public:
  Held(const Stage& stage, std::int64_t rank) : stage_(stage) {
    for (std::size_t trial = 0; trial < stage.trials.size(); ++trial) {
      auto& own = memory_.emplace_back();
      auto& spans = spans_.emplace_back();
      for (const std::vector<std::byte>& bytes : stage.operands(trial, rank)) {
        own.emplace_back(Bytes{std::ssize(bytes)}, "an operand");
        std::memcpy(own.back().bytes().data(), bytes.data(), bytes.size());
        spans.push_back(own.back().bytes());
      }
    }
  }
  std::vector<View> views(std::size_t trial) { return stage_.views(trial, spans_[trial]); }
  // The first difference from what was expected, in words.
  std::string compare(std::size_t trial, std::int64_t rank) {
    const auto expected = stage_.expected(trial, rank);
    const std::size_t pairs = stage_.trials[trial].blocks.size();
    for (std::size_t i = 0; i < 2 * pairs; ++i) {
      const std::span<std::byte> found = spans_[trial][i];
      if (std::equal(found.begin(), found.end(), expected[i].begin(), expected[i].end())) continue;
      return fmt::format("rank {}, trial {}, operand {}", rank, trial, i);
    }
    return "";
  }

 private:
  const Stage& stage_;
  std::vector<std::vector<cuda::DeviceMemory>> memory_;
  std::vector<std::vector<std::span<std::byte>>> spans_;
};

constexpr Bytes kArena{1 << 20};

void expect_clean() {
  EXPECT_EQ(fmt::format("{}", fmt::join(fake::broken_rules(), "; ")), "");
  EXPECT_EQ(fake::open_communicators(), 0);
  EXPECT_EQ(fake::allocated(), 0);
}

// Runs all trials of a stage on every rank, in their lanes, and calls `then` before the ranks end.
void run(const Stage& stage, const std::function<NcclOptions(std::int64_t)>& options,
         const std::function<void(std::int64_t rank, Held&)>& then) {
  const Program program(stage.schedule);
  const Outcomes outcomes = run_processes(
      static_cast<int>(stage.ranks()), options,
      [&](NcclCommunicator& communicator) {
        Held held(stage, communicator.rank());
        std::vector<TestLane> lanes(program.lanes.size());
        communicator.prepare(program);
        {
          const cuda::DeviceMemory arena(kArena, "an arena");
          communicator.warm_up(arena.bytes());
        }
        communicator.barrier();
        const std::int64_t allocations = fake::allocations();
        for (std::size_t i = 0; i < stage.trials.size(); ++i) {
          const PlainOp& op = program.blocks[0].ops[i];
          communicator.collective(op.op->body, op.lane, held.views(i),
                                  lanes[static_cast<std::size_t>(op.lane)]);
        }
        for (const TestLane& lane : lanes) lane.synchronise();
        communicator.settle();
        communicator.barrier();
        EXPECT_EQ(fake::allocations(), allocations) << "after warm-up";
        communicator.barrier();
        then(communicator.rank(), held);
      },
      stage.node);
  for (const std::optional<Error>& outcome : outcomes) {
    if (outcome) ADD_FAILURE() << outcome->what();
  }
  expect_clean();
}

void expect_the_bits_of_threads(const Stage& stage, const fake::Network& network = {}) {
  set_machine(static_cast<int>(stage.ranks()), network);
  run(stage, on_fake, [&](std::int64_t rank, Held& held) {
    for (std::size_t i = 0; i < stage.trials.size(); ++i) EXPECT_EQ(held.compare(i, rank), "");
  });
}

// Blocks of one element, of an odd number of bytes, and of many packs.
constexpr std::array<std::int64_t, 3> kBlocks{1, 5, 1032};

TEST(NcclCommunicator, MovesBytesOfAnyType) {
  for (const std::int64_t ranks : {1, 2, 3}) {
    std::vector<Trial> trials;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32}) {
      for (const std::int64_t block : kBlocks) {
        for (const Kind kind : {Kind::all_to_all, Kind::all_gather}) {
          trials.push_back({.kind = kind, .dtype = dtype, .blocks = {block}});
        }
      }
    }
    trials.push_back({.kind = Kind::all_to_all, .dtype = Dtype::bf16, .blocks = {96, 7, 32}});
    trials.push_back({.kind = Kind::all_gather, .dtype = Dtype::f32, .blocks = {5, 64}});
    Stage stage(ranks, {}, trials);
    expect_the_bits_of_threads(stage);
    stage.node = 2;
    expect_the_bits_of_threads(stage);
  }
}

// Rings of every hop, within a node and across nodes; two lanes at once.
TEST(NcclCommunicator, ExchangesGoAroundTheRing) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    std::vector<Trial> trials;
    for (std::int64_t hop = 1; hop < ranks; ++hop) {
      for (const std::int32_t lane : {0, 1}) {
        trials.push_back({.kind = Kind::exchange,
                          .lane = lane,
                          .dtype = Dtype::bf16,
                          .blocks = {96, 7},
                          .hop = hop});
      }
    }
    Stage stage(ranks, {}, trials);
    expect_the_bits_of_threads(stage);
    stage.node = 2;
    expect_the_bits_of_threads(stage);
  }
}

// With a workspace of one element for each member, of some packs, and of everything.
TEST(NcclCommunicator, AddsInMemberOrder) {
  for (const std::int64_t ranks : {1, 2, 5}) {
    std::vector<Trial> trials;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const Access access : {Access::write, Access::accumulate}) {
        for (const std::int64_t block : kBlocks) {
          for (const std::int64_t workspace : {4 * ranks, 300 * ranks, 8192 * ranks}) {
            if (block == 1032 && workspace == 4 * ranks) continue;  // a thousand rounds
            for (const Kind kind : {Kind::reduce_scatter, Kind::all_reduce}) {
              trials.push_back({.kind = kind,
                                .dtype = dtype,
                                .blocks = {block},
                                .access = access,
                                .workspace = Bytes{workspace}});
            }
          }
        }
      }
    }
    expect_the_bits_of_threads(Stage(ranks, {}, trials));
  }
}

// Operands of which several fit into one round, and one that takes several.
TEST(NcclCommunicator, PacksSumsIntoRounds) {
  for (const std::int64_t workspace : {64, 512, 4096}) {
    std::vector<Trial> trials;
    for (const Kind kind : {Kind::reduce_scatter, Kind::all_reduce}) {
      trials.push_back({.kind = kind,
                        .blocks = {3, 1, 200, 40, 1},
                        .access = Access::accumulate,
                        .workspace = Bytes{workspace}});
    }
    expect_the_bits_of_threads(Stage(3, {}, trials));
  }
}

// Two halves, two pairs across them, and all in reversed order, on two lanes at once.
TEST(NcclCommunicator, GroupsAndLanesDoNotMix) {
  const std::vector<Group> groups{{"half", 2, 1, {0, {2, 0, 2, 2}}},
                                  {"across", 2, 2, {0, {1, 0, 1, 2}}},
                                  {"reversed", 4, -1, {3}}};
  std::vector<Trial> trials;
  for (int round = 0; round < 5; ++round) {
    for (const char* const group : {"half", "across", "reversed", "world"}) {
      for (const std::int32_t lane : {0, 1}) {
        for (const Kind kind : {Kind::all_to_all, Kind::all_gather, Kind::reduce_scatter,
                                Kind::all_reduce, Kind::exchange}) {
          trials.push_back({.kind = kind,
                            .group = group,
                            .lane = lane,
                            .dtype = Dtype::bf16,
                            .blocks = {24},
                            .workspace = Bytes{256}});
        }
      }
    }
  }
  Stage stage(4, groups, trials);
  expect_the_bits_of_threads(stage);
  stage.node = 2;  // a half is near, the rest far
  expect_the_bits_of_threads(stage);
}

// More than the watch holds at a time.
TEST(NcclCommunicator, ManyMayBeInFlight) {
  const std::vector<Trial> trials(nccl::Watch::kFlightsMost + 100,
                                  Trial{.kind = Kind::all_to_all, .blocks = {2}});
  expect_the_bits_of_threads(Stage(2, {}, trials), {.questions = 0});
}

TEST(NcclCommunicator, ALinkCarriesEachBlockOfASumOnce) {
  const Stage stage(3, {},
                    {{.kind = Kind::reduce_scatter, .blocks = {100}, .workspace = Bytes{4096}}});
  set_machine(3);
  run(stage, on_fake, [](std::int64_t rank, Held&) {
    if (rank != 0) return;
    // One byte more from the warm-up; barriers are gathers of eight bytes, four so far.
    EXPECT_EQ(fake::sent(0, 1), 400 + 1 + 4 * 8);
  });
}

// NCCL adds in an order of its own: almost the same sums.
TEST(NcclCommunicator, NativeSumsWhereTheyFit) {
  const auto natively = [](std::int64_t rank) {
    NcclOptions options = on_fake(rank);
    options.native_sums = true;
    return options;
  };
  std::vector<Trial> trials;
  for (const Kind kind : {Kind::reduce_scatter, Kind::all_reduce}) {
    for (const Access access : {Access::write, Access::accumulate}) {
      for (const std::int64_t workspace : {64, 4096}) {
        trials.push_back(
            {.kind = kind, .blocks = {100, 3}, .access = access, .workspace = Bytes{workspace}});
      }
    }
  }
  const Stage stage(3, {}, trials);
  set_machine(3);
  run(stage, natively, [&](std::int64_t rank, Held& held) {
    bool same = true;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      auto expected = stage.expected(i, rank);
      const std::vector<View> wanted = stage.views(i, expected);
      const std::vector<View> found = held.views(i);
      for (std::size_t k = 2; k < 4; ++k) {
        for (std::int64_t j = 0; j < wanted[k].elements; ++j) {
          const float a = reinterpret_cast<const float*>(wanted[k].data)[j];
          const float b = reinterpret_cast<const float*>(found[k].data)[j];
          ASSERT_NEAR(a, b, 4 * 0x1p-23) << "trial " << i;
          same = same && a == b;
        }
      }
    }
    EXPECT_FALSE(same) << "nothing was added by NCCL";
  });
}

TEST(NcclCommunicator, RefusesASumWithoutWorkspace) {
  Stage stage(2, {}, {{.kind = Kind::all_reduce, .workspace = Bytes{64}}});
  std::get<AllReduce>(stage.schedule.blocks[0].ops[0].body).workspace = {};
  const Program program(stage.schedule);
  set_machine(2);
  const Outcomes outcomes = run_processes(
      2, on_fake, [&](NcclCommunicator& communicator) { communicator.prepare(program); });
  for (const std::optional<Error>& outcome : outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->code(), ExitCode::bad_input);
    EXPECT_NE(std::string(outcome->what()).find("op0: NCCL moves the blocks of a all_reduce"),
              std::string::npos)
        << outcome->what();
  }
  expect_clean();
}

TEST(NcclCommunicator, CountsTheMemoryThatItTakes) {
  // Another group on the same lane does not cost another communicator.
  const Stage stage(2, {{"again", 2, 1, {}}},
                    {{.kind = Kind::all_to_all},
                     {.kind = Kind::all_to_all, .group = "again"},
                     {.kind = Kind::all_gather, .blocks = {1}},
                     {.kind = Kind::all_gather, .blocks = {100}}});
  const Program program(stage.schedule);
  // One peer on four channels; across nodes also two algorithms of the all-gather. Barriers have a
  // single channel.
  for (const auto& [node, opened] : {std::pair{64, 4 + 1}, std::pair{1, 3 * 4 + 1}}) {
    set_machine(2, {.peer_bytes = Bytes{4096}});
    std::vector<Bytes> counted(2);
    const auto rank_main = [&](NcclCommunicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      const cuda::DeviceMemory arena(kArena, "an arena");
      communicator.prepare(program);
      communicator.warm_up(arena.bytes());
      counted[rank] = communicator.device_bytes();
      EXPECT_EQ(counted[rank] + kArena, Bytes{fake::allocated(static_cast<int>(rank))});
    };
    for (const std::optional<Error>& outcome : run_processes(2, on_fake, rank_main, node)) {
      EXPECT_FALSE(outcome);
    }
    const Bytes messages{48};  // for barriers
    for (const Bytes bytes : counted) EXPECT_EQ(bytes, opened * Bytes{4096} + messages);
    EXPECT_EQ(fake::channels(), (std::set<int>{1, 4}));
    expect_clean();
  }
}

}  // namespace
}  // namespace fpdt
