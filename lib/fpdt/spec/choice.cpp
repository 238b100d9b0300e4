// Derives names, words, other values and notes from the table of choices.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/units.h"
#include "fpdt/spec/choices.h"
#include "fpdt/spec/edits.h"

namespace fpdt {
namespace {

constexpr std::string_view kLayerClasses = "layer_classes[].";

void assign(const Member& to, const Member& from) {
  std::visit(
      [&](const auto& target) {
        using T = std::decay_t<decltype(target)>;
        const T& source = std::get<T>(from);
        if constexpr (std::is_same_v<T, Word>) {
          *target.value = *source.value;
        } else if constexpr (std::is_same_v<T, Fractions>) {
          std::copy(source.values.begin(), source.values.end(), target.values.begin());
        } else {
          *target = *source;
        }
      },
      to);
}

void assign(const Choice& choice, Strategy& to, Strategy& from) {
  if (!choice.member) return;
  LayerClass& first = from.layer_classes.front();
  if (!choice.of_layer_class()) return assign(choice.member(to, first), choice.member(from, first));
  for (LayerClass& one : to.layer_classes) {
    assign(choice.member(to, one), choice.member(from, first));
  }
}

std::string text_of(const Choice& choice, Strategy& strategy) {
  const Member member = choice.member(strategy, strategy.layer_classes.front());
  if (const auto* number = std::get_if<std::int64_t*>(&member)) {
    if (choice.form == Form::rest && **number == 0) return "rest";
    if (choice.form == Form::tokens) return **number == 0 ? "whole" : format_tokens(**number);
    return fmt::format("{}", **number);
  }
  if (const auto* flag = std::get_if<bool*>(&member)) return **flag ? "on" : "off";
  if (const auto* share = std::get_if<double*>(&member)) return fmt::format("{}", **share);
  if (const auto* word = std::get_if<Word>(&member)) return std::string(word->words[*word->value]);
  if (const auto* list = std::get_if<std::vector<std::int64_t>*>(&member)) {
    return fmt::format("{}", fmt::join(**list, ", "));
  }
  return "";
}

// Calls `found(class, index, reason)` for each setting without effect.
template <class Found>
void find_unused(const Problem& problem, const Strategy& strategy, Choices table,
                 const Found& found) {
  const Geometry shape = geometry(problem, strategy);
  for (const Choice& choice : table) {
    if (!choice.unused) continue;
    const std::size_t classes = choice.of_layer_class() ? strategy.layer_classes.size() : 1;
    for (std::size_t i = 0; i < classes; ++i) {
      const std::string why = choice.unused(problem, strategy, strategy.layer_classes[i], shape);
      if (!why.empty()) found(choice, i, why);
    }
  }
}

}  // namespace

std::string Choice::name() const {
  return label.empty() ? key.substr(key.find_last_of('.') + 1) : label;
}

bool Choice::of_layer_class() const { return key.starts_with(kLayerClasses); }

bool Choice::has_rung() const {
  if (!set_by.empty() || !member) return false;
  Strategy any;
  return !std::holds_alternative<Fractions>(member(any, any.layer_classes.front()));
}

void take(const Problem& problem, Choices table, const Choice& choice, Strategy& to,
          Strategy from) {
  if (choice.take) return choice.take(problem, to, from);
  assign(choice, to, from);
  for (const Choice& other : table) {
    if (other.set_by == choice.name()) assign(other, to, from);
  }
}

std::string change_words(const Problem& problem, const Choice& choice, Strategy from, Strategy to) {
  if (choice.says) return choice.says(problem, from, to);
  const Member member = choice.member(to, to.layer_classes.front());
  const bool flag = std::holds_alternative<bool*>(member);
  return flag ? fmt::format("{} {}", choice.name(), text_of(choice, to))
              : fmt::format("{} {} -> {}", choice.name(), text_of(choice, from),
                            text_of(choice, to));
}

std::vector<Strategy> other_values(const Problem& problem, const Choice& choice,
                                   const Strategy& strategy, const Fits& fits) {
  if (choice.others) return choice.others(problem, strategy, fits);
  std::vector<Strategy> values{strategy};
  Strategy& other = values.front();
  const Member member = choice.member(other, other.layer_classes.front());
  if (const auto* flag = std::get_if<bool*>(&member)) **flag = !**flag;
  if (const auto* word = std::get_if<Word>(&member)) {
    values.assign(word->words.size(), strategy);
    for (std::size_t k = 0; k < values.size(); ++k) {
      const Member each = choice.member(values[k], values[k].layer_classes.front());
      *std::get<Word>(each).value = static_cast<std::uint8_t>(k);
    }
  }
  return values;
}

std::vector<std::string> without_effect(const Problem& problem, const Strategy& strategy,
                                        Choices table) {
  std::vector<std::string> notes;
  find_unused(problem, strategy, table,
              [&](const Choice& choice, std::size_t i, std::string_view why) {
                std::string key = choice.key;
                if (choice.of_layer_class())
                  key.replace(kLayerClasses.size() - 3, 2, fmt::format("[{}]", i));
                notes.push_back(fmt::format("{} has no effect: {}", key, why));
              });
  return notes;
}

Strategy canonical(const Problem& problem, Strategy strategy, Choices table) {
  const Geometry shape = geometry(problem, strategy);
  for (LayerClass& one : strategy.layer_classes) {
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const Geometry::Parts parts = shape.parts(one, static_cast<TensorClass>(k));
      one.keep[k] = fraction_of(parts.kept, parts.all);
    }
  }
  // Reasons are those of the strategy as it was.
  std::vector<std::pair<const Choice*, std::size_t>> unused;
  find_unused(problem, strategy, table, [&](const Choice& choice, std::size_t i, std::string_view) {
    unused.emplace_back(&choice, i);
  });
  if (unused.empty()) return strategy;
  Strategy usual;
  for (const auto& [choice, i] : unused) {
    if (choice->instead) {
      choice->instead(problem, strategy);
      continue;
    }
    assign(choice->member(strategy, strategy.layer_classes[i]),
           choice->member(usual, usual.layer_classes.front()));
  }
  return strategy;
}

}  // namespace fpdt
