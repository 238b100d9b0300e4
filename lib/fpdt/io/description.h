// The one description of each struct that files hold. Reading (Fields), printing as YAML and
// printing as JSON are visitors of it, so a new field here is read, printed and round-tripped
// everywhere.
//
// A visitor offers required, optional, sparse, tokens, integers, count_or_word, word, fractions,
// group, sparse_group, list, indices, has_either and moved (see Fields). Sparse entries are left
// out where they equal their default; YAML shows a sparse group as `{}` then. The keys of a
// strategy are rows of the table of choices.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "fpdt/io/tree.h"
#include "fpdt/spec/choices.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Self is T or const T.
template <class Self, class T>
concept Describes = std::is_same_v<std::remove_const_t<Self>, T>;

template <Describes<RotarySpec> Self, class Visitor>
void describe(Self& rotary, Visitor& f) {
  f.optional("fraction", rotary.fraction);
  f.optional("theta", rotary.theta);
  f.optional("factor", rotary.factor);
  f.optional("low_frequency_factor", rotary.low_frequency_factor);
  f.optional("high_frequency_factor", rotary.high_frequency_factor);
  f.optional("original_positions", rotary.original_positions);
  f.optional("scaling", rotary.scaling);
  f.optional("magnitude", rotary.magnitude);
  f.sparse("short_factors", rotary.short_factors);
  f.sparse("long_factors", rotary.long_factors);
}

template <Describes<LayerKind> Self, class Visitor>
void describe(Self& kind, Visitor& f) {
  f.sparse("window", kind.window);
  f.group("rotary", kind.rotary);
}

// The keys of its one kind are keys of the model, or else its kinds have a list.
template <Describes<ModelSpec> Self, class Visitor>
void describe_kinds(Self& model, Visitor& f) {
  if (!f.has_either("kinds", "pattern", model.kinds.size() > 1)) {
    return describe(model.kinds.front(), f);
  }
  std::vector<LayerKind> kinds = model.kinds;
  f.list("kinds", kinds, [](LayerKind& kind, auto& nested) {
    nested.required("name", kind.name);
    nested.sparse("dense_feed_forward", kind.dense_feed_forward);
    describe(kind, nested);
  });
  std::vector<std::string> names;
  for (const LayerKind& kind : kinds) names.push_back(kind.name);
  f.indices("leading", model.leading, names, false);
  f.indices("pattern", model.pattern, names);
  if constexpr (!std::is_const_v<Self>) model.kinds = std::move(kinds);
}

// Defaults of kv_heads and head_dim depend on other fields; the reader of the model file sets them.
template <Describes<ModelSpec> Self, class Visitor>
void describe(Self& model, Visitor& f) {
  f.required("name", model.name);
  f.required("family", model.family);
  f.required("layers", model.layers);
  f.required("hidden", model.hidden);
  f.required("heads", model.heads);
  f.optional("kv_heads", model.kv_heads);
  f.optional("head_dim", model.head_dim);
  f.required("feed_forward", model.feed_forward);
  f.sparse("experts", model.experts);
  f.sparse("active_experts", model.active_experts);
  f.sparse("normalised_experts", model.normalised_experts, true);
  f.sparse("expert_scale", model.expert_scale, 1);
  f.sparse("shared_feed_forward", model.shared_feed_forward);
  f.sparse("sigmoid_router", model.sigmoid_router);
  f.sparse("balance_loss", model.balance_loss);
  f.sparse("z_loss", model.z_loss);
  f.required("vocabulary", model.vocabulary);
  f.required("norm", model.norm);
  f.optional("norm_epsilon", model.norm_epsilon);
  f.required("activation", model.activation);
  f.optional("qkv_bias", model.qkv_bias);
  f.optional("bias", model.bias);
  f.optional("qk_norm", model.qk_norm);
  f.sparse("joint_qk_norm", model.joint_qk_norm);
  f.sparse("sinks", model.sinks);
  f.optional("parallel_residual", model.parallel_residual);
  f.sparse("pre_norms", model.pre_norms, true);
  f.sparse("post_norms", model.post_norms);
  f.sparse("attention_scale", model.attention_scale);
  f.sparse("attention_cap", model.attention_cap);
  f.sparse("logits_cap", model.logits_cap);
  f.sparse("embedding_scale", model.embedding_scale, 1);
  f.optional("learned_positions", model.learned_positions);
  describe_kinds(model, f);
  f.optional("tied_embeddings", model.tied_embeddings);
  f.required("source", model.source);
}

