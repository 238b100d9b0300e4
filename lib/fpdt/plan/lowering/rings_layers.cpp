// Rings of the layers, forward and backward.
#include <algorithm>

#include "fpdt/plan/lowering/rings.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {

void Rings::layers() {
  std::int64_t first = 0;
  for (std::size_t c = 0; c < strategy_.layer_classes.size(); ++c) {
    const LayerClass& choice = strategy_.layer_classes[c];
    count_ = choice.layers > 0 ? choice.layers : model_.layers - first;
    first += count_;
    suffix_.clear();
    if (strategy_.layer_classes.size() > 1) suffix_.append(1, '_').append(std::to_string(c));
    if (strategy_.checkpoint_every() == 1) {
      forward("forward" + suffix_, choice, true, true);
      backward("backward" + suffix_, choice, true);
      continue;
    }
    const bool several = strategy_.checkpoint_every() > 2;
    const bool stored = choice.recompute == Recompute::keep_attention;
    LayerClass plain = choice;
    plain.recompute = Recompute::from_input;
    forward("forward_first", plain, true, false);
    forward("forward_last", plain, false, true);
    if (several) forward("forward_middle", plain, false, false);
    if (stored) backward("backward_last", plain, false);
    in_segment_ = stored;
    forward("rerun_first", choice, true, false);
    if (several) forward("rerun_middle", choice, false, false);
    backward("backward_first", choice, true);
    if (several || !stored) backward("backward_inside", choice, false);
  }
}

HomeShape Rings::shape_of(const std::string& name, std::int64_t rows, std::int64_t last_rows,
                          std::int64_t width, Dtype dtype) const {
  HomeShape shape;
  shape.name = name;
  shape.dtype = dtype;
  shape.width = width;
  shape.chunks = shape_.chunks;
  shape.rows = rows;
  shape.last_rows = last_rows;
  shape.fetched_slots = 1 + strategy_.copies.prefetch_depth;
  return shape;
}

HomeShape Rings::head_rows(TensorClass tensor, const LayerClass& choice, std::int64_t width,
                           Dtype dtype, bool lasting) const {
  const bool keys = tensor == TensorClass::kv || tensor == TensorClass::dkv;
  const std::int64_t last = shape_.chunks - 1;
  HomeShape shape = shape_of(std::string(word(tensor)) + suffix_, keys ? keys_ : queries_,
                             keys ? shape_.key_rows(last) : shape_.query_rows(last), width, dtype);
  shape.keep = choice.kept(tensor);
  shape.contiguous = keys && shape_.hops == 1;
  shape.lasting = lasting;
  shape.instances = lasting ? count_ : 1;
  // Outputs that repeats of a segment store die with the segment.
  const bool output = tensor == TensorClass::attention_output || tensor == TensorClass::lse;
  if (in_segment_ && output) {
    shape.name += "_segment";
    shape.instances = strategy_.checkpoint_every() - 1;
    shape.lasting = false;
  }
  return shape;
}

HomeShape Rings::local_rows(TensorClass tensor, const LayerClass& choice, std::int64_t width,
                            bool lasting) const {
  HomeShape shape = head_rows(tensor, choice, width, storage_, lasting);
  shape.chunks = shape_.extents;
  shape.rows = extent_;
  shape.last_rows = shape_.extent_rows(shape_.extents - 1);
  if (whole_) shape.produced_slots = shape.fetched_slots = 1;
  return shape;
}

void Rings::stream(const std::string& block, unsigned parts, bool checkpoint) {
  const std::int64_t every = strategy_.checkpoint_every();
  HomeShape shape = local_rows(TensorClass::layer_input, strategy_.layer_classes.front(),
                               model_.hidden, checkpoint);
  shape.name = checkpoint ? "layer_input" : "segment_input";
  shape.instances = checkpoint ? model_.layers / every + 1 : every - 1;
  // project reads x_i, and so does feed_forward, two chunks later when all-to-alls overlap. Where
  // keys go around a ring, it comes again.
  if (!whole_ && shape_.hops == 1) shape.fetched_slots += 2 * overlap_;
  touch_home(block, shape, parts);
}

void Rings::layer_gradient(const std::string& block, unsigned parts) {
  HomeShape shape = local_rows(TensorClass::layer_gradient, strategy_.layer_classes.front(),
                               model_.hidden, false);
  shape.name = "layer_gradient";
  touch_home(block, shape, parts);
}

std::int64_t Rings::ffn_rows() const {
  const std::int64_t tile = strategy_.tiles.ffn_rows;
  return tile > 0 ? std::min(tile, local_) : local_;
}

