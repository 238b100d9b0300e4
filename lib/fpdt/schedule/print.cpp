// Prints the canonical text.
#include "fpdt/schedule/print.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/hash.h"
#include "fpdt/schedule/containers.h"
#include "fpdt/schedule/text.h"

namespace fpdt {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string value_text(std::int64_t value) { return fmt::format("{}", value); }
std::string value_text(double value) { return fmt::format("{}", value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const std::string& value) { return quoted(value); }
std::string value_text(const RankExpression& value) {
  return is_constant(value) ? rank_expression_text(value) : quoted(rank_expression_text(value));
}
std::string value_text(const std::vector<double>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}
template <class E, class = decltype(word(E{}))>
std::string value_text(E value) {
  return quoted(word(value));
}

// Constants of a body as text, in the order of its fields.
struct ConstantTexts : FieldVisitor<ConstantTexts> {
  explicit ConstantTexts(std::vector<std::string>& all) : texts(all) {}
  std::vector<std::string>& texts;

  void read(std::string_view, const Operand&) {}
  void target(std::string_view, const Target&) {}
  template <class T>
  void constant(std::string_view, const T& value) {
    texts.push_back(value_text(value));
  }
};

class Printer {
 public:
  explicit Printer(const Schedule& schedule) : schedule_(schedule) {}

  std::string print() {
    const std::string problem = schedule_.problem.empty() ? "{}" : schedule_.problem;
    text_ = fmt::format(
        "{{\"fpdt_schedule\":{},\"ranks\":{},\"row_multiple\":{},\"problem\":{},\"groups\":{{",
        kScheduleFormat, schedule_.ranks, schedule_.row_multiple, problem);
    list(schedule_.groups, ",", [this](const Group& group) {
      text_ += quoted(group.name) + ':';
      print_container(group);
    });
    text_ += "},\n\"buffers\":[";
    lines(schedule_.buffers, [this](const Buffer& buffer) { print_container(buffer); });
    if (!schedule_.feeds.empty()) {
      text_ += "],\n\"feeds\":[";
      lines(schedule_.feeds, [this](const Feed& feed) { print_container(feed); });
    }
    text_ += "],\n\"states\":[";
    lines(schedule_.states, [this](const State& state) { print_container(state); });
    text_ += "],\n\"blocks\":[";
    list(schedule_.blocks, ",\n", [this](const Block& block) { print_block(block); });
    text_ += "],\n\"train\":[";
    print_calls(schedule_.train);
    text_ += "],\n\"evaluate\":[";
    print_calls(schedule_.evaluate);
    text_ += "]";
    text_ += fmt::format(",\n\"hash\":\"{}\"}}\n", content_hash(text_));
    return std::move(text_);
  }

 private:
  template <class Items, class Print>
  void list(const Items& items, std::string_view separator, Print&& print_one) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) text_ += separator;
      first = false;
      print_one(item);
    }
  }
  template <class Items, class Print>
  void lines(const Items& items, Print&& print_one) {
    if (!items.empty()) text_ += '\n';
    list(items, ",\n", print_one);
  }
  void key(std::string_view name, std::string_view value) {
    text_ += fmt::format(",\"{}\":{}", name, value);
  }
  [[nodiscard]] const std::string& name(BufferIndex buffer) const {
    return schedule_.buffers[index(buffer)].name;
  }

  // The keys of a container.
  struct ContainerKeys {
    Printer& printer;
    std::string_view separator = "";

    void entry(std::string_view name, std::string_view value) {
      printer.text_ += fmt::format("{}\"{}\":{}", separator, name, value);
      separator = ",";
    }
    template <class T>
    void required(std::string_view name, const T& value) {
      entry(name, value_text(value));
    }
    template <class T>
    void optional(std::string_view name, const T& value) {
      entry(name, value_text(value));
    }
    template <class T>
    void sparse(std::string_view name, const T& value, const T& usual) {
      const std::string text = value_text(value);
      if (text != value_text(usual)) entry(name, text);
    }
    void extents(std::string_view name, const std::vector<std::int64_t>& numbers) {
      entry(name, fmt::format("[{}]", fmt::join(numbers, ",")));
    }
    void buffer(std::string_view name, BufferIndex buffer) {
      entry(name, quoted(printer.name(buffer)));
    }
    void version(std::string_view name, BufferIndex buffer, std::int64_t version) {
      entry(name, quoted(operand_text(printer.name(buffer), {buffer, Version::at(version)})));
    }
    template <class T>
    void sparse_group(std::string_view name, const T& value) {
      if (value == T{}) return;
      entry(name, "");
      printer.print_container(value);
    }
  };
  template <class T>
  void print_container(const T& container) {
    text_ += '{';
    ContainerKeys keys{*this};
    container_keys(container, keys);
    text_ += '}';
  }

  void print_block(const Block& block) {
    text_ += fmt::format("{{\"name\":{},\"advance\":{{", quoted(block.name));
    list(block.advance, ",", [this](const auto& advance) {
      text_ += fmt::format("{}:{}", quoted(name(advance.first)), advance.second);
    });
    text_ += "},\"ops\":[";
    lines(block.ops, [&](const Op& op) { print_op(op); });
    text_ += "]}";
  }

  void print_op(const Op& op) {
    text_ += fmt::format("{{\"op\":{},\"lane\":\"{}\",\"body\":\"{}\"", quoted(op.name),
                         lane_text(op.lane), body_name(op.body));
    std::visit([this](const auto& body) { body.fields(body, Fields(*this, defaults(body))); },
               op.body);
    if (!op.after.empty()) {
      text_ += ",\"after\":[";
      list(op.after, ",", [this](const After& after) {
        const Block& block = schedule_.blocks[index(after.block)];
        text_ += quoted(after_text(
            {block.name, block.ops[index(after.op)].name, after.calls_back, after.of_layer}));
      });
      text_ += ']';
    }
    text_ += '}';
  }

  // The present fields that differ from their defaults, in order.
  struct Fields : FieldVisitor<Fields> {
    Fields(Printer& to, const std::vector<std::string>& usual) : printer(to), defaults(usual) {}
    Printer& printer;
    const std::vector<std::string>& defaults;
    std::size_t next = 0;

    void read(std::string_view field, const Operand& operand) {
      if (operand.present()) printer.key(field, printer.text_of(operand, false));
    }
    void target(std::string_view field, const Target& target) {
      if (target.present()) printer.key(field, printer.text_of(target.operand, target.accumulate));
    }
    void reads(std::string_view field, const std::vector<Operand>& operands) {
      printer.text_ += fmt::format(",\"{}\":[", field);
      printer.list(operands, ",",
                   [this](const Operand& one) { printer.text_ += printer.text_of(one, false); });
      printer.text_ += ']';
    }
    void targets(std::string_view field, const std::vector<Target>& targets) {
      printer.text_ += fmt::format(",\"{}\":[", field);
      printer.list(targets, ",", [this](const Target& one) {
        printer.text_ += printer.text_of(one.operand, one.accumulate);
      });
      printer.text_ += ']';
    }
    template <class T>
    void constant(std::string_view field, const T& value) {
      const std::string text = value_text(value);
      if (text != defaults[next++]) printer.key(field, text);
    }
  };

  [[nodiscard]] std::string text_of(const Operand& operand, bool accumulate) const {
    return quoted(operand_text(name(operand.buffer), operand, accumulate));
  }

  template <class T>
  const std::vector<std::string>& defaults(const T&) {
    std::vector<std::string>& texts = defaults_[Body(T{}).index()];
    if (texts.empty()) {
      const T body{};
      T::fields(body, ConstantTexts(texts));
    }
    return texts;
  }

  void print_calls(const std::vector<Call>& calls);
  void print_run(const Call* calls, std::size_t period, std::size_t repeat);

  const Schedule& schedule_;
  std::string text_;
  std::array<std::vector<std::string>, kBodies> defaults_;
};

