// S6xx: which ops fill a buffer, and which integers kernels may use as an index.
//
// Kernels look rows up by tokens and positions without checking them. The trainer checks what it
// feeds against the bounds that the ops state. This file proves that what an op reads as tokens,
// labels or document starts was fed as such: it comes from inputs, through copies and collectives
// that change no value, and no input serves two purposes. Document starts must also stay in their
// rows, since a start is a position. Routes alone are made by an op, `route`, whatever it reads:
// what an op reads as routes is what `route` wrote before it in the block, for as many rows and
// experts.
//
// A gradient, of the state table or of an optimizer, is traced back in the same way, to the buffers
// that ops add to. Each of those ops must say which local rows it sums over, or coverage (S5xx)
// would miss it. All of them hold f32, and a sum that ops add to begins with zeros.
#include "fpdt/schedule/roles.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fpdt/schedule/lasting.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// Elements that move from one buffer to another.
struct Flow {
  BufferIndex source = -1;
  BufferIndex target = -1;
  bool in_place = false;  // rows stay where they are
  const Block* block = nullptr;
  const Op* op = nullptr;
};

constexpr std::string_view kGradient = "gradient";

// A buffer that an op reads as tokens, labels or documents, or that holds a gradient.
struct Purpose {
  std::string_view field;
  BufferIndex buffer = -1;
  const Block* block = nullptr;  // null: the state table
  const Op* op = nullptr;
};

class Roles {
 public:
  Roles(const Schedule& schedule, Findings& findings)
      : schedule_(schedule), findings_(findings), served_(schedule.buffers.size()) {}

