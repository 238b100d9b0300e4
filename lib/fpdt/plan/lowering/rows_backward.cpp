// Emits rows, backward.
#include <algorithm>

#include "fpdt/plan/lowering/rows.h"

namespace fpdt {

void Rows::feed_forward_backward(LayerFrame& frame, std::int64_t chunk) {
  if (enters(chunk, backward_loop())) feed_forward_gradient(frame, shape_.extent_of(chunk));
  transition_.output_gradient_to_heads(frame, chunk);
}

void Rows::feed_forward_gradient(LayerFrame& frame, std::int64_t extent) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.extent_rows(extent);
  const std::int64_t hidden = model_.hidden;
  const Operand dy =
      frame.dy.home->fetch(builder_, frame.dy.instance, extent, Home::Reuse::latest, LaneKind::h2d);
  const Operand context = homes.attention_output.fetch(builder_, outputs(frame), extent,
                                                       Home::Reuse::ring, LaneKind::h2d);
  const bool parallel = model_.parallel_residual;
  Operand h;  // the input of the second norm
  if (frame.stores(Recompute::keep_all) && !parallel) {
    h = homes.residual.fetch(builder_, stored_instance(homes), extent, Home::Reuse::ring,
                             LaneKind::h2d);
    if (model_.post_norms) out_product(frame, extent, context, {}, {});
  } else {
    const Operand x =
        frame.input.home->fetch(builder_, frame.input.instance, extent, reuse(), LaneKind::h2d);
    h = parallel ? x : temporary(residual_, rows);
    if (!parallel) out_product(frame, extent, context, x, h);
  }
  const std::string place = builder_.name("{}", extent);
  const Operand dy_all = tiles_backward(frame, extent, h, dy);

  // Gradients of attention's output projection.
  const Operand sum = parallel ? dy : frame.dh[index(extent)];
  const Operand dh = branch_gradient("out_norm", frame, extent, frame.branch[index(extent)], sum);
  const Operand dh_all = parallel ? dy_all : tensor_ranks_.gather("gather_dh." + place, dh, rows);
  const std::int64_t all_rows = shape_.extent_product_rows(extent);
  const std::int64_t width = part_.q_width();
  const std::int64_t first = extent_first(extent);
  products_.linear_gradient(place, "out", dh_all, context, all_rows, width, hidden,
                            first * shape_.tensor_ranks);
  if (shares_products()) products_.bias_gradient(place, "out", dh, rows, hidden, first);
  const OutputGradient made = transition_.output_gradient(frame, extent);
  products_.linear_backward("dcontext." + place, "out", frame.weights, dh_all, made.dcontext,
                            all_rows, width, hidden);
  builder_.emit(
      "delta." + place, LaneKind::compute,
      AttentionDelta{
          context, made.dcontext, {made.delta, false}, all_rows, part_.heads, model_.head_dim});
  frame.gradient[index(extent)] = made;
}

