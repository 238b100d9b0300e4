// Reads the canonical text in two passes: ops first, then the edges, which may name any op.
#include "fpdt/io/schedule_json.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "fpdt/io/file.h"
#include "fpdt/io/json.h"
#include "fpdt/schedule/containers.h"
#include "fpdt/schedule/print.h"
#include "fpdt/schedule/text.h"

namespace fpdt {

// A number when equal on every rank, else an expression in quotes.
static bool convert(const Node& node, RankExpression& value) {
  if (node.kind == NodeKind::plain) {
    value = RankExpression{};
    return convert(node, value.a);
  }
  const auto parsed = node.kind == NodeKind::text ? parse_rank_expression(node.text) : std::nullopt;
  if (parsed) value = *parsed;
  return parsed.has_value();
}

static std::string_view expected(const RankExpression&) {
  return "an integer or an expression such as \"8*r\"";
}

namespace {

// Our files take 14 bytes or more for what counts as a value; small ones that people write rarely
// take fewer than eight. A value takes 200 bytes of memory while a file is read.
constexpr std::int64_t kValuesMost = kScheduleBytesMax / 12;
constexpr std::int64_t kValuesAlways = std::int64_t{1} << 14;
constexpr std::size_t kCallsMax = std::size_t{1} << 20;

constexpr std::string_view kFromFormat1 =
    "; write it again with `fpdt-plan lower`, or, if it was written by hand, rename `token_first` "
    "of matmul, column_sum and norm_backward to `local_first`";

std::int64_t values_max(std::string_view text) {
  return std::clamp(static_cast<std::int64_t>(text.size()) / 8, kValuesAlways, kValuesMost);
}

// The names of one list, as views into the tree.
using Names = std::unordered_map<std::string_view, std::int32_t>;

bool is_text(const Node& node) { return node.kind == NodeKind::text; }

class Loader {
 public:
  Loader(const Node& root, FileFindings& findings) : root_(root), findings_(findings) {}

  Schedule load() {
    Fields fields(root_, "", findings_);
    check_format(fields);
    fields.required("ranks", schedule_.ranks);
    fields.required("row_multiple", schedule_.row_multiple);
    if (const Node* problem = fields.find("problem")) {
      schedule_.problem = json_text(*problem);
      if (schedule_.problem == "{}") schedule_.problem.clear();
    }
    if (const Node* groups = fields.find("groups")) read_groups(*groups);
    each(fields, "buffers",
         [this](const Node& node, const std::string& path) { read_buffer(node, path); });
    each(fields, "feeds", [this](const Node& node, std::string path) {
      read_container(node, std::move(path), schedule_.feeds.emplace_back());
    });
    each(fields, "states", [this](const Node& node, std::string path) {
      read_container(node, std::move(path), schedule_.states.emplace_back());
    });
    each(fields, "blocks",
         [this](const Node& node, std::string path) { read_block(node, std::move(path)); });
    for (std::size_t block = 0; block < schedule_.blocks.size(); ++block) read_edges(block);
    read_calls(fields, "train", schedule_.train);
    if (fields.has("evaluate")) read_calls(fields, "evaluate", schedule_.evaluate);
    fields.find("hash");
    fields.done();
    return std::move(schedule_);
  }

 private:
  void check_format(Fields& fields) {
    std::int64_t format = kScheduleFormat;
    fields.required("fpdt_schedule", format);
    if (format >= kOldestFormat && format <= kScheduleFormat) return;
    findings_.add(
        "J101", root_,
        fmt::format("fpdt_schedule: this program reads formats {} to {}, but the file has "
                    "{}{}",
                    kOldestFormat, kScheduleFormat, format, format == 1 ? kFromFormat1 : ""));
    findings_.raise();
  }

  template <class Read>
  void each(Fields& fields, std::string_view key, Read read) {
    const Node* list = fields.find(key);
    if (list == nullptr) return;
    if (list->kind != NodeKind::list) return fields.wrong(*list, key, "a list");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      read(list->items[i], fmt::format("{}[{}]", key, i));
    }
  }

  void wrong(const std::string& path, std::string message) {
    findings_.add("J102", root_, fmt::format("{}: {}", path, message));
  }

