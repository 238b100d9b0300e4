// The rules of ops that stay on a rank; origin_travel.cpp has those of collectives.
#include "fpdt/schedule/verify/origin_rules.h"

#include <algorithm>
#include <set>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

constexpr int kReplicaBits = 40;

std::int64_t ways_of(const Schedule& schedule) {
  std::set<std::int64_t> found;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (const auto* split = std::get_if<SplitHeads>(&op.body)) found.insert(split->ranks);
    }
  }
  return found.size() == 1 ? *found.begin() : 1;
}

// Each target of an op.
template <class F>
struct EachTarget : FieldVisitor<EachTarget<F>> {
  explicit EachTarget(F& to) : f(to) {}
  F& f;
  void read(std::string_view, const Operand&) {}
  void target(std::string_view, const Target& target) { f(target); }
};

}  // namespace

OriginRules::OriginRules(const Schedule& schedule, OriginStore& store, Findings& findings)
    : schedule_(schedule),
      store_(store),
      findings_(findings),
      values_(schedule),
      cuts_(schedule, values_),
      ways_(ways_of(schedule)),
      tiles_(schedule, values_, ways_ * cuts_.ways()) {
  const RankExpression none{};
  replica_ = token(none, schedule.feeds.empty() ? none : schedule.feeds[0].replica);
}

RankValue OriginRules::token(const RankExpression& first, const RankExpression& replica) {
  const RankValue of_replica = values_.of(replica).times(std::uint64_t{1} << kReplicaBits);
  return values_.sum(values_.of(first), of_replica);
}

RankValue OriginRules::claim(const RankExpression& first) {
  return values_.sum(values_.of(first), replica_);
}

void OriginRules::apply(const Block& block, const Op& op) {
  block_ = &block;
  op_ = &op;
  std::visit([this](const auto& body) { rule(body); }, op.body);
}

OriginRuns OriginRules::read(const Operand& operand, std::int64_t rows, std::int64_t width) {
  if (!operand.present() || store_.buffer(operand.buffer).row_elements() != width ||
      store_.rows_of(operand) < rows) {
    return unknown_rows(rows);
  }
  OriginRuns runs = store_.read(operand);
  return store_.rows_of(operand) == rows ? runs : slice(runs, 0, rows);
}

void OriginRules::write(const Target& target, OriginRuns runs, std::int64_t width) {
  if (!target.present()) return;
  const Operand& operand = target.operand;
  if (store_.buffer(operand.buffer).row_elements() != width ||
      count_rows(runs) != store_.rows_of(operand)) {
    return write_unknown(target);
  }
  if (target.accumulate) runs = added(target, runs);
  store_.write(operand, runs);
}

OriginRuns OriginRules::added(const Target& target, const OriginRuns& runs) {
  OriginRuns sum;
  each_stretch({store_.read(target.operand), runs}, [&](std::int64_t, const auto& both) {
    OriginRun one = both[0];
    const OriginRun& more = both[1];
    const auto is_part = [](const OriginRun& run) { return run.tiles == OriginCuts::kTerms; };
    if (one.known && more.known && is_part(one) != is_part(more)) {
      fail("S702", "adds a rank's terms of a sum to rows that are no such terms");
    }
    if (!one.known || !more.known || one.tiles != more.tiles) {
      append(sum, {.rows = one.rows});
      return;
    }
    const std::int64_t rank = difference(one, more);
    if (rank >= 0) {
      fail("S702",
           fmt::format("adds {} to {} on rank {}", text(more, rank), text(one, rank), rank));
      one = {.rows = one.rows};
    }
    one.sum = values_.sum(one.sum, more.sum);
    append(sum, one);
  });
  return sum;
}

void OriginRules::write_unknown(const Target& target) {
  if (target.present()) store_.write(target.operand, unknown_rows(store_.rows_of(target.operand)));
}

template <class Body>
void OriginRules::write_unknown(const Body& op) {
  const auto forget = [this](const Target& target) { write_unknown(target); };
  Body::fields(op, EachTarget(forget));
}

bool OriginRules::require(std::string_view field, const Operand& operand, const OriginRuns& runs,
                          const OriginRun& wanted) {
  std::int64_t row = 0;
  for (const OriginRun& run : runs) {
    const OriginRun stated = slice(wanted, row, run.rows);
    const std::int64_t rank = run.known ? difference(run, stated) : -1;
    if (rank >= 0) {
      const std::int64_t first = operand.row_first + row;
      fail("S701", fmt::format("{} is stated to hold {}; rows {}:{} of {} hold {} on rank {}",
                               field, text(stated, rank), first, first + run.rows,
                               store_.buffer(operand.buffer).name, text(run, rank), rank));
      return false;
    }
    row += run.rows;
  }
  return true;
}

