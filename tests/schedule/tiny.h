// Builds very small schedules: fills and copies between device buffers of one-element rows.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt::test {

class Tiny {
 public:
  Schedule schedule;

  Tiny& buffer(std::string name, std::int64_t slots = 1, std::int64_t rows = 4,
               Role role = Role::temporary);
  // Places the last buffer.
  Tiny& offset(std::int64_t bytes);
  Tiny& block(std::string name, std::vector<std::pair<BufferIndex, std::int64_t>> advance = {});
  // Adds an op of the last block on compute lane `lane`. Operands as in the file: "a[+1] rows 0:2
  // +=".
  Tiny& fill(std::string name, std::int32_t lane, std::string_view target);
  Tiny& copy(std::string name, std::int32_t lane, std::string_view source, std::string_view target);
  // Adds an edge to the last op, as in the file.
  Tiny& after(std::string_view text);
  Tiny& call(std::string_view block, std::int32_t layer = 0);

 private:
  Target target(std::string_view text) const;
  std::int32_t block_index(std::string_view name) const;
};

}  // namespace fpdt::test
