// Emits gathers of rows and sums of parts.
#include "fpdt/plan/lowering/tensor_ranks.h"

#include "fpdt/plan/lowering/groups.h"

namespace fpdt {

TensorRanks::TensorRanks(Context& context) : LoweringPart(context) {
  const std::int64_t own = shape_.extent_rows(0);
  const std::int64_t all = shape_.extent_product_rows(0);
  const auto staging = [&](const char* name, std::int64_t rows, std::int64_t slots) {
    return rows_of_width(name, rows, model_.hidden, storage_, slots, Category::communication);
  };
  // Backward of the feed-forward reads those of its input and of its gradient.
  rows_ = staging("tensor_rows", all, 2);
  // Where keys are apart from queries, a part is made in two steps.
  part_sum_ = staging("tensor_part", all, keys_apart(model_, strategy_) ? 2 : 1);
  sum_ = staging("tensor_sum", own, 1);
}

Operand TensorRanks::gather(const std::string& op, const Operand& own, std::int64_t rows) {
  if (!shares_products()) return own;
  const Operand all = temporary(rows_, rows * shape_.tensor_ranks);
  builder_.emit(op, LaneKind::comm, AllGather{"tp", {own}, {{all, false}}});
  return all;
}

Operand TensorRanks::part_of_sum(const Operand& sum, std::int64_t rows) {
  return shares_products() ? temporary(part_sum_, rows * shape_.tensor_ranks) : sum;
}

void TensorRanks::add_up(const std::string& name, const Operand& part, const Operand& sum,
                         std::int64_t rows) {
  if (!shares_products()) return;
  Operand own = sum;
  own.rows = rows;
  builder_.emit("sum_" + name, LaneKind::comm,
                ReduceScatter{"tp", {part}, {{own, false}}, states_.next_workspace(builder_)});
}

void TensorRanks::add_up(const std::string& name, const Operand& part, const Operand& sum,
                         std::int64_t rows, const Product& of) {
  if (!shares_products()) return;
  const Operand terms = temporary(sum_, rows);
  add_up(name, part, terms, rows);
  builder_.emit("add_" + name, LaneKind::compute,
                Add{terms,
                    of.addend,
                    optional_weight(of.layer + ".bias", of.use),
                    {sum, false},
                    rows,
                    model_.hidden});
}

}  // namespace fpdt
