// Emits rows, forward.
#include "fpdt/plan/lowering/rows.h"

#include <algorithm>

#include "fpdt/plan/lowering/groups.h"

namespace fpdt {

Rows::Rows(Context& context, Transition& transition)
    : LoweringPart(context), products_(context), tensor_ranks_(context), transition_(transition) {
  const std::int64_t extent = shape_.extent_rows(0);
  const std::int64_t chunk = shape_.product_rows(0);
  const std::int64_t tile = ffn_tile();
  normed_ = rows_of_width("normed", extent, model_.hidden, storage_);
  const auto projection = [&](const char* layer, const char* rows, const char* gradient,
                              std::int64_t width) {
    projections_.push_back({layer, width, rows_of_width(rows, chunk, width, storage_),
                            rows_of_width(gradient, chunk, width, storage_)});
  };
  if (keys_apart(model_, strategy_)) {
    projection("q", "q_rows", "q_gradient", part_.q_width());
    projection("kv", "kv_rows", "kv_gradient", 2 * part_.kv_width());
  } else {
    projection("qkv", "qkv", "qkv_gradient", part_.qkv_width());
  }
  for (const LayerClass& one : strategy_.layer_classes) {
    if (!projects_queries_again(strategy_, one) || q_alone_ >= 0) continue;
    q_alone_ = rows_of_width("q_rows", chunk, part_.q_width(), storage_);
    kv_alone_ = rows_of_width("kv_rows", chunk, 2 * part_.kv_width(), storage_);
  }
  residual_ = rows_of_width("residual_chunk", extent, model_.hidden, storage_);
  if (model_.post_norms) {
    attention_branch_ = rows_of_width("attention_branch", extent, model_.hidden, storage_);
    ffn_branch_ = rows_of_width("ffn_branch", extent, model_.hidden, storage_);
    branch_gradient_ = rows_of_width("branch_gradient", extent, model_.hidden, storage_);
  }
  norm_gradient_ = rows_of_width("norm_gradient", extent, model_.hidden, storage_);
  if (!model_.has_experts()) {
    dense_ = dense("up", "down", part_.feed_forward, "");
    return;
  }
  // Beside slices of experts outside, all tiles are open.
  const std::int64_t tiles = strategy_.tiles.slices_outside() ? tiles_of(0) : 1;
  experts_.emplace(context, activation_kind(), tile, tiles);
  if (model_.shared_feed_forward > 0) {
    dense_ = dense("shared_up", "shared_down", model_.shared_feed_forward, ".shared");
    dense_->place = "shared.";
    dense_->out = rows_of_width("out.shared", tile, model_.hidden, storage_, tiles);
    dense_->input_gradient = rows_of_width("gradient.shared", tile, model_.hidden, storage_, tiles);
  }
  for (const LayerKind& kind : model_.kinds) {
    const std::int64_t width = kind.dense_feed_forward;
    const auto known = std::find_if(of_dense_kinds_.begin(), of_dense_kinds_.end(),
                                    [&](const auto& one) { return one.first == width; });
    if (width == 0 || known != of_dense_kinds_.end()) continue;
    of_dense_kinds_.emplace_back(width, dense("up", "down", width, "." + kind.name));
  }
}

Rows::Dense Rows::dense(const char* up, const char* down, std::int64_t width,
                        const std::string& suffix) {
  Dense made{up, down, "", width, model_.up_width_of(width), -1, -1, -1, -1};
  const auto rows = [&](const char* name, std::int64_t columns) {
    return rows_of_width((name + suffix).c_str(), ffn_tile(), columns, storage_);
  };
  made.up_rows = rows("up", made.up_width);
  made.act = rows("act", width);
  made.act_gradient = rows("act_gradient", width);
  made.up_gradient = rows("up_gradient", made.up_width);
  return made;
}

const Rows::Dense* Rows::dense_of(const LayerFrame& frame) const {
  const std::int64_t width = frame.kind->dense_feed_forward;
  for (const auto& [of_width, one] : of_dense_kinds_) {
    if (of_width == width) return &one;
  }
  return dense_ ? &*dense_ : nullptr;
}

ActivationKind Rows::activation_kind() const {
  return same_word<ActivationKind>(model_.activation);
}

std::int64_t Rows::ffn_tile() const {
  const std::int64_t most = shape_.product_rows(0);
  return strategy_.tiles.ffn_rows > 0 ? std::min(strategy_.tiles.ffn_rows, most) : most;
}

std::int64_t Rows::tiles_of(std::int64_t extent) const {
  return div_ceil(shape_.extent_product_rows(extent), ffn_tile());
}

std::pair<std::int64_t, std::int64_t> Rows::tile_rows(std::int64_t extent, std::int64_t i) const {
  const std::int64_t first = i * ffn_tile();
  return {first, std::min(ffn_tile(), shape_.extent_product_rows(extent) - first)};
}

void Rows::project(LayerFrame& frame, std::int64_t chunk) {
  if (enters(chunk, Loop::up)) first_norm(frame, shape_.extent_of(chunk));
  const Operand n1 = tensor_ranks_.gather(builder_.name("gather_n1.{}", chunk),
                                          chunk_of(frame.n1[index(shape_.extent_of(chunk))], chunk),
                                          shape_.local_rows(chunk));
  if (!again(frame) || chunk < frame.rows) {
    const Transition::Projected qkv = qkv_products(frame, "", chunk, n1);
    joint_norms([&](const Products::JointNorm& norm, auto part) {
      products_.joint_norm(builder_.name("{}.{}", norm.layer, chunk), norm, frame.weights,
                           qkv.*part, shape_.product_rows(chunk));
    });
    return transition_.to_heads(frame, chunk, qkv);
  }
  const std::int64_t rows = shape_.product_rows(chunk);
  const Operand kv = temporary(kv_alone_, rows);
  products_.linear_part(builder_.name("kv.{}", chunk), "qkv", frame.weights, n1, kv, rows,
                        model_.hidden, part_.q_width(), 2 * part_.kv_width());
  if (model_.joint_qk_norm) {
    products_.joint_norm(builder_.name("k_norm.{}", chunk), joint_norm_of_keys(0), frame.weights,
                         kv, rows);
  }
  transition_.keys_to_heads(frame, chunk, kv);
}

void Rows::project_queries(LayerFrame& frame, std::int64_t chunk) {
  if (!again(frame)) return;
  const std::int64_t rows = shape_.product_rows(chunk);
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
  const Operand n1 = normed(builder_.name("norm1_q.{}", chunk), "norm1", frame, x, rows);
  const Operand q = temporary(q_alone_, rows);
  products_.linear_part(builder_.name("q.{}", chunk), "qkv", frame.weights, n1, q, rows,
                        model_.hidden, 0, part_.q_width());
  if (model_.joint_qk_norm) {
    products_.joint_norm(builder_.name("q_norm_q.{}", chunk), joint_norm_of_queries(0),
                         frame.weights, q, rows);
  }
  transition_.queries_to_heads(frame, chunk, q);
}

// In rows of queries alone, or with keys and values after them.
Products::JointNorm Rows::joint_norm_of_queries(std::int64_t after) const {
  return {"q_norm", part_.q_width(), part_.q_width() + after, 0};
}
// In rows of keys and values, with queries before them or without.
Products::JointNorm Rows::joint_norm_of_keys(std::int64_t before) const {
  return {"k_norm", part_.kv_width(), before + 2 * part_.kv_width(), before};
}

Transition::Projected Rows::qkv_products(const LayerFrame& frame, const char* prefix,
                                         std::int64_t chunk, const Operand& n1) {
  Transition::Projected made;
  const std::int64_t rows = shape_.product_rows(chunk);
  for (const Projection& one : projections_) {
    Operand& out = made.queries.present() ? made.keys : made.queries;
    out = temporary(one.rows, rows);
    products_.linear(builder_.name("{}{}.{}", prefix, one.layer, chunk), one.layer, frame.weights,
                     n1, out, rows, model_.hidden, one.width);
  }
  return made;
}

void Rows::first_norm(LayerFrame& frame, std::int64_t extent) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.extent_rows(extent);
  const bool stores = frame.stores(Recompute::keep_all) && model_.pre_norms;
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, extent, reuse(), LaneKind::h2d);
  const std::string op = builder_.name("norm1.{}", extent);
  Operand n1;
  if (stores) {
    n1 = homes.norm_output.produce(builder_, inputs(frame), extent);
    products_.norm(op, "norm1", frame.weights, x, n1, rows);
    homes.norm_output.spill(builder_, inputs(frame), extent, n1, out_lane());
  } else {
    n1 = normed(op, "norm1", frame, x, rows);
  }
  frame.x[index(extent)] = x;
  frame.n1[index(extent)] = n1;
}

