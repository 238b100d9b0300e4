// Problem and strategy through their descriptions; sizes are plain bytes here.
#include "fpdt/io/problem_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/io/description.h"
#include "fpdt/io/json.h"

namespace fpdt {
namespace {

// Prints JSON on one line.
class JsonPrinter {
 public:
  template <class T>
  void required(std::string_view key, const T& value) {
    if constexpr (HasWords<T>) {
      entry(key, fmt::format("\"{}\"", fpdt::word(value)));
    } else if constexpr (std::is_same_v<T, std::string>) {
      entry(key, json_string(value));
    } else if constexpr (std::is_same_v<T, Bytes>) {
      entry(key, fmt::format("\"{}B\"", value.value));
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      entry(key, fmt::format("[{}]", fmt::join(value, ",")));
    } else {
      entry(key, fmt::format("{}", value));
    }
  }
  template <class T>
  void optional(std::string_view key, const T& value) {
    required(key, value);
  }
  template <class T>
  void sparse(std::string_view key, const T& value, const std::type_identity_t<T>& usual = {}) {
    if (value != usual) sparse_entry(key, value);
  }
  template <class T>
  void sparse_group(std::string_view key, const T& value) {
    if (value != T{}) group(key, value);
  }
  void tokens(std::string_view key, std::int64_t value) { required(key, value); }
  void integers(std::string_view key, const std::vector<std::int64_t>& values) {
    entry(key, fmt::format("[{}]", fmt::join(values, ",")));
  }
  void indices(std::string_view key, const std::vector<std::int64_t>& values,
               const std::vector<std::string>& names, bool required = true) {
    if (values.empty() && !required) return;
    std::string items;
    for (const std::int64_t value : values) {
      items.append(items.empty() ? "" : ",")
          .append(json_string(names[static_cast<std::size_t>(value)]));
    }
    entry(key, fmt::format("[{}]", items));
  }
  [[nodiscard]] static bool has_either(std::string_view /*one*/, std::string_view /*other*/,
                                       bool print) {
    return print;
  }
  void moved(std::string_view /*key*/, std::string_view /*now*/) {}
  void count_or_word(std::string_view key, std::int64_t value, std::string_view zero) {
    entry(key, value == 0 ? fmt::format("\"{}\"", zero) : fmt::format("{}", value));
  }
  void fractions(std::string_view key, std::span<const double> values,
                 std::span<const std::string_view> names, double usual) {
    JsonPrinter nested;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (values[i] != usual) nested.required(names[i], values[i]);
    }
    entry(key, nested.object());
  }
  template <class T>
  void group(std::string_view key, const T& value) {
    entry(key, object_of(value));
  }
  void sparse_word(std::string_view key, std::uint8_t value,
                   std::span<const std::string_view> words) {
    if (value != 0) word(key, value, words);
  }
  void word(std::string_view key, std::uint8_t value, std::span<const std::string_view> words) {
    entry(key, fmt::format("\"{}\"", words[value]));
  }
  template <class T, class Describe>
  void list(std::string_view key, std::vector<T>& values, const Describe& describe_one) {
    std::string items;
    for (T& value : values) {
      JsonPrinter nested;
      describe_one(value, nested);
      items += fmt::format("{}{}", items.empty() ? "" : ",", nested.object());
    }
    entry(key, fmt::format("[{}]", items));
  }
  [[nodiscard]] std::string object() const { return fmt::format("{{{}}}", text_); }