// Feed-forward and second norm, one row tile after another.
// Returns the gradient of its output, of all ranks' rows.
Operand Rows::tiles_backward(LayerFrame& frame, std::int64_t extent, const Operand& h,
                             const Operand& dy) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.extent_rows(extent);
  const std::int64_t hidden = model_.hidden;
  const bool all = frame.stores(Recompute::keep_all);
  const auto gather_dy = [&](const Operand& of) {
    return tensor_ranks_.gather(builder_.name("gather_dy.{}", extent), of, rows);
  };
  Operand dy_all;
  if (!model_.post_norms) dy_all = gather_dy(dy);
  const Operand n2 = normed(builder_.name("renorm2.{}", extent), "norm2", frame, h, rows);
  const Operand n2_all = tensor_ranks_.gather(builder_.name("regather_n2.{}", extent), n2, rows);
  const Operand kept_up = all ? homes.ffn_hidden.fetch(builder_, stored_instance(homes), extent,
                                                       Home::Reuse::ring, LaneKind::h2d)
                              : Operand{};
  Inner last;  // rows that were made again, if these are all
  const Operand dz = output_gradient(frame, extent, n2_all, kept_up, dy, last);
  if (model_.post_norms) dy_all = gather_dy(dz);
  const Operand dn2 = temporary(norm_gradient_, rows);
  const Operand part = tensor_ranks_.part_of_sum(dn2, rows);
  const auto tile = [&](std::int64_t i) {
    const auto [at, r] = tile_rows(extent, i);
    const std::int64_t first = extent_first(extent) * shape_.tensor_ranks + at;
    const std::string place = builder_.name("{}.{}", extent, at);
    const Operand n2_rows = rows_of(n2_all, at, r);
    const Operand dy_rows = rows_of(dy_all, at, r);
    Operand sum;
    if (const Dense* const dense = dense_of(frame); dense != nullptr) {
      const Inner made =
          last.act.present() ? last : inner(frame, *dense, "re", place, n2_all, kept_up, at, r);
      sum = has_experts(frame) ? temporary(dense->input_gradient, r) : rows_of(part, at, r);
      dense_backward(frame, *dense, place, made, n2_rows, dy_rows, sum, r, first);
    }
    return Experts::Tile{place, n2_rows, dy_rows, sum, rows_of(part, at, r), r, first};
  };
  if (has_experts(frame)) {
    experts_->backward(frame, extent, tiles_of(extent), tile);
  } else {
    for (std::int64_t i = 0; i < tiles_of(extent); ++i) tile(i);
  }
  tensor_ranks_.add_up(builder_.name("dn2.{}", extent), part, dn2, rows);
  if (shares_products()) {
    products_.bias_gradient(builder_.name("{}", extent), "down", dz, rows, hidden,
                            extent_first(extent));
  }
  const Operand dh = homes.residual_gradient.produce(builder_, Version::plus(0), extent);
  normed_backward(builder_.name("dh.{}", extent), {.layer = "norm2",
                                                   .use = frame.weights,
                                                   .sum = Version::plus(0),
                                                   .x = h,
                                                   .dy = dn2,
                                                   .addend = dy,
                                                   .dx = dh,
                                                   .rows = rows,
                                                   .local_first = extent_first(extent)});
  homes.residual_gradient.spill(builder_, Version::plus(0), extent, dh, out_lane());
  frame.dh[index(extent)] = dh;
  return dy_all;
}

void Rows::dense_backward(const LayerFrame& frame, const Dense& of, const std::string& place,
                          const Inner& made, const Operand& n2, const Operand& dy,
                          const Operand& dn2, std::int64_t rows, std::int64_t first) {
  const std::int64_t hidden = model_.hidden;
  products_.linear_gradient(place, of.down, dy, made.act, rows, of.width, hidden, first);
  const Operand dact = temporary(of.act_gradient, rows);
  products_.linear_backward("dact." + of.place + place, of.down, frame.weights, dy, dact, rows,
                            of.width, hidden);
  const Operand dup = temporary(of.up_gradient, rows);
  builder_.emit("dup." + of.place + place, LaneKind::compute,
                ActivationBackward{made.up, dact, {dup, false}, activation_kind(), rows, of.width});
  products_.linear_gradient(place, of.up, dup, n2, rows, hidden, of.up_width, first);
  products_.linear_backward("dn2." + of.place + place, of.up, frame.weights, dup, dn2, rows, hidden,
                            of.up_width);
}

// With a norm after the feed-forward, its output is made again first, and then the gradient of
// that.
Operand Rows::output_gradient(LayerFrame& frame, std::int64_t extent, const Operand& n2_all,
                              const Operand& kept_up, const Operand& dy, Inner& last) {
  if (!model_.post_norms) return dy;
  const std::int64_t rows = shape_.extent_rows(extent);
  const std::int64_t all_rows = shape_.extent_product_rows(extent);
  const Operand made = temporary(ffn_branch_, rows);
  const Operand part = tensor_ranks_.part_of_sum(made, rows);
  for (std::int64_t i = 0; i < tiles_of(extent); ++i) {
    const auto [at, r] = tile_rows(extent, i);
    const std::string place = builder_.name("{}.{}", extent, at);
    const Inner now = inner(frame, *dense_of(frame), "z", place, n2_all, kept_up, at, r);
    products_.linear("zdown." + place, "down", frame.weights, now.act, rows_of(part, at, r), r,
                     part_.feed_forward, model_.hidden);
    if (r == all_rows) last = now;
  }
  tensor_ranks_.add_up(builder_.name("zdown.{}", extent), part, made, rows);
  return branch_gradient("down_norm", frame, extent, made, dy);
}

// dx = the gradient of `normed` + addend.
void Rows::normed_backward(const std::string& op, const Products::NormGradient& of) {
  if (model_.pre_norms) return products_.norm_backward(op, of);
  builder_.emit(op, LaneKind::compute,
                Add{of.dy, of.addend, {}, {of.dx, false}, of.rows, model_.hidden});
}

