// Random changes of a schedule, like those of a wrong lowering or a careless person.
//
// A change keeps most of the structure whole, because a schedule that the loader refuses says
// nothing about what the verifier accepts. It alters one number, operand, op, edge, buffer, state,
// call or group. Now and then edges and offsets are derived anew, as by a lowering.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt::fuzz {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // Applies one to three changes and returns their descriptions.
  std::string mutate(Schedule& schedule);

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  template <class T>
  T& any(std::vector<T>& all) {
    return all[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(all.size()) - 1))];
  }

  std::int64_t changed(std::int64_t value);
  Op& any_op(Schedule& schedule);
  std::string change_number(Schedule& schedule);
  std::string change_operand(Schedule& schedule);
  std::string change_version(Version& version);
  std::string change_order(Schedule& schedule);
  std::string change_edges(Schedule& schedule);
  std::string change_buffer(Schedule& schedule);
  std::string change_state(Schedule& schedule);
  std::string change_calls(Schedule& schedule);
  std::string change_rest(Schedule& schedule);
  void derive_again(Schedule& schedule);

  std::mt19937_64 random_;
};

}  // namespace fpdt::fuzz
