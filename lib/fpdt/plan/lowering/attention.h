// Attention tiles of one rank's heads, forward and backward. The side that streams is fetched
// ahead.
//
// kv_outer (rows are KV chunks, ascending): dkv_i and dq_i are complete after row i; dq streams
// through the host. q_outer (rows are query chunks, descending): dq_i and dkv_i are complete after
// row i; dkv streams. The gradient of the output is used in the row that makes it, so it is never
// stored.
//
// Where keys go around a ring, all rows are repeated at every hop, with the keys of another rank.
// Sums that a row completes otherwise go on from hop to hop.
#pragma once

#include <optional>
#include <string>

#include "fpdt/plan/lowering/travel.h"

namespace fpdt {

class Attention : public LoweringPart {
 public:
  Attention(Context& context, Travel& travel);

  // o_i and lse_i: the tiles of q_i over kv_0 .. kv_i. They are complete at the last hop.
  void row(LayerFrame& frame, std::int64_t hop, std::int64_t chunk);

  struct RowGradient {
    Operand dq, dkv;  // of the row's own chunk, complete at hop 0, the last one of backward
  };
  // The tiles of kv_i under q_i .. q_{C-1}; rows ascend.
  RowGradient kv_row(LayerFrame& frame, std::int64_t hop, std::int64_t chunk);
  // The tiles of q_i over kv_0 .. kv_i; rows descend.
  RowGradient query_row(LayerFrame& frame, std::int64_t hop, std::int64_t chunk);

 private:
  // The chunks of a tile: of queries, and the first and the last of keys, which came `hop` hops.
  struct Place {
    std::int64_t hop, q_chunk, k_first, k_last;
    [[nodiscard]] std::string name(const Builder& builder, const char* what) const;
  };
  // The home of a chunk's sum between two rows: on the device, the instance `kept`; on the host,
  // the instance that the last row spilled, if there was one.
  struct Continued {
    Instance kept;
    std::optional<Instance> last;
    // The home of a sum that each hop continues once, after `hops` hops.
    static Continued after(std::int64_t hops) {
      Continued from{Version::plus(0), {}};
      if (hops > 0) from.last = Version::plus(hops - 1);
      return from;
    }
  };
  // The sum that a row continues: kept, or fetched, or new. If the row completes it, it stays in
  // that ring.
  Operand streamed_sum(Home& home, const Continued& from, std::int64_t chunk,
                       std::optional<BufferId> complete, std::int64_t rows);
  // lse_i at this hop. At the last one it is in its own home.
  Operand lse_sum(LayerFrame& frame, std::int64_t hop, std::int64_t chunk);
  void backward_tile(LayerFrame& frame, const Place& place, const Operand& kv, const Target& dq,
                     const Target& dkv);
  // The sink of a chunk's queries, after their last tile, and the gradient of its scores.
  void sink(const LayerFrame& frame, std::int64_t chunk);
  void sink_gradient(const LayerFrame& frame, std::int64_t chunk, const Operand& lse,
                     const Operand& delta);
  template <class Sink>
  void describe_sink(Sink& op, const LayerFrame& frame, std::int64_t chunk) const;
  // Sets the fields that tiles of both directions share.
  template <class Tile>
  void describe_tile(Tile& tile, const LayerFrame& frame, const Place& place) const;
  [[nodiscard]] RankExpression head_first() const;
  [[nodiscard]] static bool is_last(const LayerFrame& frame, std::int64_t hop) {
    return hop + 1 == frame.hops;
  }

  // A spill of the last tile, which goes after the fetches of the next.
  struct WaitingSpill {
    const Home* home = nullptr;
    Instance instance;
    std::int64_t chunk = 0;
    Operand value;
  };
  void spill_after_fetches(const WaitingSpill& spill);
  void emit_waiting_spill();

  [[nodiscard]] std::int64_t workspace_bytes(const LayerClass& choice) const;
  [[nodiscard]] const LibraryTiles& of_library(const LayerFrame& frame) const;
  // The next version of the workspace, of which a tile uses the part it needs; absent when none is
  // needed.
  Operand workspace(const LayerFrame& frame, const Place& place);
  // The home of the sums of keys' gradients, which the last query chunk begins.
  static Home& dkv_home(LayerFrame& frame, std::int64_t hop) {
    return hop > 0 && frame.halo.rows > 0 ? frame.halo.dkv : frame.homes->dkv;
  }
  // The first chunk whose keys the queries of a chunk see, and the last that sees those of a chunk.
  [[nodiscard]] std::int64_t first_seen(const LayerFrame& frame, std::int64_t chunk) const {
    return std::max<std::int64_t>(0, chunk - shape_.chunks_back(*frame.kind));
  }
  [[nodiscard]] std::int64_t last_to_see(const LayerFrame& frame, std::int64_t chunk) const {
    return std::min(shape_.chunks - 1, chunk + shape_.chunks_back(*frame.kind));
  }

  Travel& travel_;
  BufferId output_, dq_diagonal_, dq_sum_, dkv_diagonal_, dkv_sum_;
  BufferId workspace_ = -1;
  std::optional<WaitingSpill> waiting_spill_;
};

}  // namespace fpdt