// x with its norm, or x itself where inputs are not normed.
Operand Rows::normed(const std::string& op, const std::string& layer, const LayerFrame& frame,
                     const Operand& x, std::int64_t rows) {
  if (!model_.pre_norms) return x;
  const Operand made = temporary(normed_, rows);
  products_.norm(op, layer, frame.weights, x, made, rows);
  return made;
}

Operand Rows::branch(BufferId ring, const Operand& sum, std::int64_t rows) {
  return model_.post_norms ? temporary(ring, rows) : sum;
}

void Rows::join(const std::string& layer, const LayerFrame& frame, const std::string& op,
                const Operand& branch, const Operand& residual, const Operand& sum,
                std::int64_t rows) {
  const Operand made = temporary(normed_, rows);
  products_.norm(layer + "." + op, layer, frame.weights, branch, made, rows);
  builder_.emit("join_" + layer + "." + op, LaneKind::compute,
                Add{made, residual, {}, {sum, false}, rows, model_.hidden});
}

// h = the output projection of attention, normed with post norms, + x.
void Rows::out_product(LayerFrame& frame, std::int64_t extent, const Operand& context,
                       const Operand& x, const Operand& h) {
  const std::int64_t rows = shape_.extent_rows(extent);
  const std::string place = builder_.name("{}", extent);
  const Operand made = branch(attention_branch_, h, rows);
  const Operand part = tensor_ranks_.part_of_sum(made, rows);
  const Operand addend = model_.post_norms ? Operand{} : x;
  products_.linear("out." + place, "out", frame.weights, context, part,
                   shape_.extent_product_rows(extent), part_.q_width(), model_.hidden, addend);
  frame.branch[index(extent)] = made;
  if (!model_.post_norms) {
    return tensor_ranks_.add_up("out." + place, part, h, rows, {"out", frame.weights, x});
  }
  tensor_ranks_.add_up("out." + place, part, made, rows);
  if (h.present()) join("out_norm", frame, place, made, x, h, rows);
}

