// The inputs of segments, and what parts ask of the context.
#include "fpdt/plan/lowering/context.h"

#include <utility>

namespace fpdt {

Context::Context(const Problem& question, const Strategy& choices,
                 std::vector<LibraryTiles> of_library)
    : problem(question),
      strategy(choices),
      shape(geometry(problem, strategy)),
      part(part_of(problem.model, shape.tensor_ranks)),
      library(std::move(of_library)),
      states(builder, problem, strategy),
      places(layer_places(strategy, problem.model.layers)) {
  builder.schedule.ranks = problem.ranks();
  builder.schedule.row_multiple = problem.cluster.row_multiple;
  make_homes();
}

Context::StoredInputs& Context::inputs_at(std::int64_t segment) {
  for (StoredInputs& inputs : layer_inputs) {
    if (segment < inputs.end) return inputs;
  }
  return layer_inputs.back();
}

template <class VersionOf>
Instance Context::instance_of(const StoredInputs& inputs, VersionOf version_of) const {
  Instance made = version_of(inputs.instances);
  if (stored_outputs && stored_outputs->beside_inputs)
    made.host = version_of(stored_outputs->output);
  return made;
}

Stream Context::input_of(const LayerPlace& at, Visit visit) {
  StoredInputs& inputs = inputs_at(at.segment);
  return {&inputs.home,
          instance_of(inputs, [&](const Stack& stack) { return stack.input(at, visit); })};
}

Stream Context::gradient_of(const LayerPlace& at, const Instance& apart) {
  StoredInputs& inputs = inputs_at(at.segment);
  if (!inputs.gradient) return {&layer_gradient_, apart};
  return {&*inputs.gradient,
          instance_of(inputs, [&](const Stack& stack) { return stack.gradient(at); })};
}

// The stream at the layer after this one, as a block of this one writes it.
template <class StreamOf>
Stream Context::after(const LayerPlace& at, StreamOf stream_of) {
  LayerPlace next = at;
  if (at.last()) {
    ++next.segment;
    next.place = 0;
  } else {
    ++next.place;
  }
  Stream stream = stream_of(next);
  stream.instance.change([&](Version& one) {
    one.offset += at.last() ? one.layer + one.segment : one.layer + one.place;
  });
  return stream;
}

Stream Context::output_of(const LayerPlace& at, Visit visit) {
  return after(at, [&](const LayerPlace& next) { return input_of(next, visit); });
}

Stream Context::input_gradient_of(const LayerPlace& at) {
  return gradient_of(at, Version::plus(1));
}

Stream Context::output_gradient_of(const LayerPlace& at) {
  return after(at, [&](const LayerPlace& next) { return gradient_of(next, Version::plus(0)); });
}

Stream Context::first_input() { return input_of({}, Visit::forward); }
Stream Context::first_gradient() { return gradient_of({}, Version::plus(0)); }

// The head is called as the first layer is.
Stream Context::head_stream(Stream stream) const {
  stream.instance.change([&](Version& one) {
    one.offset += one.layer * std::ssize(places) + one.segment * segments();
    one.layer = one.segment = 0;
  });
  return stream;
}

Stream Context::head_input() {
  return head_stream(input_of({.segment = segments()}, Visit::forward));
}
Stream Context::head_gradient() {
  return head_stream(gradient_of({.segment = segments()}, Version::plus(1)));
}

void Context::advance_gradient() { layer_gradient_.advance(builder, 1); }

void Context::begin_block(const std::string& name) {
  builder.begin_block(name);
  for (StoredInputs& inputs : layer_inputs) {
    inputs.home.begin_block();
    if (inputs.gradient) inputs.gradient->begin_block();
  }
  layer_gradient_.begin_block();
  for (Homes& one : homes) {
    for (Home* home :
         {&one.norm_output, &one.q, &one.kv, &one.attention_output, &one.lse, &one.residual,
          &one.ffn_hidden, &one.residual_gradient, &one.dout, &one.delta, &one.dq, &one.dkv,
          &one.kv_ring, &one.dkv_ring, &one.attention_sum, &one.lse_sum}) {
      home->begin_block();
    }
  }
}

BufferId LoweringPart::rows_of_width(const char* name, std::int64_t rows, std::int64_t width,
                                     Dtype dtype, std::int64_t slots, Category category) {
  return builder_.declare({name,
                           MemorySpace::device,
                           Role::temporary,
                           category,
                           dtype,
                           {rows, width},
                           slots,
                           kUnplaced});
}

Operand LoweringPart::temporary(BufferId id, std::int64_t rows) {
  return builder_.next(builder_.use(id), rows);
}

Operand LoweringPart::rows_of(const Operand& operand, std::int64_t first, std::int64_t rows) {
  return {operand.buffer, operand.version, operand.row_first + first, rows};
}

Operand LoweringPart::optional_weight(const std::string& name, const Version& use) const {
  return states_.has(name) ? states_.weight(name, use) : Operand{};
}

// Absent when every sequence is one document.
Operand LoweringPart::documents() const {
  return context_.documents < 0 ? Operand{}
                                : Operand{context_.documents, Version::at(0, 0, 1), 0, -1};
}

// With stored tensors (keep_attention, keep_all) an instance is a layer of a micro-batch. Otherwise
// only the current layer's instance is alive.
Instance LoweringPart::stored_instance(const Homes& homes) {
  return Version::at(-homes.first, 1, homes.count);
}

Instance LoweringPart::inputs(const LayerFrame& frame) const {
  return frame.stores(Recompute::keep_all) ? stored_instance(*frame.homes) : Version::plus(0);
}

Instance LoweringPart::outputs(const LayerFrame& frame) const {
  return frame.stores(Recompute::from_input) ? Version::plus(0) : stored_instance(*frame.homes);
}

RankExpression LoweringPart::token_first(std::int64_t chunk) const {
  const std::int64_t rows = shape_.local_rows(chunk);
  if (!shape_.reversed(chunk)) {
    return {chunk * shape_.chunk_rows, {ranks_ > 1 ? rows : 0, 0, 1, ranks_}};
  }
  RankExpression first = query_first(chunk);
  const std::int64_t share = head_ranks_ * shape_.tensor_ranks;
  first.second = {share > 1 ? rows : 0, 0, 1, share};
  return first;
}

RankExpression LoweringPart::product_first(std::int64_t chunk) const {
  const std::int64_t rows = shape_.product_rows(chunk);
  if (!shape_.reversed(chunk)) {
    const std::int64_t runs = ranks_ / shape_.tensor_ranks;
    return {chunk * shape_.chunk_rows, {runs > 1 ? rows : 0, 0, shape_.tensor_ranks, runs}};
  }
  RankExpression first = query_first(chunk);
  first.second = {head_ranks_ > 1 ? rows : 0, 0, shape_.tensor_ranks, head_ranks_};
  return first;
}

// Ranks of a ring share the queries of a chunk.
RankExpression LoweringPart::query_first(std::int64_t chunk) const {
  const std::int64_t begin = chunk * shape_.chunk_rows;
  if (shape_.ring == 1) return {.a = begin};
  const std::int64_t rows = shape_.query_rows(chunk);
  const std::int64_t share = head_ranks_ * shape_.tensor_ranks;
  if (!shape_.reversed(chunk)) return {begin, {rows, 0, share, shape_.ring}};
  return {begin + (shape_.ring - 1) * rows, {-rows, 0, share, shape_.ring}};
}

RankExpression LoweringPart::key_first(const LayerFrame& frame, std::int64_t chunk,
                                       std::int64_t hop) const {
  if (shape_.hops == 1) return {.a = chunk * shape_.chunk_rows};
  RankExpression first = query_first(chunk);
  first.a += shape_.key_rows(chunk) - key_rows(frame, chunk, hop);
  const bool after = frame.halo.rows > 0 && shape_.reversed(chunk);
  const std::int64_t member = after ? hop : (shape_.ring - hop) % shape_.ring;  // after this one
  first.first.s = member * head_ranks_ * shape_.tensor_ranks;
  return first;
}

Operand LoweringPart::keys_of_hop(const LayerFrame& frame, const Operand& keys, std::int64_t chunk,
                                  std::int64_t hop) const {
  const std::int64_t rows = key_rows(frame, chunk, hop);
  const std::int64_t all = shape_.key_rows(chunk);
  return rows == all ? keys : rows_of(keys, all - rows, rows);
}

std::int64_t LoweringPart::extent_first(std::int64_t extent) const {
  return shape_.extents == shape_.chunks ? shape_.local_first(extent) : 0;
}

Operand LoweringPart::chunk_of(const Operand& extent, std::int64_t chunk) const {
  if (shape_.extents == shape_.chunks) return extent;
  return rows_of(extent, shape_.local_first(chunk), shape_.local_rows(chunk));
}

bool LoweringPart::enters(std::int64_t chunk, Loop loop) const {
  return shape_.extents == shape_.chunks || chunk == (loop == Loop::up ? 0 : shape_.chunks - 1);
}

bool LoweringPart::leaves(std::int64_t chunk, Loop loop) const {
  return enters(chunk, loop == Loop::up ? Loop::down : Loop::up);
}

LoweringPart::Loop LoweringPart::backward_loop() const {
  return strategy_.tiles.backward_order == BackwardOrder::kv_outer ? Loop::up : Loop::down;
}

LaneKind LoweringPart::out_lane() const {
  return strategy_.copies.duplex ? LaneKind::d2h : LaneKind::h2d;
}

Home::Reuse LoweringPart::reuse() const {
  return strategy_.tiles.serpentine ? Home::Reuse::ring : Home::Reuse::latest;
}

}  // namespace fpdt
