// The effect of each kind of op on the tokens that rows hold, and what it requires of them.
// Internal to the verifier.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/schedule/verify/origin_cuts.h"
#include "fpdt/schedule/verify/origin_store.h"
#include "fpdt/schedule/verify/origin_tiles.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {

// Token t of replica n is counted as t + n * 2^40, so tokens of two replicas never look alike.
class OriginRules {
 public:
  OriginRules(const Schedule& schedule, OriginStore& store, Findings& findings);

  // Checks an op, and writes what its targets hold.
  void apply(const Block& block, const Op& op);

  [[nodiscard]] const RankValues& values() const { return values_; }
  // The first token of an input's rows.
  RankValue token(const RankExpression& first, const RankExpression& replica);

 private:
  using Side = OriginTiles::Side;

  template <class Body>
  void rule(const Body& op);
  void rule(const Embedding& op);
  void rule(const EmbeddingBackward& op);
  void rule(const Matmul& op);
  void rule(const ColumnSum& op);
  void rule(const Add& op);
  void rule(const Norm& op);
  void rule(const NormBackward& op);
  void rule(const NormColumns& op);
  void rule(const NormColumnsBackward& op);
  void rule(const Activation& op);
  void rule(const ActivationBackward& op);
  void rule(const LossStatistics& op);
  void rule(const LossGradient& op);
  void rule(const Route& op);
  void rule(const RouteBackward& op);
  void rule(const ExpertLoads& op);
  void rule(const Dispatch& op);
  void rule(const Combine& op);
  void rule(const CombineBackward& op);
  void rule(const GroupedMatmul& op);
  void rule(const GroupedGradient& op);
  void rule(const GroupedSum& op);
  void rule(const SplitHeads& op);
  void rule(const JoinHeads& op);
  void rule(const Permute& op);
  void rule(const AttentionForward& op);
  void rule(const AttentionDelta& op);
  void rule(const AttentionSink& op);
  void rule(const AttentionSinkGradient& op);
  void rule(const AttentionBackward& op);
  void rule(const Copy& op);
  void rule(const AllToAll& op);
  void rule(const AllGather& op);
  void rule(const ReduceScatter& op);
  void rule(const AllReduce& op);
  void rule(const Exchange& op);

  // An operand and the width of the rows that it consists of.
  struct RowOperand {
    std::string_view field;
    const Operand* operand;
    std::int64_t width;
  };

  RankValue claim(const RankExpression& first);
  // The first rows of an operand; unknown if its rows do not have this width.
  OriginRuns read(const Operand& operand, std::int64_t rows, std::int64_t width);
  void write(const Target& target, OriginRuns runs, std::int64_t width);
  OriginRuns added(const Target& target, const OriginRuns& runs);
  template <class Body>
  void write_unknown(const Body& op);
  void write_unknown(const Target& target);

  // The first rank on which rows hold other tokens or heads; -1: none.
  std::int64_t difference(const OriginRun& a, const OriginRun& b);
  // Requires that known rows hold these tokens of these heads.
  bool require(std::string_view field, const Operand& operand, const OriginRuns& runs,
               const OriginRun& wanted);
  // Requires that a tensor with one element a head is whole, or has the heads of this rank.
  void require_own_heads(std::string_view field, const Operand& operand);
  // Requires that known rows hold this part of the columns, or all of them.
  void require_part(std::string_view field, const Operand& operand, const OriginRuns& runs,
                    const RankValue& part);
  OriginRuns terms_of(const Matmul& op, const OriginCuts::Cut& weight);
  // The part of the columns of qkv that rows with so many query heads hold.
  [[nodiscard]] RankValue part_of_rows(std::int64_t heads) const;
  // The part of the heads in block i of those that are exchanged.
  RankValue part_of_heads(std::int64_t i);
  // Requires that the ranks of a group have the same parts of tensors.
  template <class Collective>
  void require_same_parts(const Collective& op);
  // Requires that sums over tiles or terms are whole.
  void require_whole(std::string_view field, const Operand& operand, const OriginRuns& runs);
  // Requires that all operands hold the same tokens, and returns what is known of them.
  OriginRuns same_rows(std::int64_t rows, const std::vector<RowOperand>& operands);

  // Rows of a tile, for `all` rows that belong to it.
  static OriginRuns of_tile(OriginRuns rows, std::int64_t all);
  // The rows that were routed, of which all operands hold something.
  template <class Body>
  OriginRuns routed(const Body& op, std::vector<RowOperand> operands);

  OriginRuns heads_joined(const Permute& op);
  OriginRuns heads_divided(const Permute& op);
  // Writes what a collective receives: received(send, operand, group) for each of its pairs.
  template <class Collective, class Received>
  void each_pair(const Collective& op, Received&& received);
  OriginRun summed(OriginRun run, const Operand& send, const Group& group);

  void fail(std::string_view code, const std::string& message);
  [[nodiscard]] std::string text(const OriginRun& run, std::int64_t rank) const;

  const Schedule& schedule_;
  OriginStore& store_;
  Findings& findings_;
  RankValues values_;
  OriginCuts cuts_;
  std::int64_t ways_;  // parts into which split_heads divides the heads
  OriginTiles tiles_;
  RankValue replica_;             // 2^40 times the replica of the rank
  const Block* block_ = nullptr;  // of the current op
  const Op* op_ = nullptr;
};

}  // namespace fpdt
