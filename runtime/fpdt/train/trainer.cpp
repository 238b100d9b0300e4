// Feeds inputs, reads outputs and counts steps.
#include "fpdt/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/hash.h"
#include "fpdt/cpu/pool.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/runtime/accounts.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/schedule/lasting.h"
#include "fpdt/spec/initial.h"
#include "fpdt/train/feeds.h"
#include "fpdt/train/inputs.h"
#include "fpdt/train/states.h"

namespace fpdt {
namespace {

struct PortShape {
  std::string_view name;
  Role role;
  Dtype dtype;
  std::int64_t elements;
  std::int64_t slots;
};

BufferIndex find_port(const Schedule& schedule, const PortShape& port,
                      std::vector<Diagnostic>& findings) {
  const std::string where = fmt::format("buffer {}", port.name);
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    if (buffer.name != port.name) continue;
    const std::int64_t elements = mul(buffer.rows(), buffer.row_elements());
    if (buffer.role != port.role || buffer.dtype != port.dtype || elements != port.elements ||
        buffer.slots < port.slots) {
      findings.push_back(
          {"R103", where,
           fmt::format("expected an {} of {} {} in {} slots, found an {} of {} {} in {}",
                       word(port.role), port.elements, word(port.dtype), port.slots,
                       word(buffer.role), elements, word(buffer.dtype), buffer.slots)});
    }
    return static_cast<BufferIndex>(i);
  }
  findings.push_back({"R103", where, "training needs it, and the schedule has none"});
  return -1;
}

template <class T>
void write(Executor& executor, BufferIndex buffer, std::int64_t slot, const T& values) {
  executor.write(buffer, slot, std::as_bytes(std::span(values)));
}

// Throws InputError for several documents: a schedule without document starts lets every token see
// all tokens before it.
void require_one_document(const std::vector<Sample>& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::vector<std::int32_t>& starts = samples[i].documents;
    const auto second =
        std::find_if(starts.begin(), starts.end(), [](std::int32_t start) { return start > 0; });
    if (second == starts.end()) continue;
    throw InputError(fmt::format(
        "sequence {} of {}: another document begins at its token {}, but the schedule was lowered "
        "for sequences of one document; lower it with --documents, or leave --document-separator "
        "out",
        i + 1, samples.size(), *second));
  }
}

std::string print_use(const MemoryUse& use) {
  const MemoryUse::Untouched untouched = use.untouched.value_or(MemoryUse::Untouched{});
  return fmt::format("{} {} {} {} {} {} {} {}\n", use.arena.value, use.live.value,
                     use.touched.value, use.resident.value, use.untouched ? 1 : 0,
                     untouched.scratch.value, untouched.between.value, use.difference);
}

MemoryUse parse_use(MemorySpace space, std::istream& text) {
  MemoryUse use;
  use.space = space;
  MemoryUse::Untouched untouched;
  bool counted = false;
  text >> use.arena.value >> use.live.value >> use.touched.value >> use.resident.value >> counted >>
      untouched.scratch.value >> untouched.between.value;
  text.get();
  std::getline(text, use.difference);
  if (counted) use.untouched = untouched;
  return use;
}

// Together: for each space the most that the ranks of any process use.
std::vector<MemoryUse> merged(World& world, std::vector<MemoryUse> memory) {
  std::string mine;
  for (const MemoryUse& use : memory) mine += print_use(use);
  const std::vector<std::string> all = world.gather(mine);
  for (std::size_t process = 0; process < all.size(); ++process) {
    std::istringstream text(all[process]);
    for (MemoryUse& most : memory) {
      const MemoryUse use = parse_use(most.space, text);
      most.live = std::max(most.live, use.live);
      most.resident = std::max(most.resident, use.resident);
      if (use.touched > most.touched) most.untouched = use.untouched;
      most.touched = std::max(most.touched, use.touched);
      if (most.difference.empty()) most.difference = use.difference;
    }
  }
  return memory;
}

