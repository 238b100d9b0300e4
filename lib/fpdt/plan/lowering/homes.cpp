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
    made.name = word(tensor);
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
    made.name = name;
    std::int64_t longest_halo = 0;
    for (const LayerKind& kind : model_.kinds) {
      const std::int64_t halo = shape_.halo_rows(kind);
      if (halo == 0 && shape_.hops_of(kind) > 1) longest_halo = made.rows;
      longest_halo = std::max(longest_halo, halo);
    }
    if (longest_halo > 0 && longest_halo < made.rows) made.rows = made.last_rows = longest_halo;
    made.instances = std::min<std::int64_t>(2, shape_.hops - 1);
    return made;
  }

  // Attention output and lse, which live until backward of their layer if they are stored.
  [[nodiscard]] HomeShape attention_output() const {
    HomeShape made = product_rows(TensorClass::attention_output, part_.q_width(), lasts());
    made.stored = stored(TensorClass::attention_output);
    return made;
  }
  [[nodiscard]] HomeShape lse() const {
    return head_rows(TensorClass::lse, shape_.heads, Dtype::f32, lasts());
  }
  [[nodiscard]] bool lasts() const { return choice_.recompute != Recompute::from_input; }

  // Slots on the host for such a tensor of one layer.
  [[nodiscard]] Stack::Outputs slots_of(const HomeShape& tensor) const {
    if (!lasts()) return {};
    const std::int64_t repeated = std::min(choice_.first_stored_chunk, tensor.chunks);
    return {repeated, tensor.chunks - tensor.kept - repeated};
  }
  [[nodiscard]] HomeShape::Shared places_in(const Stack& stack, BufferIndex ring,
                                            const HomeShape& tensor) const {
    const auto c = static_cast<std::size_t>(&choice_ - strategy_.layer_classes.data());
    return {ring, slots_of(tensor).repeated, stack.repeated(), stack.stored(c)};
  }

  void all(Homes& made) const {
    const bool keep_all = choice_.recompute == Recompute::keep_all;
    if (keep_all) {
      const auto rows_if_stored = [&](TensorClass tensor, Home& of) {
        if (stored(tensor)) of = home(local_rows(tensor, model_.hidden, true));
      };
      rows_if_stored(TensorClass::norm_output, made.norm_output);
      rows_if_stored(TensorClass::residual, made.residual);
      made.ffn_hidden = home(product_rows(TensorClass::ffn_hidden, part_.up_width(), true));
    }
    HomeShape q = head_rows(TensorClass::q, q_width(), storage(), keep_all);
    q.stored = stored(TensorClass::q);
    HomeShape kv = head_rows(TensorClass::kv, kv_width(), storage(), keep_all);
    made.q = keep_all ? home(q) : in_turn(TensorClass::q, q);
    made.kv = keep_all ? home(kv) : in_turn(TensorClass::kv, kv);
    HomeShape output = attention_output(), sums = lse();
    if (lasts() && context_.stored_outputs) {
      const Context::StoredOutputs& stored = *context_.stored_outputs;
      output.shared = places_in(stored.output, stored.output_ring, output);
      sums.shared = places_in(stored.lse, stored.lse_ring, sums);
    }
    // All classes whose layers keep them have the same rings.
    const Homes* like = nullptr;
    for (const Homes& other : context_.homes) {
      if (lasts() && other.choice.recompute != Recompute::from_input) like = &other;
    }
    made.attention_output = home(output, like != nullptr ? &like->attention_output : nullptr);
    made.lse = home(sums, like != nullptr ? &like->lse : nullptr);
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
    made.residual_gradient = in_turn(TensorClass::residual_gradient, residual);
    HomeShape dout = head_rows(TensorClass::dout, q_width(), storage());
    HomeShape delta = head_rows(TensorClass::dout, shape_.heads, Dtype::f32);
    delta.name = "delta";
    dout.stored = delta.stored = stored(TensorClass::dout);
    made.dout = in_turn(TensorClass::dout, dout);
    made.delta = in_turn(TensorClass::dout, delta);
    if (query_outer) {
      made.dkv = in_turn(TensorClass::dkv, head_rows(TensorClass::dkv, kv_width(), Dtype::f32));
    }
    if (!stored(TensorClass::dq)) return;
    made.dq =
        in_turn(TensorClass::dq, query_outer ? between_hops(TensorClass::dq, q_width())
                                             : head_rows(TensorClass::dq, q_width(), Dtype::f32));
  }

  void between_ranks(Homes& made) const {
    const bool exact = strategy_.key_gradients == Storage::f32;
    const Dtype gradients = exact ? Dtype::f32 : storage();
    made.kv_ring = in_turn(TensorClass::kv, key_ring(TensorClass::kv, "kv_ring", storage()));
    made.dkv_ring = in_turn(TensorClass::dkv, key_ring(TensorClass::dkv, "dkv_ring", gradients));
    made.attention_sum =
        in_turn(TensorClass::attention_sum, between_hops(TensorClass::attention_sum, q_width()));
    HomeShape lse = between_hops(TensorClass::attention_sum, shape_.heads);
    lse.name = "lse_sum";
    made.lse_sum = in_turn(TensorClass::attention_sum, lse);
  }

  // Whether chunks live beyond the row or block that makes them.
  [[nodiscard]] bool stored(TensorClass tensor) const {
    return why_unused(model_, strategy_, choice_, tensor).empty();
  }
  [[nodiscard]] Home home(HomeShape shape, const Home* like = nullptr) const {
    shape.name += suffix_;
    return {context_.builder, shape, like};
  }
  // The home of what lives in one layer at a time: that of an earlier class, if it keeps as much.
  [[nodiscard]] Home in_turn(TensorClass tensor, HomeShape shape) const {
    const double fraction = choice_.kept(tensor);
    const std::string name = shape.name;
    bool first = true;
    for (const Context::HomeInTurn& known : context_.homes_in_turn) {
      if (known.name != name) continue;
      if (known.fraction == fraction && known.stored == shape.stored) return known.home;
      first = false;
    }
    const Home made = first ? Home(context_.builder, shape) : home(std::move(shape));
    context_.homes_in_turn.push_back({name, fraction, shape.stored, made});
    return made;
  }
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

