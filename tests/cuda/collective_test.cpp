// Collectives among ranks of one device give the bits of the CPU's.
#include "fpdt/cuda/collective.h"

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/runtime/collective.h"

#include "device_under_test.h"

namespace fpdt {
namespace {

constexpr std::int64_t kGuard = 64;

struct Case {
  Body body;
  std::int64_t members = 1;
  std::int64_t send = 1, receive = 1;  // elements
  Dtype from = Dtype::f32, to = Dtype::f32;
  Access access = Access::write;
  bool workspace = false;  // of two f32, on every member
};

template <class Collective>
Body body_of(std::int64_t pairs) {
  Collective body;
  body.send.resize(static_cast<std::size_t>(pairs));
  body.receive.resize(static_cast<std::size_t>(pairs));
  return body;
}

// Finite values that use all bits of their mantissas.
std::vector<std::byte> random_bytes(Dtype dtype, std::int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto integer = static_cast<std::int32_t>(random());
    const float value = static_cast<float>(integer) * 0x1p-31F;
    const std::uint16_t half = narrow(value);
    std::byte element[4];
    if (dtype == Dtype::i32) std::memcpy(element, &integer, sizeof integer);
    if (dtype == Dtype::f32) std::memcpy(element, &value, sizeof value);
    if (dtype == Dtype::bf16) std::memcpy(element, &half, sizeof half);
    bytes.insert(bytes.end(), element, element + dtype_bytes(dtype));
  }
  return bytes;
}

// The operands of all members, in one piece of memory, with guards between them.
class Round {
 public:
  std::vector<std::byte> bytes;

  Round(const Case& c, std::int64_t pairs) {
    std::mt19937 random(7);
    for (std::int64_t member = 0; member < c.members; ++member) {
      auto& own = places_.emplace_back();
      for (std::int64_t i = 0; i < pairs; ++i) own.push_back(add(c.from, c.send, random));
      for (std::int64_t i = 0; i < pairs; ++i) {
        own.push_back(add(c.to, c.receive, random));
        own.back().view.access = c.access;
      }
      if (c.workspace) own.push_back(add(Dtype::f32, 2, random));
    }
  }
  // The views into memory that begins at `memory`.
  [[nodiscard]] std::vector<std::vector<View>> at(std::byte* memory) const {
    std::vector<std::vector<View>> views;
    for (const auto& own : places_) {
      views.emplace_back();
      for (const Place& place : own) {
        views.back().push_back(place.view);
        views.back().back().data = memory + place.offset;
      }
    }
    return views;
  }

 private:
  struct Place {
    View view;
    std::int64_t offset = 0;
  };

  Place add(Dtype dtype, std::int64_t elements, std::mt19937& random) {
    const std::int64_t offset = round_up(std::ssize(bytes) + kGuard, kAlignment);
    bytes.resize(static_cast<std::size_t>(offset), std::byte{0xA5});
    const auto values = random_bytes(dtype, elements, random);
    bytes.insert(bytes.end(), values.begin(), values.end());
    bytes.resize(bytes.size() + static_cast<std::size_t>(kGuard), std::byte{0xA5});
    return {{nullptr, elements, dtype, Access::read}, offset};
  }

