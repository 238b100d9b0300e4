// S504 to S506: which rows the gradients of one block receive. Internal to the verifier.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "fpdt/schedule/verify/origin_cuts.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {

// Cuts of tensors, and the most parts of one.
struct CutsOfBuffers {
  explicit CutsOfBuffers(const Schedule& schedule);
  std::vector<const TensorCut*> of_buffers;
  std::int64_t ways = 1;
};

class GradientCoverage {
 public:
  struct Rows {
    std::int64_t first, rows;
    const Op* op;
  };
  GradientCoverage(const Schedule& schedule, const Block& block, const CutsOfBuffers& cuts)
      : schedule_(schedule), block_(block), cuts_(cuts) {}

  void add(const Operand& gradient, const Rows& rows);
  void check(Findings& findings);

 private:
  // Identifies a gradient: buffer, version, rows of the slot.
  using Key = std::tuple<BufferIndex, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, std::int64_t>;
  static Key key_of(const Operand& gradient, std::int64_t first, std::int64_t rows);
  void add_up_sums(Findings& findings);
  [[nodiscard]] std::int64_t sharers_of(BufferIndex gradient, const Op& op) const;

  const Schedule& schedule_;
  const Block& block_;
  const CutsOfBuffers& cuts_;
  std::map<Key, std::vector<Rows>> gradients_;
};

}  // namespace fpdt