template <Describes<OutsideArena> Self, class Visitor>
void describe(Self& outside, Visitor& f) {
  f.sparse("context", outside.context);
  f.sparse("libraries", outside.libraries);
  f.sparse("workspace", outside.workspace);
  f.sparse("per_peer", outside.per_peer);
  f.sparse("network", outside.network);
}

template <Describes<OutsideHost> Self, class Visitor>
void describe(Self& outside, Visitor& f) {
  f.sparse("system", outside.system);
  f.sparse("page_tables", outside.page_tables);
  f.sparse("process", outside.process);
  f.sparse("loader", outside.loader);
}

template <Describes<Interference> Self, class Visitor>
void describe(Self& beside, Visitor& f) {
  constexpr Rate kNone{1, 1, 1};
  f.sparse("compute_beside_copy", beside.compute_beside_copy, kNone);
  f.sparse("compute_beside_collective", beside.compute_beside_collective, kNone);
  f.sparse("copy_beside_compute", beside.copy_beside_compute, kNone);
  f.sparse("copy_beside_collective", beside.copy_beside_collective, kNone);
  f.sparse("collective_beside_compute", beside.collective_beside_compute, kNone);
  f.sparse("collective_beside_copy", beside.collective_beside_copy, kNone);
  f.sparse("h2d_beside_d2h", beside.h2d_beside_d2h, kNone);
  f.sparse("d2h_beside_h2d", beside.d2h_beside_h2d, kNone);
}

template <Describes<Rates> Self, class Visitor>
void describe(Self& rates, Visitor& f) {
  f.sparse("peak_flops", rates.peak_flops);
  f.sparse("matmul", rates.matmul);
  f.sparse("matmul_shares", rates.matmul_shares);
  f.sparse("grouped_matmul", rates.grouped_matmul);
  f.sparse("attention_forward", rates.attention_forward);
  f.sparse("attention_backward", rates.attention_backward);
  f.sparse("own_attention_forward", rates.own_attention_forward);
  f.sparse("own_attention_backward", rates.own_attention_backward);
  f.sparse("softmax_forward", rates.softmax_forward);
  f.sparse("softmax_backward", rates.softmax_backward);
  f.sparse("attention_shares", rates.attention_shares);
  f.sparse("attention_heads", rates.attention_heads);
  f.sparse("attention_heads_backward", rates.attention_heads_backward);
  f.sparse("own_attention_heads", rates.own_attention_heads);
  f.sparse("own_attention_heads_backward", rates.own_attention_heads_backward);
  f.sparse("device_bandwidth", rates.device_bandwidth);
  f.sparse("kinds", rates.kinds);
  f.sparse("h2d", rates.h2d);
  f.sparse("d2h", rates.d2h);
  f.sparse("switch_bandwidth", rates.switch_bandwidth);
  f.sparse("devices_per_switch", rates.devices_per_switch, 1);
  f.sparse("host_bandwidth", rates.host_bandwidth);
  f.sparse("link", rates.link);
  f.sparse("network", rates.network);
  f.sparse("network_shares", rates.network_shares);
  f.sparse("nics", rates.nics, 0);
  f.sparse("op_seconds", rates.op_seconds);
  f.sparse("collective_seconds", rates.collective_seconds);
  f.sparse("network_seconds", rates.network_seconds);
  f.sparse_group("interference", rates.interference);
}

template <Describes<ClusterSpec> Self, class Visitor>
void describe(Self& cluster, Visitor& f) {
  f.required("name", cluster.name);
  f.required("nodes", cluster.nodes);
  f.required("devices_per_node", cluster.devices_per_node);
  f.sparse("numa_nodes", cluster.numa_nodes, 1);
  f.required("device_memory", cluster.device_memory);
  f.required("host_memory", cluster.host_memory);
  f.optional("row_multiple", cluster.row_multiple);
  f.sparse("attention", cluster.attention);
  f.sparse("largest_cudnn_head", cluster.largest_cudnn_head, 128);
  f.sparse("cudnn_windows", cluster.cudnn_windows);
  f.sparse("plan_only", cluster.plan_only);
  f.sparse_group("outside", cluster.outside);
  f.sparse_group("host_outside", cluster.host_outside);
  f.sparse_group("rates", cluster.rates);
  f.required("source", cluster.source);
}