 private:
  template <class T>
  static std::string object_of(const T& value) {
    JsonPrinter nested;
    describe(value, nested);
    return nested.object();
  }
  template <class T>
  void sparse_entry(std::string_view key, const T& value) {
    required(key, value);
  }
  void sparse_entry(std::string_view key, const Rate& rate) {
    if (rate.low == rate.typical && rate.high == rate.typical) return required(key, rate.typical);
    JsonPrinter nested;
    nested.required("typical", rate.typical);
    nested.required("low", rate.low);
    nested.required("high", rate.high);
    entry(key, nested.object());
  }
  void sparse_entry(std::string_view key, const std::vector<SizeShare>& points) {
    JsonPrinter nested;
    for (const auto& [size, share] : points) nested.required(fmt::format("{}", size), share);
    entry(key, nested.object());
  }
  void sparse_entry(std::string_view key, const std::vector<KindRate>& kinds) {
    JsonPrinter nested;
    for (const auto& [kind, rate] : kinds) nested.sparse_entry(kind, rate);
    entry(key, nested.object());
  }
  void entry(std::string_view key, const std::string& value) {
    text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "" : ",", key, value);
  }

  std::string text_;
};

// Here problem and strategy are one object.
struct Question {
  Problem problem;
  Strategy strategy;
};

template <Describes<Question> Self, class Visitor>
void describe(Self& question, Visitor& f) {
  f.group("model", question.problem.model);
  f.group("cluster", question.problem.cluster);
  f.required("seq_len", question.problem.seq_len);
  f.sparse("documents", question.problem.documents, true);
  f.required("device_budget", question.problem.device_budget);
  f.required("host_budget", question.problem.host_budget);
  f.group("optimizer", question.problem.optimizer);
  f.group("strategy", question.strategy);
}

}  // namespace

std::string strategy_json(const Strategy& strategy) {
  JsonPrinter printer;
  describe(strategy, printer);
  return printer.object();
}

std::string print_problem(const Problem& problem, const Strategy& strategy) {
  const Question question{problem, strategy};
  JsonPrinter printer;
  describe(question, printer);
  return printer.object();
}

std::pair<Problem, Strategy> parse_problem(std::string_view text) {
  FileFindings findings("problem");
  const Node root = parse_json(text, findings);
  Question question;
  Fields fields(root, "", findings);
  describe(question, fields);
  for (const std::string_view key : {"model", "cluster", "optimizer", "strategy"}) {
    if (!fields.has(key)) fields.missing(key);
  }
  fields.done();
  findings.raise();
  findings.append(check(question.problem.model));
  findings.raise();
  return {std::move(question.problem), std::move(question.strategy)};
}

Stated stated_by(const Problem& problem, const Strategy& strategy) {
  const ModelSpec& model = problem.model;
  const OptimizerSpec& adamw = problem.optimizer;
  std::vector<StatedKind> kinds;
  for (const LayerKind& kind : model.kinds) {
    const RotarySpec& rotary = kind.rotary;
    kinds.push_back({kind.window_in(problem.seq_len),
                     {model.rotary_dim(kind), rotary.theta, rotary.factor,
                      rotary.low_frequency_factor, rotary.high_frequency_factor,
                      rotary.original_positions, same_word<ScalingKind>(rotary.scaling),
                      rotary.magnitude, rotary.pair_factors(problem.seq_len)},
                     kind.dense_feed_forward > 0 ? 0 : model.experts});
  }
  std::vector<std::int64_t> pattern = model.pattern;
  if (!model.leading.empty()) {
    pattern.clear();
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      pattern.push_back(model.kind_at(layer));
    }
  }
  return {same_word<Dtype>(strategy.storage),
          same_word<NormKind>(model.norm),
          model.norm_epsilon,
          same_word<ActivationKind>(model.activation),
          model.score_scale(),
          model.attention_cap,
          model.logits_cap,
          model.sinks,
          model.qk_norm,
          model.joint_qk_norm,
          model.embedding_scale,
          model.active_experts,
          model.normalised_experts,
          model.sigmoid_router,
          model.expert_scale,
          sequence_balance(problem, strategy),
          sequence_z(problem, strategy),
          kinds,
          pattern,
          adamw.beta1,
          adamw.beta2,
          adamw.epsilon,
          adamw.weight_decay,
          adamw.clip,
          same_word<Dtype>(strategy.gradients)};
}

}  // namespace fpdt