// Prints NaN without its sign, which means nothing and differs between builds.
std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace

ElementSource initial_parameters(std::uint64_t seed) {
  return [seed](const TensorSpec& tensor, std::int64_t first, std::span<float> values) {
    initial_values(seed, fnv1a(tensor.name), first, tensor, values);
  };
}

Trainer::Trainer(const VerifiedSchedule& schedule, Problem problem, const RankOptions& options)
    : problem_(std::move(problem)),
      layout_(schedule.schedule()),
      ports_([&] {
        const Schedule& file = schedule.schedule();
        const std::int64_t local = layout_.rows();
        const std::int64_t micro_batches = layout_.micro_batches();
        std::vector<Diagnostic> findings;
        const auto port = [&](std::string_view name, Role role, Dtype dtype, std::int64_t elements,
                              std::int64_t slots) {
          return find_port(file, {name, role, dtype, elements, slots}, findings);
        };
        Ports ports;
        ports.step = port(kStepInput, Role::input, Dtype::f32, 4, 1);
        ports.tokens =
            port(input_name(file, Holds::tokens), Role::input, Dtype::i32, local, micro_batches);
        ports.labels =
            port(input_name(file, Holds::labels), Role::input, Dtype::i32, local, micro_batches);
        if (problem_.documents) {
          ports.documents = port(input_name(file, Holds::documents), Role::input, Dtype::i32,
                                 layout_.sequence_tokens(), micro_batches);
        }
        ports.loss = port("loss_output", Role::output, Dtype::f32, 1, 1);
        ports.norm = port("grad_norm_output", Role::output, Dtype::f32, 1, 1);
        if (problem_.model.balances()) {
          ports.balance = port("balance_output", Role::output, Dtype::f32, 1, 1);
        }
        if (layout_.sequence_tokens() < problem_.seq_len) {
          findings.push_back({"R104", "tokens",
                              fmt::format("the problem has sequences of {}, the schedule of {}",
                                          problem_.seq_len, layout_.sequence_tokens())});
        }
        if (file.ranks != problem_.ranks()) {
          findings.push_back(
              {"R104", "ranks",
               fmt::format("the problem says {}, the schedule {}", problem_.ranks(), file.ranks)});
        }
        if (!findings.empty()) throw InputError(format_diagnostics(findings));
        require_states(file, problem_.model);
        require_feeds(file, problem_.model);
        return ports;
      }()),
      ranks_(schedule, options),
      threads_(options.threads > 0
                   ? options.threads * static_cast<std::int32_t>(ranks_.present().size())
                   : static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()))) {
}

void Trainer::set_parameters(const TensorSource& source) {
  for (const TensorSpec& spec : model_tensors(problem_.model)) {
    set_tensor(spec.name, "weight", source(spec));
  }
  reset_optimizer();
}

void Trainer::reset_optimizer() {
  Pool pool(threads_);
  for (const State& state : schedule().states) {
    if (!state.kind.starts_with("moment")) continue;
    fill_state(ranks_, {&state}, pool, [](std::int64_t, std::span<float> values) {
      std::fill(values.begin(), values.end(), 0.0F);
    });
  }
  steps_done_ = 0;
}

void Trainer::poison() {
  const LastingRows lasting(schedule());
  for (std::size_t b = 0; b < schedule().buffers.size(); ++b) {
    const Buffer& buffer = schedule().buffers[b];
    const auto index = static_cast<BufferIndex>(b);
    const std::vector<std::byte> nan(static_cast<std::size_t>(buffer.slot_bytes().value),
                                     std::byte{0xFF});
    for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
      if (lasting.of(index, slot) > 0) continue;
      for (const std::int64_t rank : ranks_.present()) {
        ranks_.executor(rank).write(index, slot, nan);
      }
    }
  }
}

