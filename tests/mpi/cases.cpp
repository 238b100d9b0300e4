// Draws operands from the number of the case, the rank and the position of the element.
#include "cases.h"

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/comm/thread.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/runtime/collective.h"

namespace fpdt::test {
namespace {

constexpr std::size_t kPairs = 2;

// Numbers of very different sizes, so that a sum depends on its order. They repeat after a prime.
std::vector<std::byte> draw(std::int64_t elements, Dtype dtype, unsigned seed) {
  std::minstd_rand generator(seed + 1);
  std::vector<std::byte> bytes(index(elements * dtype_bytes(dtype)));
  constexpr std::int64_t kPeriod = 9973;
  for (std::int64_t i = 0; i < std::min(elements, kPeriod); ++i) {
    const auto drawn = static_cast<std::int32_t>(generator());
    const float value = static_cast<float>(drawn % 1000) * (drawn % 3 == 0   ? 1e-4F
                                                            : drawn % 3 == 1 ? 1.0F
                                                                             : 1e4F);
    if (dtype == Dtype::f32) reinterpret_cast<float*>(bytes.data())[i] = value;
    if (dtype == Dtype::bf16) reinterpret_cast<std::uint16_t*>(bytes.data())[i] = narrow(value);
    if (dtype == Dtype::i32) reinterpret_cast<std::int32_t*>(bytes.data())[i] = drawn;
  }
  for (std::size_t at = index(kPeriod * dtype_bytes(dtype)); at < bytes.size();) {
    const std::size_t more = std::min(at, bytes.size() - at);
    std::copy_n(bytes.data(), more, bytes.data() + at);
    at += more;
  }
  return bytes;
}

}  // namespace

Cases::Cases(std::int64_t ranks, std::int64_t block) : block_(block) {
  schedule_.ranks = ranks;
  schedule_.groups = {{"world", ranks, 1, {}}};
  if (ranks == 4) {
    schedule_.groups.push_back({"half", 2, 1, {0, {2, 0, 2, 2}}});
    schedule_.groups.push_back({"across", 2, 2, {0, {1, 0, 1, 2}}});
    schedule_.groups.push_back({"reversed", 4, -1, {3}});
  }
  Buffer buffer;
  buffer.shape = {1};
  schedule_.buffers = {buffer, buffer, buffer};
  schedule_.blocks.push_back({"step", {}, {}});
  for (const Group& group : schedule_.groups) add_all(group);
  program_ = std::make_unique<Program>(schedule_);
}

void Cases::add_all(const Group& group) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32}) {
    add<AllToAll>(group, {group.size, group.size, block_, dtype, Access::write});
    add<AllGather>(group, {1, group.size, block_, dtype, Access::write});
    for (std::int64_t hop = 1; hop < group.size; ++hop) {
      add<Exchange>(group, {1, 1, block_, dtype, Access::write});
      std::get<Exchange>(schedule_.blocks[0].ops.back().body).hop = hop;
    }
    if (dtype == Dtype::i32) continue;
    for (const Access access : {Access::write, Access::accumulate}) {
      add<ReduceScatter>(group, {group.size, 1, block_, dtype, access});
      add<AllReduce>(group, {1, 1, block_, dtype, access});
    }
  }
}

template <class Collective>
void Cases::add(const Group& group, const One& one) {
  Collective body;
  body.group = group.name;
  body.send.assign(kPairs, {0, {}});
  body.receive.assign(kPairs, {{1, {}}, one.access == Access::accumulate});
  if constexpr (requires { body.workspace; }) body.workspace = {2, {}};
  const auto number = static_cast<std::int32_t>(cases_.size());
  schedule_.blocks[0].ops.push_back(
      {fmt::format("case{}", number), {LaneKind::comm, number % 2}, std::move(body), {}});
  cases_.push_back(one);
}

std::vector<std::byte> Cases::run(Communicator& communicator) const {
  std::array<std::vector<std::byte>, 2> received;
  std::exception_ptr failure;
  std::thread second([&] {
    try {
      received[1] = run_lane(communicator, 1);
    } catch (...) {
      failure = std::current_exception();
      communicator.abort(failure);
    }
  });
  try {
    received[0] = run_lane(communicator, 0);
  } catch (...) {
    second.join();
    throw;
  }
  second.join();
  if (failure) std::rethrow_exception(failure);
  received[0].insert(received[0].end(), received[1].begin(), received[1].end());
  return received[0];
}

std::vector<std::byte> Cases::run_lane(Communicator& communicator, std::int32_t lane) const {
  std::vector<std::byte> all;
  for (std::size_t number = 0; number < cases_.size(); ++number) {
    const PlainOp& op = program_->blocks[0].ops[number];
    if (op.lane != lane) continue;
    const One& one = cases_[number];
    // The second pair has blocks of one element more.
    std::array<std::vector<std::byte>, 2 * kPairs> memory;
    std::vector<View> views;
    for (std::size_t i = 0; i < 2 * kPairs; ++i) {
      const std::int64_t blocks = i < kPairs ? one.sends : one.receives;
      const std::int64_t elements = blocks * (one.elements + static_cast<std::int64_t>(i % kPairs));
      const auto seed =
          static_cast<unsigned>(100 * number + 10 * i) + static_cast<unsigned>(communicator.rank());
      memory[i] = draw(elements, one.dtype, seed);
      views.push_back(
          {memory[i].data(), elements, one.dtype, i < kPairs ? Access::read : one.access});
    }
    // Too small for whole blocks if they are long.
    std::vector<float> workspace(index(4 * schedule_.ranks + block_ / 2));
    if (op.uses.size() > 2 * kPairs) {
      views.push_back({reinterpret_cast<std::byte*>(workspace.data()), std::ssize(workspace),
                       Dtype::f32, Access::scratch});
    }
    HostMover mover;
    communicator.collective(op.op->body, lane, views, mover);
    for (std::size_t i = kPairs; i < 2 * kPairs; ++i) {
      all.insert(all.end(), memory[i].begin(), memory[i].end());
    }
  }
  return all;
}

std::vector<std::byte> Cases::expected(std::int64_t rank) const {
  std::vector<std::byte> received;
  run_ranks(schedule_.ranks, [&](Communicator& communicator) {
    communicator.prepare(*program_);
    std::vector<std::byte> own = run(communicator);
    if (communicator.rank() == rank) received = std::move(own);
  });
  return received;
}

}  // namespace fpdt::test
