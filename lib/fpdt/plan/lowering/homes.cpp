// The homes of the residual stream and of every layer class.
//
// Units: one rank; e bytes of storage; l = c/P rows of a chunk on one rank, n = c rows after the
// all-to-all, C chunks, h = H/P and g = max(1, G/P) heads.
//
// Ranks that share products (T) also share the widths of q, o and the hidden rows of the
// feed-forward, and hold T times as many rows of them.
//
// Per chunk (the counts of Yao et al., arXiv 2408.16978): hidden tensors l*E*e; q, o, dO and dq
// n*h*D each; KV and dKV n*2g*D; lse and delta n*h*4. A tensor class that keeps k of C chunks costs
// k device chunks a live instance. The others cost C-k host chunks an instance, two device chunks
// where they are produced and 1 + depth where they are fetched. A chunk that backward repeats costs
// one on the host. Every slot is rounded up to kAlignment.
#include <algorithm>
#include <utility>

#include "fpdt/plan/lowering/context.h"

namespace fpdt {
namespace {

// Makes the homes of one layer class.
class HomeMaker {
 public:
  HomeMaker(Context& context, const LayerClass& choice, std::string suffix, std::int64_t layers)
      : context_(context),
        strategy_(context.strategy),
        model_(context.problem.model),
        part_(context.part),
        shape_(context.shape),
        choice_(choice),
        suffix_(std::move(suffix)),
        layers_(layers) {}

  // Rows of queries or keys of this rank's heads. `lasting`: they live from forward to backward, so
  // that each layer has an instance.
  [[nodiscard]] HomeShape head_rows(TensorClass tensor, std::int64_t width, Dtype dtype,
                                    bool lasting = false) const {
    const bool keys = tensor == TensorClass::kv || tensor == TensorClass::dkv;
    const std::int64_t last = shape_.chunks - 1;
    HomeShape made;
    made.name = std::string(word(tensor)) + suffix_;
    made.dtype = dtype;
    made.width = width;
    made.chunks = shape_.chunks;
    made.rows = keys ? shape_.key_rows(0) : shape_.query_rows(0);
    made.last_rows = keys ? shape_.key_rows(last) : shape_.query_rows(last);
    made.fetched_slots = 1 + strategy_.copies.prefetch_depth;
    made.kept = shape_.parts(choice_, tensor).kept;
    made.contiguous = keys && shape_.hops == 1;
    made.instances = lasting ? layers_ : 1;
    return made;
  }

  // An extent of the rows on which products are computed, in sequence layout.
  [[nodiscard]] HomeShape product_rows(TensorClass tensor, std::int64_t width,
                                       bool lasting = false) const {
    HomeShape made = local_rows(tensor, width, lasting);
    made.rows *= shape_.tensor_ranks;
    made.last_rows *= shape_.tensor_ranks;
    return made;
  }

  // An extent of rows in sequence layout.
  [[nodiscard]] HomeShape local_rows(TensorClass tensor, std::int64_t width,
                                     bool lasting = false) const {
    HomeShape made = head_rows(tensor, width, storage(), lasting);
    made.chunks = shape_.extents;
    made.rows = shape_.extent_rows(0);
    made.last_rows = shape_.extent_rows(shape_.extents - 1);
    if (whole()) made.produced_slots = made.fetched_slots = 1;
    return made;
  }

  // A sum that goes on from hop to hop. It goes to the host in the first, and comes back for the
  // last into a ring of its row.
  [[nodiscard]] HomeShape between_hops(TensorClass tensor, std::int64_t width) const {
    HomeShape made = head_rows(tensor, width, Dtype::f32);
    if (shape_.hops == 2) made.fetched_slots = 0;
    return made;
  }

  // Chunks that arrive, while those of the hop before are in use.
  [[nodiscard]] HomeShape key_ring(TensorClass tensor, const char* name, Dtype dtype) const {
    HomeShape made = head_rows(tensor, kv_width(), dtype);
    made.name = name + suffix_;
    made.instances = std::min<std::int64_t>(2, shape_.hops - 1);
    return made;
  }