void Trainer::set_parameters(const ElementSource& source) {
  Pool pool(threads_);
  for (const TensorSpec& spec : model_tensors(problem_.model)) {
    const Elements values = [&](std::int64_t first, std::span<float> part) {
      source(spec, first, part);
    };
    fill_state(ranks_, weight_states(schedule(), spec.name), pool, values);
  }
  reset_optimizer();
}

bool Trainer::trains_on(std::int64_t sequence) const {
  const std::vector<std::int64_t>& present = ranks_.present();
  return std::any_of(present.begin(), present.end(), [&](std::int64_t rank) {
    return layout_.replica_of(rank) == sequence / layout_.micro_batches();
  });
}

BatchNeeds Trainer::needs() const {
  return {[this](std::int64_t sequence) { return trains_on(sequence); },
          [this](const std::vector<Sample>& samples) { return labels(samples); }};
}

std::int64_t Trainer::labels(const std::vector<Sample>& samples) const {
  World& world = ranks_.world();
  std::int64_t here = 0;
  for (std::int64_t i = 0; i < std::ssize(samples); ++i) {
    const std::int64_t first = layout_.first_rank(i / layout_.micro_batches());
    if (world.process_of(first) != world.place().process) continue;
    here += samples[static_cast<std::size_t>(i)].unmasked();
  }
  return sum(world, here);
}

void Trainer::feed(const std::vector<Sample>& samples, std::int64_t labels, double learning_rate,
                   std::int64_t step) {
  FPDT_ASSERT(static_cast<std::int64_t>(samples.size()) == samples_per_step());
  if (!problem_.documents) require_one_document(samples);
  const OptimizerSpec& optimizer = problem_.optimizer;
  const auto t = static_cast<double>(step);
  const std::array<float, 4> scalars{
      static_cast<float>(learning_rate), static_cast<float>(1 - std::pow(optimizer.beta1, t)),
      static_cast<float>(1 - std::pow(optimizer.beta2, t)),
      labels == 0 ? 0.0F : static_cast<float>(1 / static_cast<double>(labels))};
  for (const std::int64_t rank : ranks_.present()) {
    Executor& executor = ranks_.executor(rank);
    write(executor, ports_.step, 0, scalars);
    const std::int64_t first = layout_.replica_of(rank) * layout_.micro_batches();
    for (std::int64_t slot = 0; slot < layout_.micro_batches(); ++slot) {
      const Sample& sample = samples[static_cast<std::size_t>(first + slot)];
      const RankInputs inputs = rank_inputs(layout_, rank, sample);
      write(executor, ports_.tokens, slot, inputs.tokens);
      write(executor, ports_.labels, slot, inputs.labels);
      if (problem_.documents) write(executor, ports_.documents, slot, inputs.documents);
    }
  }
}

double Trainer::output(BufferIndex buffer) const {
  std::array<float, 1> value{};
  ranks_.executor(ranks_.present().front())
      .read(buffer, 0, std::as_writable_bytes(std::span(value)));
  return static_cast<double>(value[0]);
}

std::vector<MemoryUse> Trainer::measure(const std::vector<Trace>& traces) const {
  std::vector<MemoryUse> memory;
  for (const MemorySpace space : kMemorySpaces) {
    memory.push_back({space, arena_bytes(schedule(), space), {}, {}, {}, {}});
  }
  for (const Trace& trace : traces) {
    const Executor& executor = ranks_.executor(trace.rank);
    const std::vector<Account> accounts = account_resident(executor, schedule().train);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      MemoryUse& use = memory[i];
      const LiveCurve* const curve = find_curve(trace, word(use.space));
      if (curve != nullptr) use.live = std::max(use.live, peak(*curve));
      const auto counted = count_touched(executor, schedule().train, use.space);
      if (counted && counted->touched >= use.touched) {
        use.untouched = {counted->unused_scratch, counted->between};
      }
      use.touched = std::max(use.touched, counted ? counted->touched : accounts[i].expected);
      if (counted && !counted->difference.empty()) {
        use.difference = fmt::format("rank {}: {}", trace.rank, counted->difference);
      }
      use.resident = std::max(use.resident, accounts[i].found);
      if (use.difference.empty() && !accounts[i].difference.empty()) {
        use.difference = fmt::format("rank {}: {}", trace.rank, accounts[i].difference);
      }
    }
  }
  return merged(ranks_.world(), std::move(memory));
}