Rows::Inner Rows::inner(const LayerFrame& frame, const Dense& of, const char* prefix,
                        const std::string& place, const Operand& n2, const Operand& kept_up,
                        std::int64_t at, std::int64_t rows) {
  const Operand up = kept_up.present() ? rows_of(kept_up, at, rows) : temporary(of.up_rows, rows);
  if (!kept_up.present() || frame.visit != Visit::backward) {
    products_.linear(builder_.name("{}up.{}{}", prefix, of.place, place), of.up, frame.weights,
                     rows_of(n2, at, rows), up, rows, model_.hidden, of.up_width);
  }
  const Operand act = temporary(of.act, rows);
  builder_.emit(builder_.name("{}act.{}{}", prefix, of.place, place), LaneKind::compute,
                Activation{up, {act, false}, activation_kind(), rows, of.width});
  return {up, act};
}

void Rows::feed_forward(LayerFrame& frame, std::int64_t extent) {
  Homes& homes = *frame.homes;
  const std::size_t at = index(extent);
  const std::int64_t rows = shape_.extent_rows(extent);
  const std::int64_t hidden = model_.hidden;
  const bool all = frame.stores(Recompute::keep_all);
  const bool parallel = model_.parallel_residual;
  const Instance stored = stored_instance(homes);
  const bool keep = all && !parallel;
  Operand& x = frame.x[at];  // of the projection, unless there was none, or many rows ago
  if (shape_.hops > 1 || !x.present()) {
    x = frame.input.home->fetch(builder_, frame.input.instance, extent, reuse(), LaneKind::h2d);
  }
  Operand& context = frame.attention_output[at];
  if (!context.present()) {
    context =
        homes.attention_output.fetch(builder_, stored, extent, Home::Reuse::ring, LaneKind::h2d);
  }
  const Operand h =
      keep ? homes.residual.produce(builder_, stored, extent) : temporary(residual_, rows);
  out_product(frame, extent, context, x, h);
  if (keep) homes.residual.spill(builder_, stored, extent, h, out_lane());
  const Operand n2 =
      normed(builder_.name("norm2.{}", extent), "norm2", frame, parallel ? x : h, rows);
  const Operand n2_all = tensor_ranks_.gather(builder_.name("gather_n2.{}", extent), n2, rows);
  const Operand y = frame.output.home->produce(builder_, frame.output.instance, extent);
  const Operand made = branch(ffn_branch_, y, rows);
  const Operand part = tensor_ranks_.part_of_sum(made, rows);
  const Operand up_all = all ? homes.ffn_hidden.produce(builder_, stored, extent) : Operand{};
  const std::string place = builder_.name("{}", extent);
  const auto tile = [&](std::int64_t i) {
    const auto [first, r] = tile_rows(extent, i);
    const std::string at_rows = builder_.name("{}.{}", extent, first);
    Operand sum = rows_of(h, first, r);
    if (const Dense* const dense = dense_of(frame); dense != nullptr) {
      const Inner now = inner(frame, *dense, "", at_rows, n2_all, up_all, first, r);
      const Operand out = has_experts(frame) ? temporary(dense->out, r) : rows_of(part, first, r);
      products_.linear("down." + dense->place + at_rows, dense->down, frame.weights, now.act, out,
                       r, dense->width, hidden, model_.post_norms ? Operand{} : sum);
      sum = out;
    }
    return Experts::Tile{at_rows, rows_of(n2_all, first, r),   {}, sum, rows_of(part, first, r),
                         r,       extent_first(extent) + first};
  };
  if (has_experts(frame)) {
    experts_->forward(frame, extent, tiles_of(extent), tile);
  } else {
    for (std::int64_t i = 0; i < tiles_of(extent); ++i) tile(i);
  }
  if (model_.post_norms) {
    tensor_ranks_.add_up("down." + place, part, made, rows);
    join("down_norm", frame, place, made, h, y, rows);
  } else {
    tensor_ranks_.add_up("down." + place, part, y, rows, {"down", frame.weights, h});
  }
  if (all) homes.ffn_hidden.spill(builder_, stored, extent, up_all, out_lane());
  frame.output.home->spill(builder_, frame.output.instance, extent, y, out_lane());
}

}  // namespace fpdt
