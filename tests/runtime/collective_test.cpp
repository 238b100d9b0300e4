// Compares the collectives with their definitions, on integers whose sums are exact.
#include "fpdt/runtime/collective.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/runtime/bf16.h"

namespace fpdt {
namespace {

// An operand of one member.
struct Memory {
  Dtype dtype = Dtype::f32;
  std::vector<std::byte> bytes;

  Memory(Dtype type, std::int64_t elements)
      : dtype(type), bytes(index(elements * dtype_bytes(type)), std::byte{0}) {}
  [[nodiscard]] std::int64_t size() const { return std::ssize(bytes) / dtype_bytes(dtype); }
  [[nodiscard]] double get(std::int64_t i) const {
    if (dtype == Dtype::bf16) return widen(reinterpret_cast<const std::uint16_t*>(bytes.data())[i]);
    if (dtype == Dtype::i32) return reinterpret_cast<const std::int32_t*>(bytes.data())[i];
    return reinterpret_cast<const float*>(bytes.data())[i];
  }
  void set(std::int64_t i, int value) {
    const auto real = static_cast<float>(value);
    if (dtype == Dtype::bf16) {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] = narrow(real);
    } else if (dtype == Dtype::i32) {
      reinterpret_cast<std::int32_t*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<float*>(bytes.data())[i] = real;
    }
  }
  [[nodiscard]] View view(Access access) { return {bytes.data(), size(), dtype, access}; }
};

int value(std::int64_t member, std::int64_t i) {
  return static_cast<int>((member * 13 + i * 7) % 17 - 8);
}

// The operation of a group: sends and receives of every member.
struct Round {
  std::vector<Memory> sends;
  std::vector<Memory> receives;
};

Round run(const Body& body, std::int64_t members, std::int64_t send, Dtype from,
          std::int64_t receives, Dtype to, Access access) {
  Round round;
  std::vector<std::vector<View>> views;
  for (std::int64_t member = 0; member < members; ++member) {
    round.sends.emplace_back(from, send);
    round.receives.emplace_back(to, receives);
    for (std::int64_t i = 0; i < send; ++i) round.sends.back().set(i, value(member, i));
    for (std::int64_t i = 0; i < receives; ++i) round.receives.back().set(i, 100);
  }
  for (std::int64_t member = 0; member < members; ++member) {
    views.push_back({round.sends[index(member)].view(Access::read),
                     round.receives[index(member)].view(access)});
  }
  const std::vector<std::span<const View>> all(views.begin(), views.end());
  for (std::int64_t member = 0; member < members; ++member) receive(body, member, all);
  return round;
}

template <class Collective>
Body body_of() {
  Collective body;
  body.send.resize(1);
  body.receive.resize(1);
  return body;
}

struct Case {
  std::int64_t members;
  std::int64_t block;  // 5000 is more than one piece
};

class CollectiveTest : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CollectiveTest,
                         testing::Values(Case{1, 1}, Case{1, 100}, Case{2, 1}, Case{3, 7},
                                         Case{4, 100}, Case{7, 3}, Case{8, 5000}));

TEST_P(CollectiveTest, AllToAllTransposesBlocks) {
  const auto [members, block] = GetParam();
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32}) {
    const Round round = run(body_of<AllToAll>(), members, members * block, dtype, members * block,
                            dtype, Access::write);
    for (std::int64_t me = 0; me < members; ++me) {
      for (std::int64_t i = 0; i < members * block; ++i) {
        ASSERT_EQ(round.receives[index(me)].get(i), value(i / block, me * block + i % block));
      }
    }
  }
}

TEST_P(CollectiveTest, AllGatherConcatenates) {
  const auto [members, block] = GetParam();
  for (const Dtype to : {Dtype::f32, Dtype::bf16}) {  // bf16 to f32 converts
    const Round round =
        run(body_of<AllGather>(), members, block, Dtype::bf16, members * block, to, Access::write);
    for (std::int64_t me = 0; me < members; ++me) {
      for (std::int64_t i = 0; i < members * block; ++i) {
        ASSERT_EQ(round.receives[index(me)].get(i), value(i / block, i % block));
      }
    }
  }
}

TEST_P(CollectiveTest, ExchangesGoAroundTheRing) {
  const auto [members, block] = GetParam();
  for (std::int64_t hop = 1; hop < members; ++hop) {
    Exchange body = std::get<Exchange>(body_of<Exchange>());
    body.hop = hop;
    const Round round = run(body, members, block, Dtype::bf16, block, Dtype::bf16, Access::write);
    for (std::int64_t me = 0; me < members; ++me) {
      const std::int64_t from = (me - hop + members) % members;
      for (std::int64_t i = 0; i < block; ++i) {
        ASSERT_EQ(round.receives[index(me)].get(i), value(from, i)) << me << " " << hop;
      }
    }
  }
}