StepResult Trainer::step_measured(const std::vector<Sample>& samples, double learning_rate,
                                  std::vector<MemoryUse>& memory) {
  std::vector<Trace> traces;
  const StepResult result = step(samples, learning_rate, &traces);
  memory = measure(traces);
  return result;
}

StepResult Trainer::step(const std::vector<Sample>& samples, double learning_rate,
                         std::vector<Trace>* traces) {
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  StepResult result;
  result.step = steps_done_ + 1;
  result.learning_rate = learning_rate;
  const std::int64_t counted = labels(samples);
  if (counted == 0) {
    throw InputError(
        fmt::format("step {}: every label is masked, so there is nothing to learn", result.step));
  }
  agree(ranks_.world(), [&] { feed(samples, counted, learning_rate, result.step); });
  const Traffic before = ranks_.sent();
  if (traces == nullptr) {
    const auto launched = std::chrono::steady_clock::now();
    ranks_.run(schedule().train);
    result.seconds = since(launched);
  } else {
    *traces = ranks_.record(schedule().train);
    for (const Trace& trace : *traces) {
      result.seconds = std::max(result.seconds, static_cast<double>(duration(trace)) * 1e-9);
    }
  }
  const Traffic after = ranks_.sent();
  result.sent = {after.node - before.node, after.network - before.network};
  if (ports_.balance >= 0) result.balance = output(ports_.balance);
  result.loss = output(ports_.loss) + result.balance;
  result.grad_norm = std::sqrt(output(ports_.norm));
  result.tokens = mul(problem_.seq_len, samples_per_step());
  result.wall_seconds = since(begin);
  agree(ranks_.world(), [&] {
    if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
    throw NumericError(fmt::format(
        "step {}: the loss is {} and the gradient norm {}. Lower the learning rate (it "
        "was {}) or lengthen the warm-up",
        result.step, number_text(result.loss), number_text(result.grad_norm), learning_rate));
  });
  steps_done_ = result.step;
  return result;
}

double Trainer::evaluate(std::vector<Sample> samples) {
  FPDT_ASSERT(!samples.empty() && std::ssize(samples) <= samples_per_step());
  // A replica without a sequence gets one that counts nothing.
  const auto length = static_cast<std::size_t>(problem_.seq_len);
  const std::vector<std::int32_t> zeros(length);
  samples.resize(static_cast<std::size_t>(samples_per_step()),
                 {zeros, std::vector<std::int32_t>(length, -1), zeros});
  const std::int64_t counted = labels(samples);
  agree(ranks_.world(), [&] { feed(samples, counted, 0, 1); });
  ranks_.run(schedule().evaluate);
  const double loss = output(ports_.loss);
  agree(ranks_.world(), [&] {
    if (std::isfinite(loss)) return;
    throw NumericError(fmt::format("after step {}: the evaluation loss is {}", steps_done_, loss));
  });
  return loss;
}

std::vector<float> Trainer::tensor(std::string_view name, std::string_view kind) const {
  StateEntries entries = states_of(schedule(), name, kind == "weight" ? "master" : kind);
  if (entries.empty() && kind == "weight") entries = states_of(schedule(), name, "parameter");
  return read_state(ranks_, entries);
}

void Trainer::set_tensor(std::string_view name, std::string_view kind,
                         std::span<const float> values) {
  // The parameter in storage follows its master.
  write_range(
      ranks_,
      kind == "weight" ? weight_states(schedule(), name) : states_of(schedule(), name, kind), 0,
      values);
}

}  // namespace fpdt