  std::vector<std::vector<Place>> places_;
};

std::vector<std::span<const View>> spans(const std::vector<std::vector<View>>& views) {
  return {views.begin(), views.end()};
}

// Compares the members' results on the CPU and on the device under test: all members of a small
// group, five of a large one.
void check(const Case& c, std::int64_t pairs = 1) {
  SCOPED_TRACE(testing::Message() << body_name(c.body) << " of " << c.members << ", " << c.send
                                  << " " << word(c.from) << " to " << c.receive << " " << word(c.to)
                                  << (c.access == Access::write ? "" : " +="));
  const Round round(c, pairs);
  std::vector<std::byte> expected = round.bytes;
  const auto here = round.at(expected.data());
  const std::int64_t step = div_ceil(c.members, 5);
  for (std::int64_t i = 0; i < c.members; i += step) receive(c.body, i, spans(here));

  const DeviceBytes memory = device_memory(std::ssize(round.bytes));
  const auto there = round.at(memory.get());
  for (int variant = 0; variant < 2; ++variant) {
    upload(memory.get(), round.bytes);
    for (std::int64_t i = 0; i < c.members; i += step) {
      cuda::receive(c.body, i, spans(there), device_stream(variant));
    }
    synchronise_device();
    std::vector<std::byte> got(round.bytes.size());
    download(got, memory.get());
    EXPECT_TRUE(got == expected) << "variant " << variant;
  }
}

constexpr std::array kTypes{Dtype::f32, Dtype::bf16};

// Blocks of one element, of an odd number of bytes, and of whole packs for two thread blocks.
constexpr std::array<std::int64_t, 3> kBlocks{1, 5, 1032};

TEST(DeviceCollective, MovesBytesOfAnyType) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32}) {
    for (const std::int64_t members : {1, 2, 3}) {
      for (const std::int64_t block : kBlocks) {
        const std::int64_t all = members * block;
        check({body_of<AllToAll>(1), members, all, all, dtype, dtype});
        check({body_of<AllGather>(1), members, block, all, dtype, dtype});
      }
    }
  }
}

TEST(DeviceCollective, ExchangesGoAroundTheRing) {
  for (const std::int64_t members : {2, 3, 5}) {
    for (std::int64_t hop = 1; hop < members; ++hop) {
      Body body = body_of<Exchange>(2);
      std::get<Exchange>(body).hop = hop;
      for (const std::int64_t block : kBlocks) {
        check({body, members, block, block, Dtype::bf16, Dtype::bf16}, 2);
      }
    }
  }
}

TEST(DeviceCollective, ConvertsAndAccumulates) {
  for (const Dtype from : kTypes) {
    for (const Dtype to : kTypes) {
      for (const Access access : {Access::write, Access::accumulate}) {
        for (const std::int64_t block : kBlocks) {
          check({body_of<AllToAll>(1), 3, 3 * block, 3 * block, from, to, access});
          check({body_of<AllGather>(1), 3, block, 3 * block, from, to, access});
        }
      }
    }
  }
}

TEST(DeviceCollective, AddsInMemberOrder) {
  for (const Dtype from : kTypes) {
    for (const Dtype to : kTypes) {
      for (const Access access : {Access::write, Access::accumulate}) {
        for (const std::int64_t members : {1, 2, 5}) {
          for (const std::int64_t block : kBlocks) {
            check({body_of<ReduceScatter>(1), members, members * block, block, from, to, access});
            check({body_of<AllReduce>(1), members, block, block, from, to, access});
          }
        }
      }
    }
  }
}

TEST(DeviceCollective, DoesNotTouchTheWorkspace) {
  const auto [f32, write] = std::pair(Dtype::f32, Access::write);
  check({body_of<ReduceScatter>(1), 2, 96, 48, f32, f32, write, true});
  check({body_of<AllReduce>(2), 2, 96, 96, f32, f32, write, true}, 2);
}

TEST(DeviceCollective, TakesTheLargestGroup) {
  check({body_of<AllToAll>(1), cuda::kMembersMost, 128, 128, Dtype::bf16, Dtype::bf16});
  check({body_of<AllReduce>(1), cuda::kMembersMost, 24, 24, Dtype::bf16, Dtype::f32});
}

TEST(DeviceCollective, TakesSeveralPairs) {
  check({body_of<AllToAll>(3), 2, 96, 96, Dtype::bf16, Dtype::bf16}, 3);
  check({body_of<AllReduce>(2), 2, 96, 96, Dtype::f32, Dtype::f32}, 2);
}

}  // namespace
}  // namespace fpdt
