// The arithmetic of collectives, for communicators whose ranks can read each other's memory.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/runtime/communicator.h"
#include "fpdt/runtime/view.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// The group of a collective. Precondition: is_collective(body), and the group exists.
const Group& group_of(const Schedule& schedule, const Body& body);

// Who takes part, as one rank sees it: members are first, first + stride, ...
struct Membership {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t size = 1;
  std::int64_t mine = 0;  // which member this rank is
};
Membership membership(const Group& group, std::int64_t rank);

// Computes what member `mine` receives. views[i] are the operands of member i (the sends, then the
// receives); of the others only the sends are read. Sums are taken in member order in f32, block by
// block, so that they have the same bits everywhere. Allocates nothing.
void receive(const Body& body, std::int64_t mine, std::span<const std::span<const View>> views);

// Lanes that are threads of the host: what was called is done.
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