  // Attention output and lse. Chunks whose attention is repeated live until backward of their
  // layer.
  void attention_outputs(Homes& made) const {
    const bool from_input = choice_.recompute == Recompute::from_input;
    HomeShape output = product_rows(TensorClass::attention_output, part_.q_width(), !from_input);
    output.stored = stored(TensorClass::attention_output);
    HomeShape lse = head_rows(TensorClass::lse, shape_.heads, Dtype::f32, !from_input);
    if (!from_input) {
      lse.repeated = choice_.first_stored_chunk;
      output.repeated = whole() ? std::min<std::int64_t>(lse.repeated, 1) : lse.repeated;
      share_slots(output);
      share_slots(lse);
    }
    made.attention_output = home(output);
    made.lse = home(lse);
  }

  // The repeated chunks of a segment take the slots of the layers of the class after it.
  void share_slots(HomeShape& shape) const {
    shape.segments = context_.segments();
    if (shape.repeated == 0) return;
    const std::int64_t each = shape.chunks - shape.kept - shape.repeated;  // stored on the host
    std::int64_t after = 0;  // layers of the class, in later segments
    std::int64_t here = 0;
    std::int64_t most = 0;  // place of the class in the segment, and one
    const std::vector<LayerPlace>& places = context_.places;
    for (auto at = places.rbegin(); at != places.rend(); ++at) {
      if (&strategy_.layer_classes[at->layer_class] != &choice_) continue;
      if (here == 0) most = at->place + 1;
      ++here;
      const auto before = std::next(at);
      const bool ends = before == places.rend() || before->segment != at->segment ||
                        before->layer_class != at->layer_class;
      if (!ends) continue;
      shape.extra = std::max(shape.extra, most * shape.repeated - after * each);
      after += std::exchange(here, 0);
    }
  }

  void all(Homes& made) const {
    const bool keep_all = choice_.recompute == Recompute::keep_all;
    if (keep_all) {
      made.norm_output = home(local_rows(TensorClass::norm_output, model_.hidden, true));
      // Backward reads it where the feed-forward follows attention.
      if (!model_.parallel_residual) {
        made.residual = home(local_rows(TensorClass::residual, model_.hidden, true));
      }
      made.ffn_hidden = home(product_rows(TensorClass::ffn_hidden, part_.up_width(), true));
    }
    HomeShape q = head_rows(TensorClass::q, q_width(), storage(), keep_all);
    q.stored = stored(TensorClass::q);
    made.q = home(q);
    made.kv = home(head_rows(TensorClass::kv, kv_width(), storage(), keep_all));
    attention_outputs(made);
    gradients(made);
    if (shape_.hops > 1) between_ranks(made);
  }

 private:
  void gradients(Homes& made) const {
    const bool query_outer = strategy_.tiles.backward_order == BackwardOrder::q_outer;
    HomeShape residual = local_rows(TensorClass::residual_gradient, model_.hidden);
    residual.stored = stored(TensorClass::residual_gradient);
    if (!residual.stored && !whole()) {
      residual.produced_slots = strategy_.copies.overlap_all_to_all ? 3 : 2;
    }
    made.residual_gradient = home(residual);
    HomeShape dout = head_rows(TensorClass::dout, q_width(), storage());
    HomeShape delta = head_rows(TensorClass::dout, shape_.heads, Dtype::f32);
    delta.name = "delta" + suffix_;
    dout.stored = delta.stored = stored(TensorClass::dout);
    made.dout = home(dout);
    made.delta = home(delta);
    if (query_outer) made.dkv = home(head_rows(TensorClass::dkv, kv_width(), Dtype::f32));
    if (!stored(TensorClass::dq)) return;
    made.dq = home(query_outer ? between_hops(TensorClass::dq, q_width())
                               : head_rows(TensorClass::dq, q_width(), Dtype::f32));
  }

  void between_ranks(Homes& made) const {
    const bool exact = strategy_.key_gradients == Storage::f32;
    made.kv_ring = home(key_ring(TensorClass::kv, "kv_ring", storage()));
    made.dkv_ring = home(key_ring(TensorClass::dkv, "dkv_ring", exact ? Dtype::f32 : storage()));
    made.attention_sum = home(between_hops(TensorClass::attention_sum, q_width()));
    HomeShape lse = between_hops(TensorClass::attention_sum, shape_.heads);
    lse.name = "lse_sum" + suffix_;
    made.lse_sum = home(lse);
  }