// The workspace of the library's attention kernels: as large as the most demanding tile.
void Rings::workspace(const std::string& block) {
  if (workspace_ > 0) flat(block, "workspace", div_exact(workspace_, 4), Dtype::f32);
}

void Rings::project(const std::string& block, const LayerClass& choice, bool recompute) {
  const bool all = choice.recompute == Recompute::keep_all;
  const unsigned made = kKept | kNew | (all || recompute || shape_.hops > 1 ? kHost : 0U);
  if (all) {
    touch_home(block, local_rows(TensorClass::norm_output, choice, model_.hidden, true), made);
  }
  touch_home(block, head_rows(TensorClass::q, choice, q_width(), storage_, all), made);
  touch_home(block, head_rows(TensorClass::kv, choice, kv_width(), storage_, all),
             kKept | kNew | kHost);
  if (shape_.gathers_keys()) staging(block, "kv_own", kv_width(), storage_);
  if (head_ranks_ == 1) return;
  staging(block, "q_send", q_width(), storage_);
  staging(block, "kv_send", kv_width(), storage_);
}

// Workspace of the largest attention tile. Forward does not depend on the keys. A backward tile has
// the keys of one chunk, or of all chunks up to its own whose K/V and their gradients are on the
// device; the last chunk may be shorter.
std::int64_t Rings::workspace_bytes(const LayerClass& choice) const {
  if (!fused_attention(problem_, strategy_)) return 0;
  const auto bytes = [&](AttentionDirection direction, std::int64_t rows, std::int64_t keys) {
    return attention_workspace_bytes(direction, rows, keys, shape_.heads, shape_.kv_heads,
                                     model_.head_dim)
        .value;
  };
  using enum AttentionDirection;
  const std::int64_t last_keys = shape_.key_rows(shape_.chunks - 1);
  const std::int64_t last = shape_.query_rows(shape_.chunks - 1);
  const std::int64_t least =
      std::max({bytes(forward, queries_, keys_), bytes(backward, queries_, keys_),
                bytes(backward, last, keys_)});
  if (!strategy_.tiles.long_tiles || !query_outer()) return least;
  const auto resident = static_cast<std::int64_t>(
      std::min(choice.kept(TensorClass::kv), choice.kept(TensorClass::dkv)) *
      static_cast<double>(shape_.chunks));
  if (resident == 0) return least;
  const std::int64_t before = (resident - 1) * shape_.chunk_rows;
  return std::max({least, bytes(backward, last, before + last_keys),
                   bytes(backward, queries_, std::max(keys_, before))});
}

// project, attention tiles and the return of their output, for every chunk.
void Rings::rows_forward(const std::string& block, const LayerClass& choice, bool recompute) {
  const bool all = choice.recompute == Recompute::keep_all;
  const bool from_input = choice.recompute == Recompute::from_input;
  project(block, choice, recompute);
  touch_home(block, head_rows(TensorClass::kv, choice, kv_width(), storage_, all), kFetched);
  if (shape_.hops > 1) hops(block, choice);
  const HomeShape sums = between_hops(TensorClass::attention_sum, choice, q_width());
  if (shape_.hops == 1 || sums.kept_chunks() < sums.chunks) {
    activation(block, "o", queries_, q_width(), Dtype::f32, 1 + overlap_);
  }
  workspace(block);
  const unsigned made = kKept | kNew | (!from_input || recompute ? kHost : 0U);
  touch_home(block, head_rows(TensorClass::lse, choice, shape_.heads, Dtype::f32, !from_input),
             made);
  attention_output(block, choice, made);
  if (head_ranks_ == 1) return;
  if (storage_ != Dtype::f32) staging(block, "o_send", q_width(), storage_);
  staging(block, "o_receive", q_width(), storage_);
}

// Keys of other ranks, and sums of attention that go on from hop to hop.
void Rings::hops(const std::string& block, const LayerClass& choice) {
  const bool all = choice.recompute == Recompute::keep_all;
  touch_home(block, head_rows(TensorClass::q, choice, q_width(), storage_, all), kFetched);
  touch_home(block, key_ring(TensorClass::kv, choice), kAllParts);
  touch_home(block, between_hops(TensorClass::attention_sum, choice, q_width()), kAllParts);
  HomeShape lse = between_hops(TensorClass::attention_sum, choice, shape_.heads);
  lse.name = "lse_sum" + suffix_;
  touch_home(block, lse, kAllParts);
}

