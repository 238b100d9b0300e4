// What ranks exchange that share each product: Megatron's tensor parallelism (Shoeybi et al., arXiv
// 1909.08053, section 3) with its sequence parallelism (Korthikanti et al., arXiv 2205.05198,
// section 4.2.2).
//
// A rank has its own rows of the residual stream and of norms. Products need the rows of all T
// ranks, which are gathered. Those that are cut along their output (forward: qkv, up; backward:
// out, down) then give each rank its columns. The others give each rank a part of a sum over all
// rows. A reduce-scatter adds the parts up, and each rank receives its own rows of the sum.
//
// A rank that shares with nobody has all rows and whole sums, and exchanges nothing.
#pragma once

#include <string>

#include "fpdt/plan/lowering/context.h"

namespace fpdt {

class TensorRanks : public LoweringPart {
 public:
  explicit TensorRanks(Context& context);

  // The rows of all ranks, `rows` of each.
  Operand gather(const std::string& op, const Operand& own, std::int64_t rows);
  // Where this rank's part of `sum` goes, of which it receives `rows` rows.
  Operand part_of_sum(const Operand& sum, std::int64_t rows);
  // Completes `sum` from the parts.
  void add_up(const std::string& name, const Operand& part, const Operand& sum, std::int64_t rows);
  // The same for the product with a layer's weight, whose bias and addend are no part of the terms.
  struct Product {
    std::string layer;
    Version use;
    Operand addend;
  };
  void add_up(const std::string& name, const Operand& part, const Operand& sum, std::int64_t rows,
              const Product& of);

 private:
  BufferId rows_, part_sum_, sum_;
};

}  // namespace fpdt