  // The index of a name; -1 and a finding if it does not exist.
  std::int32_t resolve(const Names& names, std::string_view name, const std::string& path,
                       std::string_view kind) {
    const auto found = names.find(name);
    if (found != names.end()) return found->second;
    std::vector<std::string_view> known;
    for (const auto& [one, index] : names) known.push_back(one);
    const std::string nearest = nearest_word(name, known);
    wrong(path, fmt::format("there is no {} \"{}\"{}", kind, name,
                            nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
    return -1;
  }

  // Registers the name of a list's next entry. Views point into the tree, which outlives the
  // loader.
  void name_entry(Names& names, const Node* node, std::size_t index, const std::string& path) {
    if (node == nullptr || !is_text(*node)) return;  // reported as missing or wrong
    if (!names.emplace(node->text, static_cast<std::int32_t>(index)).second) {
      wrong(path, fmt::format("the name \"{}\" is taken", node->text));
    }
  }

  // The keys of a container.
  struct ContainerReader {
    Loader& loader;
    Fields& fields;

    template <class T>
    void required(std::string_view key, T& value) {
      fields.required(key, value);
    }
    template <class T>
    void optional(std::string_view key, T& value) {
      fields.optional(key, value);
    }
    template <class T>
    void sparse(std::string_view key, T& value, const T&) {
      fields.optional(key, value);
    }
    void extents(std::string_view key, std::vector<std::int64_t>& numbers) {
      const Node* node = fields.find(key);
      if (node == nullptr) return fields.missing(key);
      bool good = node->kind == NodeKind::list && !node->items.empty();
      for (const Node& item : node->items) good = convert(item, numbers.emplace_back()) && good;
      if (!good) fields.wrong(*node, key, "a list of integers");
    }
    void buffer(std::string_view key, BufferIndex& buffer) {
      std::string name;
      fields.required(key, name);
      if (name.empty()) return;
      buffer = loader.resolve(loader.buffers_, name, fields.path_of(key), "buffer");
    }
    void version(std::string_view key, BufferIndex& buffer, std::int64_t& version) {
      const Target target = loader.read_operand(fields, key);
      buffer = target.operand.buffer;
      version = target.operand.version.offset;
      if (target.present() && !(target == Target{{buffer, Version::at(version)}, false})) {
        loader.wrong(fields.path_of(key),
                     "expected a buffer and a constant version, such as \"w[3]\"");
      }
    }
    template <class T>
    void sparse_group(std::string_view key, T& value) {
      if (const Node* node = fields.find(key)) {
        loader.read_container(*node, fields.path_of(key), value);
      }
    }
  };
  template <class T>
  void read_container(const Node& node, std::string path, T& container) {
    Fields fields(node, std::move(path), findings_);
    ContainerReader reader{*this, fields};
    container_keys(container, reader);
    fields.done();
  }

  void read_groups(const Node& node) {
    for (const Node& item : node.items) {
      schedule_.groups.emplace_back().name = item.key;
      read_container(item, "groups." + item.key, schedule_.groups.back());
    }
  }

  void read_buffer(const Node& node, const std::string& path) {
    read_container(node, path, schedule_.buffers.emplace_back());
    name_entry(buffers_, node.find("name"), schedule_.buffers.size() - 1, path + ".name");
  }

  Target convert_operand(const Fields& fields, const Node& node, std::string_view key) {
    const auto parsed = is_text(node) ? parse_operand(node.text) : std::nullopt;
    if (!parsed) {
      wrong(fields.path_of(key),
            fmt::format("expected an operand such as \"q[+1] rows 0:8\", found {}",
                        describe_found(node)));
      return {};
    }
    const auto found = buffers_.find(parsed->buffer);
    const BufferIndex buffer =
        found != buffers_.end() ? found->second
                                : resolve(buffers_, parsed->buffer, fields.path_of(key), "buffer");
    return {{buffer, parsed->version, parsed->row_first, parsed->rows}, parsed->accumulate};
  }

  Target read_operand(Fields& fields, std::string_view key) {
    const Node* node = fields.find(key);
    return node == nullptr ? Target{} : convert_operand(fields, *node, key);
  }

  // Visitor of a body's fields.
  struct BodyReader : FieldVisitor<BodyReader> {
    BodyReader(Loader& l, Fields& f) : loader(l), fields(f) {}
    Loader& loader;
    Fields& fields;

    void read(std::string_view key, Operand& operand) {
      operand = not_added_to(loader.read_operand(fields, key), key);
    }
    void target(std::string_view key, Target& target) { target = loader.read_operand(fields, key); }
    void reads(std::string_view key, std::vector<Operand>& operands) {
      each(key, [&](const Target& one) { operands.push_back(not_added_to(one, key)); });
    }
    void targets(std::string_view key, std::vector<Target>& targets) {
      each(key, [&](const Target& one) { targets.push_back(one); });
    }
    template <class T>
    void constant(std::string_view key, T& value) {
      fields.optional(key, value);
    }

   private:
    Operand not_added_to(const Target& target, std::string_view key) {
      if (target.accumulate)
        loader.wrong(fields.path_of(key), "is not a target, so \"+=\" has no meaning");
      return target.operand;
    }
    template <class Take>
    void each(std::string_view key, Take take) {
      const Node* node = fields.find(key);
      if (node == nullptr) return;
      if (node->kind != NodeKind::list) return fields.wrong(*node, key, "a list of operands");
      for (const Node& item : node->items) take(loader.convert_operand(fields, item, key));
    }
  };

  void read_block(const Node& node, std::string path) {
    Block& block = schedule_.blocks.emplace_back();
    Fields fields(node, std::move(path), findings_);
    fields.required("name", block.name);
    name_entry(blocks_, node.find("name"), schedule_.blocks.size() - 1, fields.path_of("name"));
    if (const Node* advance = fields.find("advance")) {
      for (const Node& item : advance->items) {
        std::int64_t count = 0;
        if (!convert(item, count))
          wrong(block.name + ".advance." + item.key, "expected an integer");
        block.advance.emplace_back(resolve(buffers_, item.key, block.name + ".advance", "buffer"),
                                   count);
      }
    }
    const Node* ops = fields.find("ops");
    if (ops == nullptr || ops->kind != NodeKind::list) {
      fields.missing("ops");
    } else {
      block.ops.reserve(ops->items.size());
      Names& names = ops_.emplace_back();
      names.reserve(ops->items.size());
      for (const Node& item : ops->items) read_op(item, block, names);
    }
    ops_.resize(schedule_.blocks.size());
    op_nodes_.push_back(ops);
    fields.done();
  }

  void read_op(const Node& node, Block& block, Names& names) {
    Op& op = block.ops.emplace_back();
    const Node* name = node.find("op");
    const bool is_named = name != nullptr && is_text(*name);
    const std::string path = is_named ? fmt::format("{}.{}", block.name, name->text)
                                      : fmt::format("{}.ops[{}]", block.name, block.ops.size() - 1);
    Fields fields(node, path, findings_);
    fields.required("op", op.name);
    name_entry(names, name, block.ops.size() - 1, path);
    const Node* lane = fields.find("lane");
    const auto parsed_lane =
        lane != nullptr && is_text(*lane) ? parse_lane(lane->text) : std::nullopt;
    if (parsed_lane) op.lane = *parsed_lane;
    if (!parsed_lane) wrong(path + ".lane", "expected a lane such as \"compute.0\"");
    std::string word;
    fields.required("body", word);
    const auto body = body_named(word);
    if (!body) {
      const std::string nearest = nearest_word(word, kBodyNames);
      wrong(path + ".body",
            fmt::format("unknown op \"{}\"{}", word,
                        nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
      return;
    }
    op.body = *body;
    std::visit([&](auto& one) { one.fields(one, BodyReader(*this, fields)); }, op.body);
    fields.find("after");
    fields.done();
  }

  void read_edges(std::size_t block) {
    if (op_nodes_[block] == nullptr) return;
    for (std::size_t i = 0; i < schedule_.blocks[block].ops.size(); ++i) {
      const Node* after = op_nodes_[block]->items[i].find("after");
      if (after == nullptr) continue;
      const std::string path = fmt::format("{}.{}.after", schedule_.blocks[block].name,
                                           schedule_.blocks[block].ops[i].name);
      if (after->kind != NodeKind::list) wrong(path, "expected a list of ops");
      schedule_.blocks[block].ops[i].after.reserve(after->items.size());
      for (const Node& item : after->items) {
        read_edge(item, static_cast<std::int32_t>(block), path, schedule_.blocks[block].ops[i]);
      }
    }
  }

  void read_edge(const Node& node, std::int32_t own_block, const std::string& path, Op& op) {
    const auto text = is_text(node) ? parse_after(node.text) : std::nullopt;
    if (!text) {
      return wrong(path,
                   fmt::format("expected \"op\", \"block.op@-k\" or \"block.op@layer-k\", found {}",
                               describe_found(node)));
    }
    const std::int32_t block =
        text->block.empty() ? own_block : resolve(blocks_, text->block, path, "block");
    if (block < 0) return;
    const std::int32_t target =
        resolve(ops_[static_cast<std::size_t>(block)], text->op, path, "op");
    if (target >= 0) {
      op.after.push_back({block, target, text->calls_back, text->of_layer});
    }
  }

  void read_calls(Fields& fields, std::string_view key, std::vector<Call>& calls) {
    if (!fields.has(key)) return fields.missing(key);
    each(fields, key, [&](const Node& node, std::string path) {
      Fields run(node, std::move(path), findings_);
      std::int64_t repeat = 1;
      run.required("repeat", repeat);
      const Node* list = run.find("list");
      run.done();
      if (list == nullptr || list->kind != NodeKind::list) return run.missing("list");
      const bool fits =
          repeat >= 1 && repeat <= static_cast<std::int64_t>(kCallsMax) &&
          static_cast<std::size_t>(repeat) * list->items.size() <= kCallsMax - calls.size();
      if (!fits) {
        return wrong(run.path_of("repeat"),
                     fmt::format("expected 1 to {} calls in all", kCallsMax));
      }
      std::vector<CallRun> pattern;
      for (const Node& item : list->items) pattern.push_back(read_call(item, run.path_of("list")));
      for (std::int64_t n = 0; n < repeat; ++n) {
        for (const CallRun& call : pattern) calls.push_back(call_at(call, n, run.path_of("list")));
      }
    });
  }

  // One call of a repeated pattern; its arguments are affine in the repetition.
  struct CallRun {
    std::int32_t block = -1;
    std::array<CallArgument, kArguments.size()> arguments;
  };

  CallRun read_call(const Node& node, const std::string& path) {
    CallRun call;
    Fields fields(node, path, findings_);
    std::string block;
    fields.required("block", block);
    if (fields.has("block")) call.block = resolve(blocks_, block, path, "block");
    const auto argument = [&](std::string_view key, CallArgument& value) {
      const Node* given = fields.find(key);
      if (given == nullptr) return;
      const bool is_number = given->kind == NodeKind::plain && convert(*given, value.first);
      const auto parsed = is_text(*given) ? parse_call_argument(given->text) : std::nullopt;
      if (parsed) value = *parsed;
      if (!parsed && !is_number)
        fields.wrong(*given, key, "an integer or an expression such as \"n+1\"");
    };
    for (std::size_t i = 0; i < kArguments.size(); ++i) {
      argument(kArguments[i].name, call.arguments[i]);
    }
    fields.done();
    return call;
  }

  Call call_at(const CallRun& run, std::int64_t n, const std::string& path) {
    const auto value = [&](const CallArgument& argument) {
      std::int64_t at = 0;
      const bool overflow = __builtin_mul_overflow(argument.step, n, &at) ||
                            __builtin_add_overflow(at, argument.first, &at);
      if (!overflow && at >= 0 && at <= INT32_MAX) return static_cast<std::int32_t>(at);
      wrong(path, "expected arguments of 0 to 2^31 - 1");
      findings_.raise();
      return 0;
    };
    Call call{run.block};
    for (std::size_t i = 0; i < kArguments.size(); ++i) {
      call.*kArguments[i].value = value(run.arguments[i]);
    }
    return call;
  }

  const Node& root_;
  FileFindings& findings_;
  Schedule schedule_;
  Names buffers_;
  Names blocks_;
  std::vector<Names> ops_;             // of each block
  std::vector<const Node*> op_nodes_;  // the list of each block's ops
};

// Checks the hash; returns whether the file has one.
bool check_hash(std::string_view text, const Node& root, FileFindings& findings) {
  const Node* hash = root.find("hash");
  if (hash == nullptr) return false;
  const std::size_t begin = text.rfind(",\n\"hash\":");
  const std::string actual =
      begin == std::string_view::npos ? "" : content_hash(text.substr(0, begin));
  if (hash->text == actual) return true;
  findings.add(
      "J103", *hash,
      fmt::format(
          "hash: the file says {}, its contents make {}: it is damaged, or was changed by hand "
          "(then remove the key)",
          describe_found(*hash), actual.empty() ? "none" : actual));
  findings.raise();
  return false;
}

}  // namespace

Schedule parse_schedule(std::string text, std::string_view file_name, bool* has_hash) {
  FileFindings findings(file_name);
  const Node root = parse_json(text, findings, values_max(text));
  const bool is_hashed = check_hash(text, root, findings);
  if (has_hash != nullptr) *has_hash = is_hashed;
  text = std::string();  // a large file's is not kept beside its ops
  Schedule schedule = Loader(root, findings).load();
  findings.raise();
  return schedule;
}

std::string schedule_text(const Schedule& schedule, std::int64_t bytes_max) {
  std::string text = print(schedule);
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes <= bytes_max) return text;
  throw InputError(fmt::format(
      "the schedule would be a file of {} bytes, and at most {} are read: longer chunks make it "
      "shorter",
      bytes, bytes_max));
}

Schedule load_schedule(const std::string& path, bool* has_hash) {
  return parse_schedule(read_file(path, kScheduleBytesMax), path, has_hash);
}

}  // namespace fpdt
