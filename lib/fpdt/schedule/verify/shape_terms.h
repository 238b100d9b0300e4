// The vocabulary of the shape rules: what an op reads and writes, and its constants. Internal to
// the verifier.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {

// The product of sizes. It is kMostElements, more than any buffer holds, when a size is negative or
// the product exceeds that.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 60;
std::int64_t elements_of(std::initializer_list<std::int64_t> factors);

// Types that a field may have.
enum class Types : std::uint8_t { values, f32, i32, any };

// The terms of one op; each call reports what it finds wrong.
class ShapeTerms {
 public:
  ShapeTerms(const Schedule& schedule, const Op& op, const std::string& where, Findings& findings)
      : schedule_(schedule), op_(op), where_(where), findings_(findings) {}

  struct NamedConstant {
    std::string_view name;
    std::int64_t value;
  };

  [[nodiscard]] const Buffer& buffer(const Operand& operand) const {
    return schedule_.buffers[static_cast<std::size_t>(operand.buffer)];
  }
  [[nodiscard]] std::int64_t rows(const Operand& operand) const;
  [[nodiscard]] std::int64_t elements(const Operand& operand) const;

  void finding(std::string_view code, std::string message);
  void missing(std::string_view field);
  void constant(bool fits, std::string_view message);
  void soft_cap(double cap);
  void positive(std::initializer_list<NamedConstant> constants);

  // A read holds at least `count` elements, a target exactly `count`; may_* apply when present.
  void types(std::string_view field, const Operand& operand, Types types);
  void may_read(std::string_view field, const Operand& operand, std::int64_t count,
                Types allowed_types = Types::values);
  void reads(std::string_view field, const Operand& operand, std::int64_t count,
             Types allowed_types = Types::values);
  void may_write(std::string_view field, const Target& target, std::int64_t count,
                 Types allowed_types);
  void writes(std::string_view field, const Target& target, std::int64_t count,
              Types allowed_types = Types::values);
  // `documents` has one start for each token of the whole sequence. The `tokens` from token_first
  // on must lie in it on every rank.
  void documents(const Operand& operand, const RankExpression& token_first, std::int64_t tokens);
  // A table that tokens index holds at least `rows` rows.
  void table_rows(std::string_view field, const Operand& operand, std::int64_t rows,
                  std::int64_t width);
  // Without document starts, a token's position is its number.
  void learned_positions(const Operand& documents, const RankExpression& token_first,
                         std::int64_t tokens, std::int64_t position_count);
  // The target is the next version in the same bytes.
  void in_place(std::string_view field, const Target& target, const Operand& source);

  // Constants that several ops share. `heads` returns whether they are usable.
  bool heads(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
             std::int64_t ranks, const Rotary& rotary);
  template <class Tile>
  void tile(const Tile& op);
  // Whether the constants of attention's sinks are usable.
  template <class Sink>
  bool sinks(const Sink& op);
  // The norm of query and key heads has both weights or none.
  template <class Heads>
  void head_norm(const Heads& op);
  void vocabulary(std::int64_t rows, std::int64_t first, std::int64_t count);

  // Whether these constants of routes are usable.
  bool experts(std::int64_t rows, std::int64_t experts, std::int64_t active);
  template <class Body>
  bool routes(const Body& op);
  // The same of an op that has routes with a slice of experts alone.
  template <class Body>
  bool pairs_of_slice(const Body& op);

  // Pairs of one collective; returns the size of the group, 0 when the pairs do not match.
  std::int64_t pairs(const std::string& group, const std::vector<Operand>& send,
                     const std::vector<Target>& receive, bool reduces);
  // An operand of a collective has exactly `count` elements.
  void size_of(std::string_view field, const Operand& operand, std::int64_t count);

  // The workspace of a sum, when present, holds at least one element of each of `members`.
  void sum_workspace(const Operand& workspace, const std::vector<Operand>& send,
                     std::int64_t members);

  // Only copies touch host memory, and a copy between spaces needs a copy lane. Either direction's
  // lane will do: a machine without full duplex uses one for both.
  void spaces();

 private:
  void wrong_place(const std::string& message);

  const Schedule& schedule_;
  const Op& op_;
  const std::string& where_;
  Findings& findings_;
};

