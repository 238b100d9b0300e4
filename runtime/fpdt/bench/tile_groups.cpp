// The rates of attention tiles, of a library's and of the backend's own.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/bench/groups.h"

namespace fpdt {
namespace {

std::string_view word_of(AttentionDirection direction) {
  return direction == AttentionDirection::backward ? "attention_backward" : "attention_forward";
}

}  // namespace

// Tile (1,0) of a triangle, in which no key is masked.
Timing Bench::dense_tile(const BenchCase& one, std::string_view kind) {
  const BenchRun triangle = run(one.write);
  note(kind, one.what, triangle.asked[1], triangle.spans[1]);
  return {triangle.asked[1], net(triangle.asked[1], triangle.spans[1])};
}

BenchCase Bench::tile_case(AttentionDirection direction, AttentionKernels kernels,
                           std::int64_t rows, std::int64_t head_dim) const {
  const TileShape shape{rows,
                        extent_.heads,
                        extent_.kv_heads,
                        head_dim,
                        options_.ranks,
                        options_.storage,
                        kernels == AttentionKernels::cudnn};
  return direction == AttentionDirection::backward ? attention_backward_case(shape)
                                                   : attention_forward_case(shape);
}

// All six tiles of a triangle together.
Timing Bench::triangle(const BenchCase& one, std::string_view kind, std::int64_t rows) {
  options_.progress(fmt::format("{}, {}", kind, one.what));
  const BenchRun triangle = run(one.write, extent_.working_set, pace_of(rows, extent_.tile_rows));
  Timing all;
  all.asked.size = rows;
  all.seconds.assign(triangle.traces.size(), 0);
  for (std::size_t op = 0; op < triangle.asked.size(); ++op) {
    all.asked.flops += triangle.asked[op].flops;
    all.asked.pairs += triangle.asked[op].pairs;
    const std::vector<double> seconds = net(triangle.asked[op], triangle.spans[op]);
    for (std::size_t i = 0; i < seconds.size(); ++i) all.seconds[i] += seconds[i];
  }
  note(kind, one.what + ", diagonal", triangle.asked[0], triangle.spans[0]);
  note(kind, one.what, triangle.asked[1], triangle.spans[1]);
  return all;
}

TileFit Bench::tiles(AttentionDirection direction) {
  const std::string_view kind = word_of(direction);
  const auto make = [&](std::int64_t rows, std::int64_t head_dim) {
    return tile_case(direction, options_.attention, rows, head_dim);
  };
  options_.progress(fmt::format("{} by the size of heads", kind));
  const Timing narrow = dense_tile(make(extent_.fit_rows, extent_.narrow_head), kind);
  const Timing wide = dense_tile(make(extent_.fit_rows, extent_.wide_head), kind);
  std::vector<Timing> sizes;
  for (const std::int64_t rows : extent_.tile_rows) {
    sizes.push_back(triangle(make(rows, extent_.head_dim), kind, rows));
  }
  return fit_tiles(narrow, wide, sizes);
}

// The backend's own kernels beside a library's. A Machine takes the shares of the library's tiles,
// so the rate is the one that reproduces the largest tile.
void Bench::own_tiles(AttentionDirection direction, Rate& rate) {
  if (options_.attention == AttentionKernels::own) return;  // then the other rates are theirs
  for (const std::int64_t rows : extent_.others_rows) {
    const BenchCase one = tile_case(direction, AttentionKernels::own, rows, extent_.head_dim);
    const Timing all = triangle(one, word_of(direction), rows);
    rate = speed(all.asked.flops / share_of(result_.rates.attention_shares, rows), all.seconds);
  }
}

// The share of their rate that tiles with large heads reach.
double Bench::large_head(AttentionDirection direction, AttentionKernels kernels) {
  const Rates& rates = result_.rates;
  const bool own = kernels == AttentionKernels::own;
  const bool back = direction == AttentionDirection::backward;
  const Timing tile = dense_tile(
      tile_case(direction, kernels, extent_.fit_rows, extent_.large_head), word_of(direction));
  const double rate = (own    ? back ? rates.own_attention_backward : rates.own_attention_forward
                       : back ? rates.attention_backward
                              : rates.attention_forward)
                          .typical;
  const double softmax = own ? 0 : (back ? rates.softmax_backward : rates.softmax_forward).typical;
  const double beside = softmax > 0 ? tile.asked.pairs / softmax : 0;
  const double seconds =
      spread(tile.seconds).typical * share_of(rates.attention_shares, extent_.fit_rows) - beside;
  return std::min(1.0, tile.asked.flops / rate / std::max(seconds, 1e-9));
}

void Bench::measure_tiles() {
  Rates& rates = result_.rates;
  const TileFit forward = tiles(AttentionDirection::forward);
  const TileFit backward = tiles(AttentionDirection::backward);
  rates.attention_forward = forward.rate;
  rates.softmax_forward = forward.softmax;
  rates.attention_backward = backward.rate;
  rates.softmax_backward = backward.softmax;
  // Both passes share one curve, weighted by their operations: forward 4 of 14, backward 10.
  rates.attention_shares.clear();
  rates.attention_heads.clear();  // the fit over two sizes of heads says it
  rates.attention_heads_backward.clear();
  for (std::size_t i = 0; i < forward.shares.size(); ++i) {
    rates.attention_shares.push_back(
        {forward.shares[i].size,
         (4 * forward.shares[i].share + 10 * backward.shares[i].share) / 14});
  }
  own_tiles(AttentionDirection::forward, rates.own_attention_forward);
  own_tiles(AttentionDirection::backward, rates.own_attention_backward);
  rates.own_attention_heads.clear();
  rates.own_attention_heads_backward.clear();
  if (options_.attention == AttentionKernels::own) return;
  // GPUs whose backward in cuDNN takes less may have too little shared memory for our kernels, too.
  if (options_.largest_cudnn_head < extent_.large_head) return;
  const auto shares = [&](AttentionDirection direction, AttentionKernels kernels) {
    return std::vector<SizeShare>{{extent_.head_dim, 1},
                                  {extent_.large_head, large_head(direction, kernels)}};
  };
  constexpr auto kForward = AttentionDirection::forward, kBackward = AttentionDirection::backward;
  rates.own_attention_heads = shares(kForward, AttentionKernels::own);
  rates.own_attention_heads_backward = shares(kBackward, AttentionKernels::own);
  rates.attention_heads = shares(kForward, AttentionKernels::cudnn);
  rates.attention_heads_backward = shares(kBackward, AttentionKernels::cudnn);
}

}  // namespace fpdt