Operand Rows::branch_gradient(const std::string& layer, const LayerFrame& frame,
                              std::int64_t extent, const Operand& branch, const Operand& dy) {
  if (!model_.post_norms) return dy;
  const std::int64_t rows = shape_.extent_rows(extent);
  const Operand made = temporary(branch_gradient_, rows);
  products_.norm_backward(builder_.name("d{}.{}", layer, extent),
                          {.layer = layer,
                           .use = frame.weights,
                           .sum = Version::plus(0),
                           .x = branch,
                           .dy = dy,
                           .addend = {},
                           .dx = made,
                           .rows = rows,
                           .local_first = extent_first(extent)});
  return made;
}

void Rows::projection_backward(LayerFrame& frame, std::int64_t chunk) {
  const std::int64_t extent = shape_.extent_of(chunk);
  if (enters(chunk, backward_loop())) first_norm_again(frame, extent);
  const std::int64_t rows = shape_.product_rows(chunk);
  const std::int64_t own_rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const Operand n1 = tensor_ranks_.gather(builder_.name("regather_n1.{}", chunk),
                                          chunk_of(frame.n1[index(extent)], chunk), own_rows);
  Transition::Projected qkv, dqkv;
  if (model_.qk_norm) qkv = qkv_products(frame, "re", chunk, n1);
  const auto gradient = [&](const Projection& one) -> Operand& {
    return &one == &projections_.front() ? dqkv.queries : dqkv.keys;
  };
  for (const Projection& one : projections_) {
    gradient(one) = temporary(model_.qk_norm ? one.gradient : one.rows, rows);
  }
  transition_.join_gradients(frame, chunk, qkv, dqkv);
  joint_norms([&](const Products::JointNorm& norm, auto part) {
    products_.joint_norm_backward(builder_.name("d{}.{}", norm.layer, chunk), norm, frame.weights,
                                  qkv.*part, dqkv.*part, rows,
                                  shape_.local_first(chunk) * shape_.tensor_ranks);
  });
  for (const Projection& one : projections_) {
    products_.linear_gradient(builder_.name("{}", chunk), one.layer, gradient(one), n1, rows,
                              hidden, one.width, shape_.local_first(chunk) * shape_.tensor_ranks);
  }
  const Operand dn1 = chunk_of(frame.dn1[index(extent)], chunk);
  Operand part;
  for (const Projection& one : projections_) {
    const Operand before = part;
    part = tensor_ranks_.part_of_sum(dn1, own_rows);
    const bool first = &one == &projections_.front();
    products_.linear_backward(builder_.name("dn1{}.{}", first ? "" : "_kv", chunk), one.layer,
                              frame.weights, gradient(one), part, rows, hidden, one.width, before);
  }
  tensor_ranks_.add_up(builder_.name("dn1.{}", chunk), part, dn1, own_rows);
  if (leaves(chunk, backward_loop())) first_norm_gradient(frame, extent);
}

void Rows::first_norm_again(LayerFrame& frame, std::int64_t extent) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.extent_rows(extent);
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, extent, reuse(), LaneKind::h2d);
  Operand n1;
  if (frame.stores(Recompute::keep_all) && model_.pre_norms) {
    n1 = homes.norm_output.fetch(builder_, stored_instance(homes), extent, Home::Reuse::ring,
                                 LaneKind::h2d);
  } else {
    n1 = normed(builder_.name("renorm1.{}", extent), "norm1", frame, x, rows);
  }
  frame.x[index(extent)] = x;
  frame.n1[index(extent)] = n1;
  frame.dn1[index(extent)] = temporary(norm_gradient_, rows);
}

void Rows::first_norm_gradient(LayerFrame& frame, std::int64_t extent) {
  const Operand dh = frame.homes->residual_gradient.fetch(builder_, Version::plus(0), extent,
                                                          Home::Reuse::ring, LaneKind::h2d);
  const Operand dx = frame.dx.home->produce(builder_, frame.dx.instance, extent);
  normed_backward(builder_.name("dx.{}", extent), {.layer = "norm1",
                                                   .use = frame.weights,
                                                   .sum = Version::plus(0),
                                                   .x = frame.x[index(extent)],
                                                   .dy = frame.dn1[index(extent)],
                                                   .addend = dh,
                                                   .dx = dx,
                                                   .rows = shape_.extent_rows(extent),
                                                   .local_first = extent_first(extent)});
  frame.dx.home->spill(builder_, frame.dx.instance, extent, dx, out_lane());
}

}  // namespace fpdt
