// S8xx: walks all ops and buffers.
#include "fpdt/schedule/stated.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

class Constants {
 public:
  Constants(const Stated& stated, const StatedKind& kind, const std::string& where,
            Findings& findings)
      : stated_(stated), kind_(kind), where_(where), findings_(findings) {}

  void check(const Norm& op) { norm(op); }
  void check(const NormBackward& op) { norm(op); }
  void check(const NormColumns& op) { same("epsilon", op.epsilon, stated_.norm_epsilon); }
  void check(const NormColumnsBackward& op) { same("epsilon", op.epsilon, stated_.norm_epsilon); }
  void check(const SplitHeads& op) { heads(op); }
  void check(const JoinHeads& op) { heads(op); }
  void check(const AttentionForward& op) { tile(op); }
  void check(const AttentionBackward& op) { tile(op); }
  void check(const Activation& op) { same("kind", word(op.kind), word(stated_.activation)); }
  void check(const ActivationBackward& op) {
    same("kind", word(op.kind), word(stated_.activation));
  }
  void check(const Embedding& op) { same("scale", op.scale, stated_.embedding_scale); }
  void check(const EmbeddingBackward& op) { same("scale", op.scale, stated_.embedding_scale); }
  void check(const Route& op) { router(op); }
  void check(const RouteBackward& op) {
    router(op);
    losses(op);
  }
  void check(const BalanceLoss& op) { losses(op); }
  void check(const LossStatistics& op) { same("cap", op.cap, stated_.logits_cap); }
  void check(const LossGradient& op) { same("cap", op.cap, stated_.logits_cap); }
  void check(const AdamW& op) {
    same("beta1", op.beta1, stated_.beta1);
    same("beta2", op.beta2, stated_.beta2);
    same("epsilon", op.epsilon, stated_.epsilon);
    same("clip", op.clip, stated_.clip);
    if (op.weight_decay != 0) same("weight_decay", op.weight_decay, stated_.weight_decay);
  }
  template <class Other>
  void check(const Other&) {}

 private:
  template <class T>
  void same(std::string_view constant, const T& found, const T& wanted) {
    if (found == wanted) return;
    findings_.add("S801", where_,
                  fmt::format("{} is {}, and the problem says {}", constant, found, wanted));
  }
  template <class Op>
  void norm(const Op& op) {
    same("kind", word(op.kind), word(stated_.norm));
    same("epsilon", op.epsilon, stated_.norm_epsilon);
  }
  template <class Op>
  void heads(const Op& op) {
    if (op.q_weight.present() || op.k_weight.present())
      same("epsilon", op.epsilon, stated_.norm_epsilon);
    const bool turns = op.rotary.rotary != 0 || kind_.rotary.rotary != 0;
    if (!turns || op.rotary == kind_.rotary) return;
    findings_.add("S801", where_, "the rotary embedding is not that of the problem");
  }
  template <class Op>
  void router(const Op& op) {
    same("experts", op.experts, kind_.experts);
    same("active", op.active, stated_.active_experts);
    same("normalised", op.normalised, stated_.normalised_experts);
    same("sigmoid", op.sigmoid, stated_.sigmoid_router);
    same("scale", op.scale, stated_.expert_scale);
  }
  template <class Op>
  void losses(const Op& op) {
    same("balance", op.balance, stated_.balance);
    same("z", op.z, stated_.z);
  }
  template <class Tile>
  void tile(const Tile& op) {
    same("scale", op.scale, stated_.attention_scale);
    same("cap", op.cap, stated_.attention_cap);
    same("window", op.window, kind_.window);
  }

  const Stated& stated_;
  const StatedKind& kind_;
  const std::string& where_;
  Findings& findings_;
};

// By block: the kinds of the layers that call it. A block without calls counts as one of the first.
std::vector<std::set<std::int64_t>> kinds_of_blocks(const Schedule& schedule,
                                                    const Stated& stated) {
  std::vector<std::set<std::int64_t>> kinds(schedule.blocks.size());
  for (const auto* calls : {&schedule.train, &schedule.evaluate}) {
    for (const Call& call : *calls) {
      const std::size_t at = index(call.layer) % stated.pattern.size();
      kinds[index(call.block)].insert(stated.pattern[at]);
    }
  }
  for (std::set<std::int64_t>& of_block : kinds) {
    if (of_block.empty()) of_block.insert(0);
  }
  return kinds;
}

void check_types(const Schedule& schedule, const Stated& stated, Findings& findings) {
  for (const Buffer& buffer : schedule.buffers) {
    if (stated.storage == Dtype::bf16 || buffer.dtype != Dtype::bf16) continue;
    findings.add("S802", "buffers." + buffer.name, "is bf16, and the problem stores f32");
  }
  for (const State& state : schedule.states) {
    const Buffer& buffer = schedule.buffers[index(state.buffer)];
    if (state.kind == "gradient" && buffer.dtype != Dtype::f32 &&
        buffer.dtype != stated.gradients) {
      findings.add("S802", "buffers." + buffer.name, "rounds gradients, and the problem keeps f32");
    }
    if (state.kind != "parameter" || buffer.dtype == stated.storage) continue;
    findings.add("S802", "buffers." + buffer.name,
                 fmt::format("holds parameters in {}, and the problem stores {}",
                             word(buffer.dtype), word(stated.storage)));
  }
}

