// The rules of attention: its tiles, sinks and the row terms of its gradient.
#include <fmt/format.h>

#include "fpdt/schedule/verify/origin_rules.h"

namespace fpdt {

void OriginRules::rule(const AttentionForward& op) {
  OriginRun queries{op.q_rows, true, claim(op.q_first), tiles_.part_of(*block_, *op_)};
  const OriginRun keys{op.k_rows, true, claim(op.k_first), queries.part};
  const std::int64_t width = op.heads * op.head_dim;
  require("q", op.q, read(op.q, op.q_rows, width), queries);
  require("kv", op.kv, read(op.kv, op.k_rows, 2 * op.kv_heads * op.head_dim), keys);
  queries.tiles = tiles_.set_of(*block_, *op_, Side::queries);
  queries.sum = tiles_.number_of(*block_, *op_);
  write(op.o, {queries}, width);
  write(op.lse, {queries}, op.heads);
}

void OriginRules::require_own_heads(std::string_view field, const Operand& operand) {
  const OriginCuts::Cut& cut = cuts_.of(operand.buffer);
  const std::int64_t rank = cut.axis < 0 ? -1 : values_.difference(cut.part, cuts_.part());
  if (rank >= 0) fail("S702", fmt::format("{} has other heads than rank {}", field, rank));
}

void OriginRules::rule(const AttentionSink& op) {
  OriginRun queries{op.q_rows, true, claim(op.q_first), tiles_.part_of(op)};
  require_own_heads("sinks", op.sinks);
  queries.tiles = tiles_.set_of(*block_, *op_, Side::queries);
  queries.sum = tiles_.number_of(*block_, *op_);
  write(op.o, {queries}, op.heads * op.head_dim);
  write(op.lse, {queries}, op.heads);
}

void OriginRules::rule(const AttentionSinkGradient& op) {
  const OriginRuns rows =
      same_rows(op.q_rows, {{"lse", &op.lse, op.heads}, {"delta", &op.delta, op.heads}});
  const OriginRun queries{op.q_rows, true, claim(op.q_first), tiles_.part_of(op)};
  require("lse", op.lse, rows, queries);
  require_own_heads("sinks", op.sinks);
  require_own_heads("dsinks", op.dsinks.operand);
  write_unknown(op);
}

void OriginRules::rule(const AttentionDelta& op) {
  const std::int64_t width = op.heads * op.head_dim;
  write(op.delta, same_rows(op.rows, {{"o", &op.o, width}, {"dout", &op.dout, width}}), op.heads);
}

void OriginRules::rule(const AttentionBackward& op) {
  OriginRun queries{op.q_rows, true, claim(op.q_first), tiles_.part_of(*block_, *op_)};
  OriginRun keys{op.k_rows, true, claim(op.k_first), queries.part};
  const std::int64_t width = op.heads * op.head_dim;
  const std::int64_t kv_width = 2 * op.kv_heads * op.head_dim;
  require("q", op.q, read(op.q, op.q_rows, width), queries);
  require("kv", op.kv, read(op.kv, op.k_rows, kv_width), keys);
  require("dout", op.dout, read(op.dout, op.q_rows, width), queries);
  require("delta", op.delta, read(op.delta, op.q_rows, op.heads), queries);
  const OriginRuns lse = read(op.lse, op.q_rows, op.heads);
  require("lse", op.lse, lse, queries);
  require_whole("lse", op.lse, lse);
  queries.tiles = tiles_.set_of(*block_, *op_, Side::queries);
  keys.tiles = tiles_.set_of(*block_, *op_, Side::keys);
  queries.sum = keys.sum = tiles_.number_of(*block_, *op_);
  write(op.dq, {queries}, width);
  write(op.dkv, {keys}, kv_width);
}

}  // namespace fpdt