std::int64_t OriginRules::difference(const OriginRun& a, const OriginRun& b) {
  const std::int64_t rank = values_.difference(a.token, b.token);
  return rank >= 0 ? rank : values_.difference(a.part, b.part);
}

void OriginRules::require_part(std::string_view field, const Operand& operand,
                               const OriginRuns& runs, const RankValue& part) {
  for (const OriginRun& run : runs) {
    const std::int64_t rank = run.known ? values_.difference(run.part, part) : -1;
    if (rank < 0) continue;
    return fail("S702",
                fmt::format("{}: rows of {} hold other columns than the op needs on rank {}", field,
                            store_.buffer(operand.buffer).name, rank));
  }
}

RankValue OriginRules::part_of_heads(std::int64_t i) {
  return values_.sum(cuts_.part().times(static_cast<std::uint64_t>(ways_)),
                     RankValues::constant(i % ways_));
}

RankValue OriginRules::part_of_rows(std::int64_t heads) const {
  return heads > 0 ? cuts_.part() : cuts_.part_of_keys();
}

void OriginRules::require_whole(std::string_view field, const Operand& operand,
                                const OriginRuns& runs) {
  for (const OriginRun& run : runs) {
    if (run.known && run.tiles == OriginCuts::kTerms) {
      const std::int64_t rank = values_.difference(run.sum, cuts_.whole());
      if (rank < 0) continue;
      return fail("S703", fmt::format("{}: {} of {} have not received each of {} terms once on "
                                      "rank {}",
                                      field, text(run, rank), store_.buffer(operand.buffer).name,
                                      cuts_.ways(), rank));
    }
    if (!run.known || run.tiles < 0) continue;
    const RankValue within = values_.sum(run.token, replica_.times(~std::uint64_t{0}));
    const std::int64_t rank =
        tiles_.first_not_whole(run.tiles, within, run.rows, run.part, run.sum);
    if (rank < 0) continue;
    return fail("S703",
                fmt::format("{}: {} of {} have not received each of their tiles once on "
                            "rank {}",
                            field, text(run, rank), store_.buffer(operand.buffer).name, rank));
  }
}

OriginRuns OriginRules::same_rows(std::int64_t rows, const std::vector<RowOperand>& operands) {
  OriginRuns known = unknown_rows(rows);
  for (const RowOperand& one : operands) {
    if (!one.operand->present()) continue;
    const OriginRuns runs = read(*one.operand, rows, one.width);
    require_whole(one.field, *one.operand, runs);
    OriginRuns joined;
    each_stretch({known, runs}, [&](std::int64_t, const auto& both) {
      OriginRun run = both[0].known ? both[0] : both[1];
      run.tiles = -1;
      run.sum = {};
      const std::int64_t rank = both[0].known && both[1].known ? difference(both[0], both[1]) : -1;
      if (rank >= 0) {
        fail("S702", fmt::format("{} holds {}, and the operands before it {} on rank {}", one.field,
                                 text(both[1], rank), text(both[0], rank), rank));
        run = {.rows = run.rows};
      }
      append(joined, run);
    });
    known = std::move(joined);
  }
  return known;
}

void OriginRules::fail(std::string_view code, const std::string& message) {
  if (!values_.exhausted()) findings_.add(code, place_of(*block_, *op_), message);
}

std::string OriginRules::text(const OriginRun& run, std::int64_t rank) const {
  const std::uint64_t token = values_.at(run.token, rank);
  const std::uint64_t first = token % (std::uint64_t{1} << kReplicaBits);
  std::string all =
      fmt::format("tokens {}:{}", first, first + static_cast<std::uint64_t>(run.rows));
  const std::int64_t ways = ways_ * cuts_.ways();
  if (ways > 1) all += fmt::format(" of heads {}/{}", values_.at(run.part, rank) + 1, ways);
  const std::uint64_t replica = token >> kReplicaBits;
  if (replica > 0) all += fmt::format(" of replica {}", replica);
  return all;
}

template <class Body>
void OriginRules::rule(const Body& op) {
  write_unknown(op);
}

void OriginRules::rule(const Embedding& op) {
  const OriginRun tokens{op.rows, true, claim(op.token_first)};
  require("tokens", op.tokens, read(op.tokens, op.rows, 1), tokens);
  write(op.x, {tokens}, op.width);
}

void OriginRules::rule(const EmbeddingBackward& op) {
  const OriginRun tokens{op.rows, true, claim(op.token_first)};
  require("tokens", op.tokens, read(op.tokens, op.rows, 1), tokens);
  require("dx", op.dx, read(op.dx, op.rows, op.width), tokens);
  write_unknown(op);
}