// The first layer of each group of segments that keep as much of their inputs.
std::vector<const LayerPlace*> Context::groups_of_inputs() const {
  const auto keeps = [&](const LayerPlace& at) {
    return strategy.layer_classes[at.layer_class].kept(TensorClass::layer_input);
  };
  std::vector<const LayerPlace*> first;
  for (const LayerPlace& at : places) {
    if (at.first() && (first.empty() || keeps(*first.back()) != keeps(at))) first.push_back(&at);
  }
  return first;
}

void Context::make_stored_outputs() {
  const std::vector<LayerClass>& classes = strategy.layer_classes;
  const bool reruns = longest_segment(strategy) > 1;
  const auto shares = [&](const LayerClass& one) {
    return one.recompute != Recompute::from_input && (reruns || one.first_stored_chunk > 0);
  };
  if (std::none_of(classes.begin(), classes.end(), shares)) return;
  StoredOutputs made;
  Stack::Contents outputs{.first = 0, .count = segments() + 1, .outputs = {}};
  Stack::Contents sums = outputs;
  HomeShape output, lse;
  for (const LayerClass& one : classes) {
    const HomeMaker maker(*this, one, "", 1);
    output = maker.attention_output();
    lse = maker.lse();
    outputs.outputs.push_back(maker.slots_of(output));
    sums.outputs.push_back(maker.slots_of(lse));
  }
  // Inputs and outputs make room for each other where they have the same shape.
  const HomeShape input = HomeMaker(*this, classes.front(), "", 1)
                              .local_rows(TensorClass::layer_input, problem.model.hidden);
  const std::int64_t hosted = input.chunks - input.kept;
  made.beside_inputs = reruns && groups_of_inputs().size() == 1 && hosted > 0 &&
                       Stack(places, outputs).slots() > 0 && input.rows == output.rows &&
                       input.width == output.width;
  if (made.beside_inputs) {
    outputs.input = hosted;
    outputs.gradients = strategy.layer_gradients == LayerGradients::in_inputs;
  }
  made.output = Stack(places, outputs);
  made.lse = Stack(places, sums);
  output.name = made.beside_inputs ? "stored" : "attention_output";
  lse.name = "lse";
  made.output_ring = add_host_ring(builder, output, made.output.slots());
  made.lse_ring = add_host_ring(builder, lse, made.lse.slots());
  stored_outputs = made;
}

void Context::make_inputs() {
  const std::vector<const LayerPlace*> first = groups_of_inputs();
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool shared = strategy.layer_gradients == LayerGradients::in_inputs;
    StoredInputs made;
    made.end = i + 1 == first.size() ? segments() + 1 : first[i + 1]->segment;
    made.instances = Stack(places, {.first = first[i]->segment,
                                    .count = made.end - first[i]->segment,
                                    .input = 1,
                                    .gradients = shared,
                                    .outputs = {}});
    const HomeMaker maker(*this, strategy.layer_classes[first[i]->layer_class], "", 1);
    HomeShape shape_of = maker.local_rows(TensorClass::layer_input, problem.model.hidden);
    if (first.size() > 1) shape_of.name.append(1, '_').append(std::to_string(i));
    shape_of.instances = made.instances.slots();
    if (stored_outputs && stored_outputs->beside_inputs) {
      shape_of.shared = {stored_outputs->output_ring, 0, {}, {}};
    }
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
  make_stored_outputs();
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