  // Whether chunks live beyond the row or block that makes them.
  [[nodiscard]] bool stored(TensorClass tensor) const {
    return why_unused(strategy_, choice_, tensor).empty();
  }
  [[nodiscard]] Home home(const HomeShape& shape) const { return {context_.builder, shape}; }
  [[nodiscard]] Dtype storage() const { return storage_type(strategy_); }
  [[nodiscard]] bool whole() const { return strategy_.extent == Extent::whole; }
  [[nodiscard]] std::int64_t q_width() const { return shape_.heads * model_.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return 2 * shape_.kv_heads * model_.head_dim; }

  Context& context_;
  const Strategy& strategy_;
  const ModelSpec& model_;
  const ModelSpec& part_;
  const Geometry& shape_;
  const LayerClass& choice_;
  std::string suffix_;
  std::int64_t layers_;
};

}  // namespace

void Context::make_inputs() {
  const auto keeps = [&](const LayerPlace& at) {
    return strategy.layer_classes[at.layer_class].kept(TensorClass::layer_input);
  };
  std::vector<const LayerPlace*> first;  // layer of each group of segments
  for (const LayerPlace& at : places) {
    if (at.first() && (first.empty() || keeps(*first.back()) != keeps(at))) first.push_back(&at);
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool last = i + 1 == first.size();
    StoredInputs made;
    made.first = first[i]->segment;
    made.count = (last ? segments() + 1 : first[i + 1]->segment) - made.first;
    // In forward, the inputs of other layers are beside those of the segment and the next one.
    made.slots = made.count;
    const bool shared = strategy.layer_gradients == LayerGradients::in_inputs;
    made.turns =
        longest_segment(strategy) == 1 ? (shared ? 2 : 1) : (shared ? 3 : 2) * made.count + 2;
    for (const LayerPlace& at : places) {
      const std::int64_t segment = at.segment - made.first;
      if (segment < 0 || segment >= made.count || at.length == 1) continue;
      made.slots = std::max(made.slots, at.length + segment + 1);
    }
    const HomeMaker maker(*this, strategy.layer_classes[first[i]->layer_class], "", 1);
    HomeShape shape_of = maker.local_rows(TensorClass::layer_input, problem.model.hidden);
    if (first.size() > 1) shape_of.name.append(1, '_').append(std::to_string(i));
    shape_of.instances = made.slots;
    // project reads x_i, and so does feed_forward, two chunks later when all-to-alls overlap. Where
    // keys go around a ring, it comes again.
    const bool again = strategy.extent == Extent::chunk;
    if (again && shape.hops == 1 && strategy.copies.overlap_all_to_all) shape_of.fetched_slots += 2;
    made.home = Home(builder, shape_of);
    if (shared) {
      HomeShape gradient = maker.local_rows(TensorClass::layer_gradient, problem.model.hidden);
      if (first.size() > 1) gradient.name.append(1, '_').append(std::to_string(i));
      made.gradient = Home(builder, gradient, made.home);
    }
    layer_inputs.push_back(std::move(made));
  }
}

void Context::make_homes() {
  make_inputs();
  if (strategy.layer_gradients == LayerGradients::apart) {
    layer_gradient_ =
        Home(builder, HomeMaker(*this, strategy.layer_classes.front(), "", 1)
                          .local_rows(TensorClass::layer_gradient, problem.model.hidden));
  }
  std::int64_t first = 0;
  for (std::size_t c = 0; c < strategy.layer_classes.size(); ++c) {
    Homes made;
    made.choice = strategy.layer_classes[c];
    if (strategy.layer_classes.size() > 1) made.suffix.append(1, '_').append(std::to_string(c));
    made.first = first;
    made.count = made.choice.layers > 0 ? made.choice.layers : problem.model.layers - first;
    first += made.count;
    HomeMaker(*this, strategy.layer_classes[c], made.suffix, made.count).all(made);
    homes.push_back(made);
  }
}

}  // namespace fpdt