// Rows of `a` are tokens, unless the sum is over them. A weight is stored by output and input.
void OriginRules::rule(const Matmul& op) {
  if (op.local_first >= 0 || op.transpose_a) {
    const OriginCuts::Cut& sum = cuts_.of(op.out.operand.buffer);
    require_part("a", op.a, read(op.a, op.k, op.m), sum.axis == 0 ? sum.part : RankValue{});
    require_part("b", op.b, read(op.b, op.k, op.n), sum.axis == 1 ? sum.part : RankValue{});
    return write_unknown(op);
  }
  const OriginCuts::Cut& weight = cuts_.of(op.b.buffer);
  const bool terms = weight.axis >= 0 && weight.axis == (op.transpose_b ? 1 : 0);
  require_part("a", op.a, read(op.a, op.m, op.k), terms ? weight.part : RankValue{});
  if (terms) return write(op.out, terms_of(op, weight), op.n);
  OriginRuns rows = same_rows(op.m, {{"a", &op.a, op.k}, {"addend", &op.addend, op.n}});
  for (OriginRun& run : rows) {
    if (run.known && weight.axis >= 0) run.part = weight.part;
    if (run.known && weight.axis < 0) run.part = {};
  }
  write(op.out, rows, op.n);
}

// This rank's terms of a sum, together with others of it that were made before.
OriginRuns OriginRules::terms_of(const Matmul& op, const OriginCuts::Cut& weight) {
  OriginRuns rows = same_rows(op.m, {{"a", &op.a, op.k}});
  if (op.bias.present()) fail("S702", "every rank adds a bias to its terms of one sum");
  for (OriginRun& run : rows) {
    if (run.known) run.part = {};
  }
  OriginRuns before = op.addend.present() ? read(op.addend, op.m, op.n) : unknown_rows(op.m);
  OriginRuns made;
  each_stretch({rows, before}, [&](std::int64_t, const auto& both) {
    OriginRun run = both[0];
    const OriginRun& more = both[1];
    if (run.known) {
      run.tiles = OriginCuts::kTerms;
      run.sum = weight.number;
    }
    if (more.known && more.tiles != OriginCuts::kTerms) {
      fail("S702", "every rank adds rows that are no terms to its terms of one sum");
    } else if (run.known && more.known) {
      const std::int64_t rank = difference(run, more);
      if (rank >= 0) {
        fail("S702",
             fmt::format("adds {} to {} on rank {}", text(run, rank), text(more, rank), rank));
      }
      run.sum = values_.sum(run.sum, more.sum);
    }
    append(made, run);
  });
  return made;
}

void OriginRules::rule(const ColumnSum& op) {
  const OriginCuts::Cut& sum = cuts_.of(op.out.operand.buffer);
  const OriginRuns rows = read(op.source, op.rows, op.width);
  require_whole("source", op.source, rows);
  require_part("source", op.source, rows, sum.axis == 0 ? sum.part : RankValue{});
  write_unknown(op);
}

void OriginRules::rule(const Add& op) {
  write(op.out,
        same_rows(op.rows, {{"source", &op.source, op.width}, {"addend", &op.addend, op.width}}),
        op.width);
}

void OriginRules::rule(const Norm& op) {
  const OriginRuns rows = same_rows(op.rows, {{"x", &op.x, op.width}});
  require_part("x", op.x, rows, {});
  write(op.y, rows, op.width);
}

void OriginRules::rule(const NormBackward& op) {
  const OriginRuns rows = same_rows(
      op.rows,
      {{"x", &op.x, op.width}, {"dy", &op.dy, op.width}, {"addend", &op.addend, op.width}});
  write(op.dx, rows, op.width);
  write_unknown(op.dweight);
  write_unknown(op.dbias);
}

void OriginRules::rule(const NormColumns& op) {
  const Operand& values = op.values.operand;
  const OriginRuns rows = same_rows(op.rows, {{"values", &values, op.stride}});
  require_part("values", values, rows, {});
  write(op.values, rows, op.stride);
}

void OriginRules::rule(const NormColumnsBackward& op) {
  const OriginRuns rows =
      same_rows(op.rows, {{"x", &op.x, op.stride}, {"gradient", &op.gradient.operand, op.stride}});
  require_part("gradient", op.gradient.operand, rows, {});
  write(op.gradient, rows, op.stride);
  write_unknown(op.dweight);
}

void OriginRules::rule(const LossStatistics& op) {
  write(op.statistics,
        same_rows(op.rows, {{"logits", &op.logits, op.vocab_count}, {"labels", &op.labels, 1}}), 3);
}

