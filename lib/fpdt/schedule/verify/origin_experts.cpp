// Routes and the rows of experts belong to the rows of a tile.
//
// Which row is which is data, and not followed. The first rows of what belongs to a tile, as many
// as the tile has, stand for these, whatever pairs they are. So what was routed together stays
// together: an op that mixes two tiles is found.
#include <utility>

#include "fpdt/schedule/verify/origin_rules.h"

namespace fpdt {

OriginRuns OriginRules::of_tile(OriginRuns rows, std::int64_t all) {
  const std::int64_t rest = all - count_rows(rows);
  if (rest > 0) append(rows, {.rows = rest});
  return rows;
}

template <class Body>
OriginRuns OriginRules::routed(const Body& op, std::vector<RowOperand> operands) {
  operands.push_back({"routes", &op.routes, 1});
  return same_rows(op.rows, operands);
}

// Of rows as they are, or of pairs.
void OriginRules::rule(const Activation& op) {
  const std::int64_t wide = inputs_of(op.kind) * op.width;
  write(op.y, of_tile(routed(op, {{"x", &op.x, wide}}), op.rows * op.active), op.width);
}

void OriginRules::rule(const ActivationBackward& op) {
  const std::int64_t wide = inputs_of(op.kind) * op.width;
  const OriginRuns rows = routed(op, {{"x", &op.x, wide}, {"dy", &op.dy, op.width}});
  write(op.dx, of_tile(rows, op.rows * op.active), wide);
}

void OriginRules::rule(const Route& op) {
  const OriginRuns rows = same_rows(op.rows, {{"logits", &op.logits, op.experts}});
  write(op.routes, of_tile(rows, 2 * op.rows * op.active + op.experts), 1);
  write(op.weights, rows, op.active);
}

void OriginRules::rule(const RouteBackward& op) {
  write(op.dlogits,
        routed(op, {{"logits", &op.logits, op.experts},
                    {"dweights", &op.dweights, op.active},
                    {"labels", &op.labels, 1}}),
        op.experts);
}

void OriginRules::rule(const ExpertLoads& op) {
  routed(op, {{"logits", &op.logits, op.experts}, {"labels", &op.labels, 1}});
  write_unknown(op.loads);
  write_unknown(op.chances);
}

void OriginRules::rule(const Dispatch& op) {
  write(op.y, of_tile(routed(op, {{"x", &op.x, op.width}}), op.rows * op.active), op.width);
}

void OriginRules::rule(const Combine& op) {
  write(op.y,
        routed(op, {{"x", &op.x, op.width},
                    {"weights", &op.weights, op.active},
                    {"addend", &op.addend, op.width}}),
        op.width);
}

void OriginRules::rule(const CombineBackward& op) {
  const OriginRuns rows = routed(op, {{"x", &op.x.operand, op.width},
                                      {"dx", &op.dx.operand, op.width},
                                      {"weights", &op.weights, op.active},
                                      {"terms", &op.terms, op.experts}});
  const OriginRuns pairs = of_tile(rows, op.rows * op.active);
  write(op.x, pairs, op.width);
  write(op.dx, pairs, op.width);
  write(op.dweights, rows, op.active);
}

void OriginRules::rule(const GroupedMatmul& op) {
  write(op.out, of_tile(routed(op, {{"a", &op.a, op.k}}), op.rows * op.active), op.n);
}

void OriginRules::rule(const GroupedSum& op) {
  routed(op, {{"source", &op.source, op.width}, {"weights", &op.weights, op.active}});
  write_unknown(op.sum);
}

void OriginRules::rule(const GroupedGradient& op) {
  routed(op, {{"dy", &op.dy, op.n}, {"x", &op.x, op.k}});
  write_unknown(op.sum);
}

}  // namespace fpdt
