// Attention tiles of one rank's heads, forward and backward. The side that streams is fetched
// ahead.
//
// kv_outer (rows are KV chunks, ascending): dkv_i and dq_i are complete after row i; dq streams
// through the host. q_outer (rows are query chunks, descending): dq_i and dkv_i are complete after
// row i; dkv streams. The gradient of the output is used in the row that makes it, so it is never
// stored.
#pragma once

#include <optional>

#include "fpdt/plan/lowering/context.h"

namespace fpdt {

class Attention : public LoweringPart {
 public:
  explicit Attention(Context& context) : LoweringPart(context) {}

  // o_i and lse_i: the tiles of q_i over kv_0 .. kv_i.
  void row(LayerFrame& frame, std::int64_t chunk);

  struct RowGradient {
    Operand dq, dkv;  // complete, of the row's own chunk
  };
  // The tiles of kv_i under q_i .. q_{C-1}; rows ascend.
  RowGradient kv_row(LayerFrame& frame, std::int64_t chunk);
  // The tiles of q_i over kv_0 .. kv_i; rows descend.
  RowGradient query_row(LayerFrame& frame, std::int64_t chunk);

 private:
  // The sum of a chunk's gradient that row number `turn` continues: kept, or fetched, or new in row
  // 0. On the row's diagonal it is complete after the row, and stays in the ring of that name.
  Operand streamed_sum(Home& home, std::int64_t turn, std::int64_t chunk, const char* diagonal,
                       std::int64_t rows);
  void backward_tile(LayerFrame& frame, std::int64_t q_chunk, std::int64_t k_first,
                     std::int64_t k_last, const Operand& kv, const Target& dq, const Target& dkv);
  // Sets the fields that tiles of both directions share.
  template <class Tile>
  void describe_tile(Tile& tile, std::int64_t q_chunk, std::int64_t k_first,
                     std::int64_t k_last) const;
  [[nodiscard]] RankExpression head_first() const;

  // A spill of the last tile, which goes after the fetches of the next.
  struct WaitingSpill {
    const Home* home = nullptr;
    Instance instance;
    std::int64_t chunk = 0;
    Operand value;
  };
  void spill_after_fetches(const WaitingSpill& spill);
  void emit_waiting_spill();

  std::optional<WaitingSpill> waiting_spill_;
};

}  // namespace fpdt