void OriginRules::rule(const LossGradient& op) {
  write(op.dlogits,
        same_rows(op.rows, {{"logits", &op.logits, op.vocab_count},
                            {"labels", &op.labels, 1},
                            {"statistics", &op.statistics, 3}}),
        op.vocab_count);
}

void OriginRules::rule(const SplitHeads& op) {
  const std::int64_t kv_heads = kv_heads_of_rank(op.kv_heads, op.ranks);
  OriginRun tokens{op.rows, true, claim(op.token_first)};
  const std::int64_t fused = (op.heads + 2 * op.kv_heads) * op.head_dim;
  tokens.part = part_of_rows(op.heads);
  require("qkv", op.qkv, read(op.qkv, op.rows, fused), tokens);
  OriginRuns blocks;
  for (std::int64_t i = 0; i < op.ranks; ++i) {
    tokens.part = part_of_heads(i);
    append(blocks, tokens);
  }
  write(op.q, blocks, op.heads / op.ranks * op.head_dim);
  write(op.kv, blocks, 2 * kv_heads * op.head_dim);
}

void OriginRules::rule(const JoinHeads& op) {
  const std::int64_t kv_heads = kv_heads_of_rank(op.kv_heads, op.ranks);
  OriginRun tokens{op.rows, true, claim(op.token_first)};
  const auto check = [&](Side side, const Operand& operand, std::int64_t width) {
    if (!operand.present()) return;
    const std::string_view field = side == Side::queries ? "dq" : "dkv";
    const OriginRuns blocks = read(operand, op.ranks * op.rows, width);
    bool right = true;
    for (std::int64_t i = 0; i < op.ranks && right; ++i) {
      tokens.part = part_of_heads(i);
      Operand block = operand;
      block.row_first += i * op.rows;
      right = require(field, block, slice(blocks, i * op.rows, op.rows), tokens);
    }
    if (!right) return;
    require_whole(field, operand, blocks);
    for (const OriginRun& run : blocks) {
      if (!run.known || OriginTiles::is_of(run.tiles, side)) continue;
      fail("S703", fmt::format("{} is not a sum over tiles of {}", field,
                               side == Side::queries ? "queries" : "keys"));
    }
  };
  check(Side::queries, op.dq, op.heads / op.ranks * op.head_dim);
  check(Side::keys, op.dkv, 2 * kv_heads * op.head_dim);
  const std::int64_t fused = (op.heads + 2 * op.kv_heads) * op.head_dim;
  tokens.part = part_of_rows(op.heads);
  if (op.qkv.present()) require("qkv", op.qkv, read(op.qkv, op.rows, fused), tokens);
  write_unknown(op.dq_weight);
  write_unknown(op.dk_weight);
  write(op.dqkv, {tokens}, fused);
}

void OriginRules::rule(const Permute& op) {
  const std::int64_t source = store_.buffer(op.source.buffer).row_elements();
  const std::int64_t target = store_.buffer(op.target.operand.buffer).row_elements();
  if (source == op.width && target == op.outer * op.width) {
    write(op.target, heads_joined(op), target);
  } else if (source == op.inner * op.width && target == op.width) {
    write(op.target, heads_divided(op), target);
  } else {
    write_unknown(op);
  }
}

// The source is blocks of heads, and the target all heads of each token.
OriginRuns OriginRules::heads_joined(const Permute& op) {
  const OriginRuns blocks = same_rows(op.outer * op.inner, {{"source", &op.source, op.width}});
  OriginRuns joined = slice(blocks, 0, op.inner);
  for (std::int64_t i = 0; op.outer > 1 && i < op.outer; ++i) {
    if (joined.size() > 1 || !joined[0].known) return unknown_rows(op.inner);
    joined[0].part = part_of_heads(i);
    Operand block = op.source;
    block.row_first += i * op.inner;
    block.rows = op.inner;
    require("source", block, slice(blocks, i * op.inner, op.inner), joined[0]);
  }
  if (op.outer > 1) joined[0].part = cuts_.part();
  return joined;
}

OriginRuns OriginRules::heads_divided(const Permute& op) {
  const OriginRuns rows = same_rows(op.outer, {{"source", &op.source, op.inner * op.width}});
  require_part("source", op.source, rows, cuts_.part());
  OriginRuns blocks;
  for (std::int64_t i = 0; i < op.inner; ++i) {
    for (OriginRun run : rows) {
      if (run.known && op.inner > 1) run.part = part_of_heads(i);
      append(blocks, run);
    }
  }
  return blocks;
}

void OriginRules::rule(const Copy& op) {
  const std::int64_t width = store_.buffer(op.source.buffer).row_elements();
  write(op.target, read(op.source, store_.rows_of(op.source), width), width);
}

}  // namespace fpdt
