// The arithmetic of collectives, on blocks that this process can read.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/view.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// The members of a group, as one rank sees it: first, first + stride, ...
struct Membership {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t size = 1;
  std::int64_t mine = 0;  // this rank's member number

  [[nodiscard]] std::int64_t rank_of(std::int64_t member) const { return first + member * stride; }
};
Membership membership(const Group& group, std::int64_t rank);

// Computes what member `mine` receives. views[i] are the operands of member i (sends, receives, and
// the workspace of a sum that has one, which is not used); only the sends of other members are
// read. Sums run in f32 in member order, block by block, so that every member gets the same bits.
// Allocates nothing.
void receive(const Body& body, std::int64_t mine, std::span<const std::span<const View>> views);

// target (+)= the sum of the sources, each of as many elements. Adds in f32, in their order.
void add_in_order(const View& target, std::span<const View> sources);

// The bytes that a member sends to each other member. `views` are its operands.
std::int64_t bytes_to_each(const Body& body, std::int64_t members, std::span<const View> views);

// For lanes that are host threads: a call has completed when it returns.
class HostMover final : public Mover {
 public:
  Mark mark(std::size_t) override { return nullptr; }
  void await(Mark) override {}
  void receive(const Body& body, std::int64_t mine,
               std::span<const std::span<const View>> views) override {
    fpdt::receive(body, mine, views);
  }
};

}  // namespace fpdt