template <Describes<OptimizerSpec> Self, class Visitor>
void describe(Self& optimizer, Visitor& f) {
  f.optional("beta1", optimizer.beta1);
  f.optional("beta2", optimizer.beta2);
  f.optional("epsilon", optimizer.epsilon);
  f.optional("weight_decay", optimizer.weight_decay);
  f.optional("clip", optimizer.clip);
}

// Keys of strategy files of version 0.1, and where their values stand now.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMovedKeys{{
    {"data_parallel", "mesh.replicas"},
    {"optimizer_offload", "keep.states: host or device"},
    {"optimizer_tile", "copies.optimizer_tile"},
    {"fpdt",
     "tiles (chunk_tokens, ffn_rows, loss_rows, loss_vocabulary, backward_order, serpentine, "
     "long_tiles), copies (prefetch_depth, duplex, overlap_all_to_all), segments "
     "(checkpoint_every) and layer_classes"},
}};

// The rows of the table of choices whose keys begin with `prefix`, in a strategy or in one of its
// layer classes.
struct ChoiceRows {
  Choices table;
  std::string prefix;
  Strategy* strategy = nullptr;
  LayerClass* layers = nullptr;
};

template <class Visitor>
void describe_member(const Choice& choice, std::string_view key, const Member& member, Visitor& f) {
  if (const auto* number = std::get_if<std::int64_t*>(&member)) {
    switch (choice.form) {
      case Form::plain:
        return f.optional(key, **number);
      case Form::sparse:
        return f.sparse(key, **number, choice.usual);
      case Form::tokens:
        return f.tokens(key, **number);
      case Form::rest:
        return f.count_or_word(key, **number, "rest");
    }
  }
  if (const auto* flag = std::get_if<bool*>(&member)) f.optional(key, **flag);
  if (const auto* word = std::get_if<Word>(&member)) {
    if (choice.form == Form::sparse) return f.sparse_word(key, *word->value, word->words);
    f.word(key, *word->value, word->words);
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>*>(&member)) f.integers(key, **list);
  if (const auto* keep = std::get_if<Fractions>(&member)) {
    f.fractions(key, keep->values, keep->names, keep->usual);
  }
}

template <Describes<ChoiceRows> Self, class Visitor>
void describe(Self& rows, Visitor& f) {
  for (const Choice& choice : rows.table) {
    if (choice.key.empty() || !choice.key.starts_with(rows.prefix)) continue;
    const std::string_view key = std::string_view(choice.key).substr(rows.prefix.size());
    if (key.find('.') != std::string_view::npos) continue;  // of a map within this one
    if constexpr (requires { f.meaning(choice.meaning); }) f.meaning(choice.meaning);
    const auto within = [&](std::string_view suffix, LayerClass* layers) {
      return ChoiceRows{rows.table, choice.key + std::string(suffix), rows.strategy, layers};
    };
    if (choice.member) {
      describe_member(choice, key, choice.member(*rows.strategy, *rows.layers), f);
    } else if (key == "layer_classes") {
      f.list(key, rows.strategy->layer_classes, [&](LayerClass& one, auto& nested) {
        const ChoiceRows inner = within("[].", &one);
        describe(inner, nested);
      });
    } else {
      const ChoiceRows inner = within(".", rows.layers);
      f.group(key, inner);
    }
  }
}

// Visits the choices of a strategy by the rows of the table.
template <class Visitor>
void describe_choices(Strategy& strategy, Choices table, Visitor& f) {
  LayerClass none;
  const ChoiceRows rows{table, "", &strategy, &none};
  describe(rows, f);
  for (const auto& [old, now] : kMovedKeys) f.moved(old, now);
}

template <Describes<Strategy> Self, class Visitor>
void describe(Self& strategy, Visitor& f) {
  if constexpr (std::is_const_v<Self>) {
    Strategy copy = strategy;
    describe_choices(copy, choices(), f);
  } else {
    describe_choices(strategy, choices(), f);
  }
}

}  // namespace fpdt