// A sum that goes on from hop to hop. It goes to the host in the first, and comes back for the last
// into a ring of its row.
HomeShape Rings::between_hops(TensorClass tensor, const LayerClass& choice,
                              std::int64_t width) const {
  HomeShape shape = head_rows(tensor, choice, width, Dtype::f32, false);
  if (shape_.hops == 2) shape.fetched_slots = 0;
  return shape;
}

// Chunks that arrive, while those of the hop before are in use.
HomeShape Rings::key_ring(TensorClass tensor, const LayerClass& choice) const {
  const bool gradients = tensor == TensorClass::dkv;
  const bool exact = gradients && strategy_.key_gradients == Storage::f32;
  HomeShape shape = head_rows(tensor, choice, kv_width(), exact ? Dtype::f32 : storage_, false);
  shape.name = (gradients ? "dkv_ring" : "kv_ring") + suffix_;
  shape.instances = std::min<std::int64_t>(2, shape_.hops - 1);
  return shape;
}

void Rings::forward(const std::string& block, const LayerClass& choice, bool from_checkpoint,
                    bool to_checkpoint) {
  weights(block, layer_list(), 2);
  documents(block);
  stream(block, kKept | kHost | kFetched, from_checkpoint);
  stream(block, kKept | kNew | kHost, to_checkpoint);
  activation(block, "normed", extent_, model_.hidden, storage_);
  activation(block, "qkv", local_, model_.qkv_width(), storage_);
  rows_forward(block, choice, false);
  activation(block, "act", ffn_rows(), model_.feed_forward, storage_);
  if (choice.recompute == Recompute::keep_all) {
    residual(block, choice, kKept | kNew | kHost);
    touch_home(block, local_rows(TensorClass::ffn_hidden, choice, model_.up_width(), true),
               kKept | kNew | kHost);
    if (model_.parallel_residual)
      activation(block, "residual_chunk", extent_, model_.hidden, storage_);
    return;
  }
  activation(block, "residual_chunk", extent_, model_.hidden, storage_);
  activation(block, "up", ffn_rows(), model_.up_width(), storage_);
}

// Whole ones stay on the device in the block that repeats them.
void Rings::attention_output(const std::string& block, const LayerClass& choice, unsigned parts) {
  const bool from_input = choice.recompute == Recompute::from_input;
  HomeShape shape =
      local_rows(TensorClass::attention_output, choice, model_.q_width(), !from_input);
  shape.stored = !(whole_ && from_input);
  touch_home(block, shape, parts);
}

// The stream between attention and feed-forward. With parallel residuals backward does not use it.
void Rings::residual(const std::string& block, const LayerClass& choice, unsigned parts) {
  if (model_.parallel_residual) return;
  touch_home(block, local_rows(TensorClass::residual, choice, model_.hidden, true), parts);
}

// Whether backward reads a bias. It reads biases where it repeats forward: never that of the last
// product; that of the output projection only to repeat the residual; that of qkv also where heads
// are normalised; others unless everything is kept, except that the second norm is always repeated.
bool Rings::read_in_backward(const std::string& name, const LayerClass& choice) const {
  const bool all = choice.recompute == Recompute::keep_all;
  if (name == "down.bias") return false;
  if (name == "out.bias") return !all && !model_.parallel_residual;
  if (name == "qkv.bias") return !all || model_.qk_norm;
  return !all || !name.ends_with(".bias") || name == "norm2.bias";
}