template <class Sink>
bool ShapeTerms::sinks(const Sink& op) {
  positive({{"q_rows", op.q_rows}, {"heads", op.heads}, {"all_heads", op.all_heads}});
  if (op.q_rows < 1 || op.heads < 1 || op.all_heads < 1) return false;
  reads("sinks", op.sinks, op.all_heads);
  const bool divides = op.all_heads % op.heads == 0 && op.q_rows % (op.all_heads / op.heads) == 0;
  constant(divides, "all_heads must be a multiple of heads, and q_rows of their ratio");
  constant(bounds_over(op.head_first, schedule_.ranks).least >= 0,
           "head_first must not be negative");
  constant(bounds_over(op.q_first, schedule_.ranks).least >= 0, "rows begin before the sequence");
  return divides;
}

template <class Heads>
void ShapeTerms::head_norm(const Heads& op) {
  may_read("q_weight", op.q_weight, op.head_dim);
  may_read("k_weight", op.k_weight, op.head_dim);
  const bool normed = op.q_weight.present() || op.k_weight.present();
  constant(op.q_weight.present() == (normed && op.heads > 0) &&
               op.k_weight.present() == (normed && op.kv_heads > 0),
           "q_weight and k_weight must be given together, for the heads that there are");
  constant(op.epsilon > 0, "epsilon must be positive");
}

// The integers of Route.
template <class Body>
std::int64_t elements_of_routes(const Body& op) {
  return elements_of({2, op.rows, op.active}) + op.experts;
}

template <class Body>
bool ShapeTerms::routes(const Body& op) {
  if (!experts(op.rows, op.experts, op.active)) return false;
  reads("routes", op.routes, elements_of_routes(op), Types::i32);
  if constexpr (requires { ExpertSlice{op.slice}; }) {
    const ExpertSlice& slice = op.slice;
    const bool fits = slice.first >= 0 && slice.count >= 0 && slice.count <= op.experts &&
                      slice.first <= op.experts - slice.of(op.experts);
    constant(fits, "a slice has some of the experts");
    return fits;
  }
  return true;
}

template <class Body>
bool ShapeTerms::pairs_of_slice(const Body& op) {
  const bool sliced = op.slice != ExpertSlice{};
  constant(op.routes.present() == sliced, "routes are those of a slice of experts");
  if (sliced && op.routes.present()) return routes(op);
  constant(op.experts == 0 && op.active == 1, "experts and active are those of routes");
  return op.active == 1;
}

template <class Tile>
void ShapeTerms::tile(const Tile& op) {
  positive({{"q_rows", op.q_rows},
            {"k_rows", op.k_rows},
            {"heads", op.heads},
            {"kv_heads", op.kv_heads},
            {"head_dim", op.head_dim}});
  const RankBounds queries = bounds_over(op.q_first, schedule_.ranks);
  const RankBounds keys = bounds_over(op.k_first, schedule_.ranks);
  constant(queries.least >= 0 && keys.least >= 0, "a tile begins before the sequence");
  constant(queries.greatest + op.q_rows <= INT32_MAX && keys.greatest + op.k_rows <= INT32_MAX,
           "a tile ends after any sequence");
  constant(op.head_dim <= kHeadDimMax, "head_dim is over " + std::to_string(kHeadDimMax));
  constant(op.kv_heads < 1 || op.heads % op.kv_heads == 0, "heads must divide by kv_heads");
  constant(std::isfinite(op.scale) && op.scale > 0, "scale must be positive");
  constant(op.window >= 0 && op.window <= INT32_MAX, "window must be 0 to 2^31 - 1");
  soft_cap(op.cap);
  // In a tile of rows with their own keys, a window hides no key of a query from itself.
  const bool own_keys = op.q_first == op.k_first && op.q_rows == op.k_rows;
  const bool hides =
      op.window > 0 && !own_keys && queries.greatest + op.q_rows - keys.least > op.window;
  constant((!hides && op.cap == 0) || !op.workspace.present(),
           "a tile that a window cuts, or with a cap, has a workspace, but no library's kernel "
           "computes it");
  documents(op.documents, op.q_first, op.q_rows);
}

}  // namespace fpdt
