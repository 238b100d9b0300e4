// The table of choices. Everything about a choice of a strategy is said once, in its row.
//
// Visitors of the table: files and their reference page (io/description.h), levers, ladders and
// sentences (plan/search), variants of a bisection (check/bisect.h), and the notes
// on settings without effect below. A visitor may be given a copy of the table with more rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// A value of an enum.
struct Word {
  std::span<const std::string_view> words;
  std::uint8_t* value = nullptr;
};
// Fractions on the device, each with a name. Files leave out those that equal `usual`.
struct Fractions {
  std::span<const std::string_view> names;
  std::span<double> values;
  double usual = 0;
};
// The member of a strategy, or of one of its layer classes, that a key of a file sets.
using Member =
    std::variant<std::int64_t*, bool*, double*, Word, Fractions, std::vector<std::int64_t>*>;

// How files write an integer: as it is; as it is unless it is `usual`, which they leave out; as
// "64K"; with `rest` for 0. A sparse word is left out if it is the first one.
enum class Form : std::uint8_t { plain, sparse, tokens, rest };

// Whether a strategy is sound and within the budgets.
using Fits = std::function<bool(const Strategy&)>;

struct Choice {
  // In files, as a path: "tiles.serpentine", "layer_classes[].recompute". Empty: a choice that sets
  // keys of other rows.
  std::string key{};
  std::string_view meaning{};                              // in docs/reference/yaml.md
  std::function<Member(Strategy&, LayerClass&)> member{};  // none: the key is a map or a list
  Form form = Form::plain;
  std::int64_t usual = 0;  // of a sparse number

  std::string label{};  // of its lever and its changes; empty: the last part of the key
  // The choice that takes this one with it in a ladder.
  std::string_view set_by{};
  // When a search pulls its lever, ascending; 0: never. Sentences have the same order, 0 last.
  int turn = 0;
  // Strategies with other values, sound or not. None: the other values of a flag or a word.
  std::function<std::vector<Strategy>(const Problem&, const Strategy&, const Fits&)> others{};
  // Takes the value of `from`. None: copies the member; all layer classes get that of the first.
  std::function<void(const Problem&, Strategy&, const Strategy& from)> take{};
  // The change from one value to another. None: "label a -> b", "label on".
  std::function<std::string(const Problem&, const Strategy&, const Strategy& to)> says{};
  // The part of a sentence about a strategy; empty: nothing worth a mention.
  std::function<std::string(const Problem&, const Strategy&, const Geometry&)> words{};

  // The name of the simplest value, which a bisection tries, and the change to it.
  std::string_view simplest{};
  std::function<void(Problem&, Strategy&)> simplify{};

  // Why the value has no effect beside others; empty if it has one, or is the default.
  std::function<std::string(const Problem&, const Strategy&, const LayerClass&, const Geometry&)>
      unused{};
  // Sets the value that says the same as one without effect. None: the default.
  std::function<void(const Problem&, Strategy&)> instead{};

  [[nodiscard]] std::string name() const;
  // Whether the key is one of each layer class.
  [[nodiscard]] bool of_layer_class() const;
  // Whether a ladder may pull it by itself.
  [[nodiscard]] bool has_rung() const;
};

const std::vector<Choice>& choices();
using Choices = std::span<const Choice>;

// Takes a choice from another strategy, with the keys that it sets.
void take(const Problem& problem, Choices table, const Choice& choice, Strategy& to, Strategy from);
// The change of a choice in words: "serpentine on".
std::string change_words(const Problem& problem, const Choice& choice, Strategy from, Strategy to);
// The other values of a flag or a word, or those that the row says.
std::vector<Strategy> other_values(const Problem& problem, const Choice& choice,
                                   const Strategy& strategy, const Fits& fits);

// Settings without effect beside the others, one sentence each.
std::vector<std::string> without_effect(const Problem& problem, const Strategy& strategy,
                                        Choices table = choices());
// The strategy in canonical form, so that one schedule has one strategy: fractions are whole
// chunks, and what has no effect has its default, or what says the same.
Strategy canonical(const Problem& problem, Strategy strategy, Choices table = choices());

}  // namespace fpdt