void Rings::backward(const std::string& block, const LayerClass& choice, bool from_checkpoint) {
  std::vector<Tensor> read_weights = layer_list();
  std::erase_if(read_weights,
                [&](const Tensor& tensor) { return !read_in_backward(tensor.spec.name, choice); });
  weights(block, read_weights, 2);
  gradient_sums(block, layer_list(), 2);
  documents(block);
  stream(block, kKept | kHost | kFetched, from_checkpoint);
  layer_gradient(block, kKept | kNew | kHost | kFetched);
  activation(block, "normed", extent_, model_.hidden, storage_);
  activation(block, "norm_gradient", extent_, model_.hidden, storage_);
  activation(block, "qkv", local_, model_.qkv_width(), storage_);
  if (model_.qk_norm) {
    activation(block, "qkv_gradient", local_, model_.qkv_width(), storage_);
  }
  if (choice.recompute == Recompute::from_input) rows_forward(block, choice, true);
  if (choice.recompute == Recompute::keep_attention) project(block, choice, true);
  if (choice.recompute == Recompute::keep_all) {
    const unsigned read = kKept | kHost | kFetched;
    touch_home(block, local_rows(TensorClass::norm_output, choice, model_.hidden, true), read);
    residual(block, choice, read);
    touch_home(block, local_rows(TensorClass::ffn_hidden, choice, model_.up_width(), true), read);
  } else {
    if (!model_.parallel_residual)
      activation(block, "residual_chunk", extent_, model_.hidden, storage_);
    activation(block, "up", ffn_rows(), model_.up_width(), storage_);
  }
  activation(block, "act", ffn_rows(), model_.feed_forward, storage_);
  activation(block, "act_gradient", ffn_rows(), model_.feed_forward, storage_);
  activation(block, "up_gradient", ffn_rows(), model_.up_width(), storage_);
  HomeShape dh = local_rows(TensorClass::residual_gradient, choice, model_.hidden, false);
  dh.stored = !used_in_row() && !whole_;
  if (used_in_row() && !whole_) dh.produced_slots = 2 + overlap_;
  touch_home(block, dh, dh.stored ? kKept | kNew | kHost | kFetched : kNew);
  tiles_backward(block, choice);
  if (shape_.gathers_keys()) {
    staging(block, "dkv_own", kv_width(), Dtype::f32);
    sum_workspace(block);
  }
  if (shape_.hops > 1) gradient_hops(block, choice);
  if (head_ranks_ == 1 && shape_.extents == shape_.chunks) return;
  activation(block, "dcontext", extent_, model_.q_width(), storage_);
  activation(block, "delta_chunk", extent_, model_.heads, Dtype::f32);
  if (head_ranks_ == 1) return;
  staging(block, "dout_send", q_width(), storage_);
  staging(block, "delta_send", shape_.heads, Dtype::f32);
  staging(block, "dq_receive", q_width(), storage_);
  staging(block, "dkv_receive", kv_width(), storage_);
  if (storage_ == Dtype::f32) return;
  staging(block, "dq_send", q_width(), storage_);
  staging(block, "dkv_send", kv_width(), storage_);
}

// The operands and sums of attention tiles: the query side, K/V, and the streamed accumulator.
void Rings::tiles_backward(const std::string& block, const LayerClass& choice) {
  const bool all = choice.recompute == Recompute::keep_all;
  const bool from_input = choice.recompute == Recompute::from_input;
  const unsigned read = kKept | kHost | kFetched;
  workspace(block);
  touch_home(block, head_rows(TensorClass::q, choice, q_width(), storage_, all), read);
  touch_home(block, head_rows(TensorClass::kv, choice, kv_width(), storage_, all), read);
  touch_home(block, head_rows(TensorClass::lse, choice, shape_.heads, Dtype::f32, !from_input),
             read);
  attention_output(block, choice, read);
  HomeShape dout = head_rows(TensorClass::dout, choice, q_width(), storage_, false);
  HomeShape delta = head_rows(TensorClass::dout, choice, shape_.heads, Dtype::f32, false);
  delta.name = "delta" + suffix_;
  dout.stored = delta.stored = !used_in_row();
  touch_home(block, dout, dout.stored ? read | kNew : kNew);
  touch_home(block, delta, dout.stored ? read | kNew : kNew);
  const HomeShape dq = query_outer() && shape_.hops > 1
                           ? between_hops(TensorClass::dq, choice, q_width())
                           : head_rows(TensorClass::dq, choice, q_width(), Dtype::f32, false);
  const HomeShape dkv = head_rows(TensorClass::dkv, choice, kv_width(), Dtype::f32, false);
  const auto sum = [&](const char* name, const HomeShape& like) {
    activation(block, name, like.rows, like.width, Dtype::f32, 1 + overlap_);
  };
  const auto spills = [](const HomeShape& home) { return home.kept_chunks() < home.chunks; };
  if (query_outer()) {
    touch_home(block, dkv, read | kNew);
    if (spills(dkv)) sum("dkv_diagonal", dkv);
    if (shape_.hops > 1) touch_home(block, dq, kAllParts);
    if (shape_.hops == 1 || spills(dq)) sum("dq_sum", dq);
  } else {
    touch_home(block, dq, read | kNew);
    if (spills(dq)) sum("dq_diagonal", dq);
    sum("dkv_sum", dkv);
  }
}

// Keys of other ranks, and their gradients on the way home.
void Rings::gradient_hops(const std::string& block, const LayerClass& choice) {
  touch_home(block, key_ring(TensorClass::kv, choice), kAllParts);
  const HomeShape gradients = key_ring(TensorClass::dkv, choice);
  touch_home(block, gradients, kAllParts);
  if (gradients.dtype == Dtype::f32) return;
  activation(block, "dkv_pass", keys_, kv_width(), gradients.dtype, 1 + overlap_);
}

}  // namespace fpdt