  void check() {
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        collect(block, op);
        check_targets(block, op);
      }
    }
    check_evaluation();
    check_sources();
    for (const Block& block : schedule_.blocks) check_routes(block);
    for (const State& state : schedule_.states) {
      if (state.kind == kGradient) purposes_.push_back({kGradient, state.buffer});
    }
    trace_purposes();
    check_gradients();
    check_fills();
  }

  [[nodiscard]] std::vector<std::string_view> purposes() && { return std::move(served_); }

 private:
  [[nodiscard]] const Buffer& buffer(const Operand& operand) const {
    return schedule_.buffers[index(operand.buffer)];
  }

  // The operands of an op that it reads for a purpose.
  struct ReadPurposes : FieldVisitor<ReadPurposes> {
    ReadPurposes(std::vector<Purpose>& all, const Block& in, const Op& of)
        : purposes(all), block(in), op(of) {}
    std::vector<Purpose>& purposes;
    const Block& block;
    const Op& op;

    void read(std::string_view, const Operand&) {}
    void target(std::string_view, const Target&) {}
    void indices(std::string_view, const Operand& operand, Holds holds) {
      if (operand.present()) purposes.push_back({word(holds), operand.buffer, &block, &op});
    }
    void sum(std::string_view, const Operand& operand) {
      if (operand.present()) purposes.push_back({kGradient, operand.buffer, &block, &op});
    }
  };

  void collect(const Block& block, const Op& op) {
    if (const auto* route = std::get_if<Route>(&op.body)) {
      const Operand& routes = route->routes.operand;
      if (routes.present()) purposes_.push_back({word(Holds::routes), routes.buffer, &block, &op});
      return;
    }
    std::visit([&](const auto& body) { body.fields(body, ReadPurposes(purposes_, block, op)); },
               op.body);
    if (const auto* copy = std::get_if<Copy>(&op.body)) {
      flow(block, op, copy->source, copy->target.operand);
      return;
    }
    std::visit(
        [&](const auto& body) {
          if constexpr (requires { body.receive; }) {
            for (std::size_t i = 0; i < body.receive.size() && i < body.send.size(); ++i) {
              flow(block, op, body.send[i], body.receive[i].operand);
            }
          }
        },
        op.body);
  }

  void flow(const Block& block, const Op& op, const Operand& source, const Operand& target) {
    if (!source.present() || !target.present()) return;
    const bool in_place = std::holds_alternative<Copy>(op.body) &&
                          source.row_first == target.row_first &&
                          buffer(source).row_elements() == buffer(target).row_elements();
    flows_.push_back({source.buffer, target.buffer, in_place, &block, &op});
  }

  void check_targets(const Block& block, const Op& op) {
    for (const Use& use : operands(op.body)) {
      if (use.access == Access::read) continue;
      const Buffer& written = buffer(use.operand);
      if (written.role == Role::input) {
        findings_.add("S601", place_of(block, op),
                      fmt::format("{} is {}, an input, which only the trainer fills", use.field,
                                  written.name));
      } else if (written.dtype == Dtype::i32 && !moves(op) &&
                 !std::holds_alternative<Route>(op.body)) {
        findings_.add("S602", place_of(block, op),
                      fmt::format("{} produces the integers of {}, which must come from an input",
                                  body_name(op.body), written.name));
      }
    }
  }

  // Evaluation must not change parameters, masters or moments.
  void check_evaluation() {
    const LastingRows lasting(schedule_);
    std::vector<bool> called(schedule_.blocks.size());
    for (const Call& call : schedule_.evaluate) called[index(call.block)] = true;
    for (std::size_t b = 0; b < called.size(); ++b) {
      if (!called[b]) continue;
      const Block& block = schedule_.blocks[b];
      for (const Op& op : block.ops) {
        for (const Use& use : operands(op.body)) {
          if (use.access == Access::read || !lasting.any(use.operand.buffer)) continue;
          findings_.add("S603", place_of(block, op),
                        fmt::format("{} changes {}, and evaluate calls the block", use.field,
                                    buffer(use.operand).name));
        }
      }
    }
  }

  // The constants by which routes are laid out.
  struct RoutesOf {
    Operand operand;
    std::int64_t rows, experts, active;
    bool operator==(const RoutesOf&) const = default;
  };

  void check_routes(const Block& block) {
    std::vector<RoutesOf> made;
    for (const Op& op : block.ops) {
      if (const auto* route = std::get_if<Route>(&op.body)) {
        made.push_back({route->routes.operand, route->rows, route->experts, route->active});
      } else if (const std::optional<RoutesOf> read = routes_read(op)) {
        // The last ones are the likely ones.
        if (std::find(made.rbegin(), made.rend(), *read) != made.rend()) continue;
        findings_.add("S610", place_of(block, op),
                      "no route before it in the block wrote these routes, for as many rows and "
                      "experts");
      }
    }
  }

  static std::optional<RoutesOf> routes_read(const Op& op) {
    return std::visit(
        [](const auto& body) -> std::optional<RoutesOf> {
          if constexpr (requires { Operand{body.routes}; }) {
            if (body.routes.present()) {
              return RoutesOf{body.routes, body.rows, body.experts, body.active};
            }
          }
          return {};
        },
        op.body);
  }

  // Reports integers that are neither inputs nor copies of inputs, such as a state or an output.
  void check_sources() {
    for (const Buffer& one : schedule_.buffers) {
      if (one.dtype != Dtype::i32 || one.role == Role::input || one.role == Role::temporary) {
        continue;
      }
      findings_.add("S602", "buffers." + one.name, "integers are inputs, or copies of inputs");
    }
  }

  // Traces purposes from the reading ops back to the inputs. Each buffer is visited once per
  // purpose.
  void trace_purposes() {
    std::sort(flows_.begin(), flows_.end(),
              [](const Flow& a, const Flow& b) { return a.target < b.target; });
    for (const Purpose& purpose : purposes_) serve(purpose);
    while (!open_.empty()) {
      const Purpose purpose = open_.back();
      open_.pop_back();
      const auto first = std::lower_bound(
          flows_.begin(), flows_.end(), purpose.buffer,
          [](const Flow& flow, BufferIndex buffer) { return flow.target < buffer; });
      for (auto at = first; at != flows_.end() && at->target == purpose.buffer; ++at) {
        const Flow& one = *at;
        if (purpose.field == "documents" && !one.in_place) {
          findings_.add("S602", place_of(*one.block, *one.op),
                        "moves document starts to other rows, but a start is the number of a row");
        }
        serve({purpose.field, one.source, one.block, one.op});
      }
    }
  }

  void serve(const Purpose& purpose) {
    std::string_view& served = served_[index(purpose.buffer)];
    if (served == purpose.field) return;
    if (!served.empty()) {
      findings_.add(
          "S602", purpose.op == nullptr ? "states" : place_of(*purpose.block, *purpose.op),
          fmt::format("{} serves as {} here, and elsewhere as {}",
                      schedule_.buffers[index(purpose.buffer)].name, purpose.field, served));
      return;
    }
    served = purpose.field;
    open_.push_back(purpose);
  }

  // Reports ops that add to a gradient without saying which rows they sum over.
  struct UnknownRows : FieldVisitor<UnknownRows> {
    UnknownRows(Roles& to, const Block& in, const Op& of) : roles(to), block(in), op(of) {}
    Roles& roles;
    const Block& block;
    const Op& op;

    void read(std::string_view, const Operand&) {}
    void target(std::string_view field, const Target& target) {
      if (!target.present() || roles.served_[index(target.operand.buffer)] != kGradient) return;
      roles.findings_.add("S605", place_of(block, op),
                          fmt::format("{} is {}, which makes a gradient, but the op does not say "
                                      "which local rows it sums over",
                                      field, roles.buffer(target.operand).name));
    }
    void gradient(std::string_view field, const Target& one, std::int64_t first, std::int64_t) {
      if (first < 0) target(field, one);
    }
  };

  void check_gradients() {
    // Sums are f32. Copies of complete ones may be rounded.
    std::vector<bool> summed(schedule_.buffers.size());
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        if (std::holds_alternative<Copy>(op.body)) continue;
        for (const Use& use : operands(op.body)) {
          if (use.access != Access::read) summed[index(use.operand.buffer)] = true;
        }
      }
    }
    for (std::size_t b = 0; b < served_.size(); ++b) {
      const Buffer& one = schedule_.buffers[b];
      if (served_[b] != kGradient || one.dtype == Dtype::f32 || !summed[b]) continue;
      findings_.add("S608", "buffers." + one.name, "sums gradients, and is not f32");
    }
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        if (moves(op) || std::holds_alternative<Fill>(op.body)) continue;
        std::visit([&](const auto& body) { body.fields(body, UnknownRows(*this, block, op)); },
                   op.body);
      }
    }
  }

  // A sum that begins with another value than zero is wrong by that value.
  void check_fills() {
    std::vector<bool> added(schedule_.buffers.size());
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        for (const Use& use : operands(op.body)) {
          if (use.access == Access::accumulate) added[index(use.operand.buffer)] = true;
        }
      }
    }
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        const auto* const fill = std::get_if<Fill>(&op.body);
        if (fill == nullptr || fill->value == 0 || !fill->target.operand.present()) continue;
        const BufferIndex target = fill->target.operand.buffer;
        if (!added[index(target)]) continue;
        findings_.add("S609", place_of(block, op),
                      fmt::format("fills {} with {}, and ops add to it",
                                  schedule_.buffers[index(target)].name, fill->value));
      }
    }
  }

  static bool moves(const Op& op) {
    return std::holds_alternative<Copy>(op.body) || is_collective(op.body);
  }

  const Schedule& schedule_;
  Findings& findings_;
  std::vector<Flow> flows_;
  std::vector<Purpose> purposes_;
  std::vector<Purpose> open_;
  std::vector<std::string_view> served_;  // of each buffer, "" for none
};

}  // namespace

std::vector<std::string_view> purposes_of(const Schedule& schedule) {
  Findings findings;
  Roles roles(schedule, findings);
  roles.check();
  return std::move(roles).purposes();
}

void check_roles(const Schedule& schedule, Findings& findings) {
  Roles(schedule, findings).check();
}

}  // namespace fpdt
