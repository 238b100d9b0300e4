// Every kind of collective on small blocks, in groups that cross, on two lanes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fpdt/runtime/communicator.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt::test {

class Cases {
 public:
  // Each member receives `block` elements of each other member.
  Cases(std::int64_t ranks, std::int64_t block);

  [[nodiscard]] const Program& program() const { return *program_; }
  // Runs all of them as one rank. Returns the bytes that it received.
  [[nodiscard]] std::vector<std::byte> run(Communicator& communicator) const;
  // The same from ranks that are threads.
  [[nodiscard]] std::vector<std::byte> expected(std::int64_t rank) const;

 private:
  struct One {
    std::int64_t sends = 1, receives = 1;  // blocks
    std::int64_t elements = 1;             // of a block
    Dtype dtype = Dtype::f32;
    Access access = Access::write;
  };
  template <class Collective>
  void add(const Group& group, const One& one);
  void add_all(const Group& group);
  [[nodiscard]] std::vector<std::byte> run_lane(Communicator& communicator,
                                                std::int32_t lane) const;

  std::int64_t block_;
  Schedule schedule_;
  std::vector<One> cases_;  // by op
  std::unique_ptr<Program> program_;
};

}  // namespace fpdt::test