// Whether attention has sinks. Coverage proves that all rows of a pass have one, if any has.
void check_sinks(const Block& block, const Stated& stated, Findings& findings) {
  std::map<Pass, std::pair<const Op*, bool>> passes;  // a tile, and whether there are sinks
  for (const Op& op : block.ops) {
    if (const auto* tile = std::get_if<AttentionForward>(&op.body)) passes[tile->pass].first = &op;
    if (const auto* sink = std::get_if<AttentionSink>(&op.body)) passes[sink->pass].second = true;
  }
  for (const auto& [pass, found] : passes) {
    if (found.first == nullptr || found.second == stated.sinks) continue;
    findings.add("S801", place_of(block, *found.first),
                 stated.sinks ? "attention has no sinks, and the problem says that it has"
                              : "attention has sinks, and the problem says that it has none");
  }
}

// Whether layers of a kind have experts. What they do with them is in the constants of ops.
void check_experts(const Block& block, const StatedKind& kind, Findings& findings) {
  const Op* last = nullptr;
  for (const Op& op : block.ops) {
    if (std::holds_alternative<Route>(op.body)) return;
    if (std::holds_alternative<Activation>(op.body)) last = &op;
  }
  if (last == nullptr || kind.experts == 0) return;
  findings.add("S801", place_of(block, *last),
               fmt::format("the block has no experts, and the problem says {}", kind.experts));
}

// Whether heads are normed, each by itself where it is split off, or jointly: one norm of rows for
// the queries of each split, and one for its keys.
void check_head_norms(const Block& block, const Stated& stated, Findings& findings) {
  const bool each = stated.qk_norm && !stated.joint_qk_norm;
  const Op* last = nullptr;
  std::int64_t wanted = 0, found = 0;
  for (const Op& op : block.ops) {
    const auto* const split = std::get_if<SplitHeads>(&op.body);
    const bool is_norm = std::holds_alternative<NormColumns>(op.body);
    if (is_norm) ++found;
    if (is_norm || split != nullptr) last = &op;
    if (split == nullptr) continue;
    if (stated.joint_qk_norm) wanted += (split->heads > 0 ? 1 : 0) + (split->kv_heads > 0 ? 1 : 0);
    if ((split->q_weight.present() || split->k_weight.present()) == each) continue;
    findings.add("S801", place_of(block, op),
                 each ? "heads are not normed, and the problem says that they are"
                      : "norms each head, and the problem says that it does not");
  }
  if (found == wanted) return;
  findings.add(
      "S801", place_of(block, *last),
      fmt::format("{} joint norms of heads in the block, and the problem says {}", found, wanted));
}

// Refuses sums that are not f32: they would round once for each op that adds to them. A norm in
// place adds nothing, and its dweight is f32 by the rules of shapes.
void check_sums(const Schedule& schedule, const Op& op, const std::string& where,
                Findings& findings) {
  if (std::holds_alternative<NormColumns>(op.body) ||
      std::holds_alternative<NormColumnsBackward>(op.body) ||
      std::holds_alternative<CombineBackward>(op.body)) {
    return;
  }
  for (const Use& use : operands(op.body)) {
    const Buffer& buffer = schedule.buffers[index(use.operand.buffer)];
    if (use.access != Access::accumulate || buffer.dtype == Dtype::f32) continue;
    findings.add("S802", where, fmt::format("adds to {}, which is not f32", buffer.name));
  }
}

}  // namespace

std::vector<Diagnostic> verify_stated(const Schedule& schedule, const Stated& stated) {
  Findings findings;
  check_types(schedule, stated, findings);
  const std::vector<std::set<std::int64_t>> kinds = kinds_of_blocks(schedule, stated);
  for (std::size_t b = 0; b < schedule.blocks.size(); ++b) {
    const Block& block = schedule.blocks[b];
    check_sinks(block, stated, findings);
    check_head_norms(block, stated, findings);
    for (const std::int64_t k : kinds[b]) check_experts(block, stated.kinds[index(k)], findings);
    for (const Op& op : block.ops) {
      const std::string where = place_of(block, op);
      for (const std::int64_t k : kinds[b]) {
        const StatedKind& kind = stated.kinds[index(k)];
        std::visit([&](const auto& body) { Constants(stated, kind, where, findings).check(body); },
                   op.body);
      }
      check_sums(schedule, op, where, findings);
    }
  }
  return findings.list();
}

}  // namespace fpdt