TEST_P(CollectiveTest, SumsAreExactAndAccumulate) {
  const auto [members, block] = GetParam();
  for (const Access access : {Access::write, Access::accumulate}) {
    for (const Dtype from : {Dtype::f32, Dtype::bf16}) {
      const int before = access == Access::accumulate ? 100 : 0;
      const Round scattered =
          run(body_of<ReduceScatter>(), members, members * block, from, block, Dtype::f32, access);
      const Round reduced =
          run(body_of<AllReduce>(), members, block, from, block, Dtype::f32, access);
      for (std::int64_t me = 0; me < members; ++me) {
        for (std::int64_t i = 0; i < block; ++i) {
          int scatter_sum = before;
          int reduce_sum = before;
          for (std::int64_t member = 0; member < members; ++member) {
            scatter_sum += value(member, me * block + i);
            reduce_sum += value(member, i);
          }
          ASSERT_EQ(scattered.receives[index(me)].get(i), scatter_sum);
          ASSERT_EQ(reduced.receives[index(me)].get(i), reduce_sum);
        }
      }
    }
  }
}

// 1 + 2^-24 - 1 depends on the order of f32 sums: every member must add in the order of members.
TEST(Collective, SumsInMemberOrder) {
  std::vector<Memory> sends(3, Memory(Dtype::f32, 1));
  const std::vector<float> terms{1.0F, 0x1p-24F, -1.0F};
  std::vector<Memory> receives(3, Memory(Dtype::f32, 1));
  std::vector<std::vector<View>> views;
  for (std::size_t i = 0; i < 3; ++i) {
    std::memcpy(sends[i].bytes.data(), &terms[i], sizeof(float));
    views.push_back({sends[i].view(Access::read), receives[i].view(Access::write)});
  }
  const std::vector<std::span<const View>> all(views.begin(), views.end());
  for (std::int64_t i = 0; i < 3; ++i) receive(body_of<AllReduce>(), i, all);
  for (const Memory& received : receives) EXPECT_EQ(received.get(0), 0.0);  // (1 + 2^-24) - 1
}

TEST(Collective, SeveralPairsGoAsOne) {
  AllReduce body;
  body.send.resize(2);
  body.receive.resize(2);
  std::vector<Memory> memory(8, Memory(Dtype::f32, 1));
  std::vector<std::vector<View>> views;
  for (std::size_t member = 0; member < 2; ++member) {
    Memory* own = &memory[4 * member];
    own[0].set(0, 1);
    own[1].set(0, 10);
    views.push_back({own[0].view(Access::read), own[1].view(Access::read),
                     own[2].view(Access::write), own[3].view(Access::write)});
  }
  const std::vector<std::span<const View>> all(views.begin(), views.end());
  receive(body, 0, all);
  EXPECT_EQ(memory[2].get(0), 2);
  EXPECT_EQ(memory[3].get(0), 20);
  EXPECT_EQ(memory[6].get(0), 0);  // the other member has not received yet
}

// Ranks that read each other's memory need no workspace, and a sum that has one ignores it.
TEST(Collective, SumsDoNotTouchTheWorkspace) {
  std::vector<Memory> memory(6, Memory(Dtype::f32, 2));
  std::vector<std::vector<View>> views;
  for (std::size_t member = 0; member < 2; ++member) {
    Memory* own = &memory[3 * member];
    for (const std::int64_t i : {0, 1}) {
      own[0].set(i, 1);
      own[2].set(i, 7);
    }
    views.push_back(
        {own[0].view(Access::read), own[1].view(Access::write), own[2].view(Access::scratch)});
  }
  const std::vector<std::span<const View>> all(views.begin(), views.end());
  for (std::int64_t i = 0; i < 2; ++i) receive(body_of<AllReduce>(), i, all);
  for (std::size_t member = 0; member < 2; ++member) {
    EXPECT_EQ(memory[3 * member + 1].get(1), 2);
    EXPECT_EQ(memory[3 * member + 2].get(0), 7);
    EXPECT_EQ(memory[3 * member + 2].get(1), 7);
  }
}

TEST(Membership, FollowsFirstAndStride) {
  // Eight ranks in two halves of four, and the pairs across the halves.
  const Group half{"half", 4, 1, {0, {4, 0, 4, 2}}};
  const Group pair{"pair", 2, 4, {0, {1, 0, 1, 4}}};
  EXPECT_EQ(membership(half, 6).first, 4);
  EXPECT_EQ(membership(half, 6).mine, 2);
  EXPECT_EQ(membership(pair, 6).first, 2);
  EXPECT_EQ(membership(pair, 6).mine, 1);
  EXPECT_EQ(membership(pair, 2).mine, 0);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(widen(narrow(1.0F)), 1.0F);
  EXPECT_EQ(widen(narrow(1.0F + 0x1p-8F)), 1.0F);            // a tie: to even
  EXPECT_EQ(widen(narrow(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);  // a tie: to even
  EXPECT_EQ(widen(narrow(1.0F + 0x1.2p-8F)), 1.0F + 0x1p-7F);
  EXPECT_TRUE(std::isnan(widen(narrow(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isinf(widen(narrow(std::bit_cast<float>(0x7F7FFFFFU)))));
}

}  // namespace
}  // namespace fpdt