// Whether c continues a, b evenly: same block, arguments in arithmetic progression.
bool continues(const Call& a, const Call& b, const Call& c) {
  const auto even = [&](const Argument& argument) {
    return std::int64_t{c.*argument.value} - b.*argument.value ==
           std::int64_t{b.*argument.value} - a.*argument.value;
  };
  return a.block == b.block && b.block == c.block &&
         std::all_of(kArguments.begin(), kArguments.end(), even);
}

// Number of calls from `first` on that repeat with the given period.
std::size_t run_length(const std::vector<Call>& calls, std::size_t first, std::size_t period) {
  std::size_t end = first + period;
  while (end < calls.size() && end < first + 2 * period &&
         calls[end].block == calls[end - period].block)
    ++end;
  if (end < first + 2 * period) return 0;
  while (end < calls.size() && continues(calls[end - 2 * period], calls[end - period], calls[end]))
    ++end;
  return (end - first) / period * period;
}

struct Run {
  std::size_t period = 0;
  std::size_t length = 0;
};

// The period that covers the most calls; the smallest on a tie.
Run best_run(const std::vector<Call>& calls, std::size_t first) {
  constexpr std::size_t kMostPeriod = 16;
  Run best;
  for (std::size_t period = 1; period <= kMostPeriod; ++period) {
    const std::size_t length = run_length(calls, first, period);
    if (length > best.length) best = {period, length};
  }
  return best;
}

void Printer::print_calls(const std::vector<Call>& calls) {
  std::size_t single = 0;  // first call not yet printed and in no run
  std::string_view separator;
  const auto entry = [&](std::size_t first, std::size_t period, std::size_t repeat) {
    text_ += separator;
    separator = ",\n";
    print_run(&calls[first], period, repeat);
  };
  for (std::size_t i = 0; i < calls.size();) {
    const Run run = best_run(calls, i);
    if (run.length == 0) {
      ++i;
      continue;
    }
    if (single < i) entry(single, i - single, 1);
    entry(i, run.period, run.length / run.period);
    i += run.length;
    single = i;
  }
  if (single < calls.size()) entry(single, calls.size() - single, 1);
}

void Printer::print_run(const Call* calls, std::size_t period, std::size_t repeat) {
  text_ += fmt::format("{{\"repeat\":{},\"list\":[", repeat);
  for (std::size_t i = 0; i < period; ++i) {
    const Call& call = calls[i];
    const Call& next = repeat > 1 ? calls[i + period] : call;
    text_ += fmt::format("{}{{\"block\":{}", i == 0 ? "" : ",",
                         quoted(schedule_.blocks[index(call.block)].name));
    for (const Argument& argument : kArguments) {
      const std::int32_t first = call.*argument.value;
      const CallArgument affine{first, std::int64_t{next.*argument.value} - first};
      if (affine.step != 0) {
        key(argument.name, quoted(call_argument_text(affine)));
      } else if (affine.first != 0) {
        key(argument.name, value_text(affine.first));
      }
    }
    text_ += '}';
  }
  text_ += "]}";
}

}  // namespace

std::string content_hash(std::string_view text) { return fmt::format("{:016x}", fnv1a(text)); }

std::string print(const Schedule& schedule) { return Printer(schedule).print(); }

}  // namespace fpdt
