// Flags and files into a Problem.
#include "plan/question.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/plan/methods/published.h"
#include "fpdt/plan/search/longest.h"
#include "fpdt/spec/attention_kernels.h"

#include "common/command.h"
#include "common/share.h"

namespace fpdt {
namespace {

Bytes device_budget(const QuestionFlags& flags, const ClusterSpec& cluster) {
  if (flags.device_budget.empty()) return cluster.device_memory;
  const Bytes budget = parse_size("--device-budget", flags.device_budget);
  if (budget > cluster.device_memory) {
    throw InputError(fmt::format("--device-budget: {} is more than the {} of a device",
                                 format_bytes(budget), format_bytes(cluster.device_memory)));
  }
  return budget;
}

// Memory of a host can be bought, so that more than there is may be asked.
Bytes host_budget(const QuestionFlags& flags, const ClusterSpec& cluster) {
  if (flags.host_budget.empty()) return cluster.host_available();
  const Bytes budget = parse_size("--host-budget", flags.host_budget);
  if (budget > cluster.host_available()) {
    say(
        fmt::format("note: --host-budget: {} is more than a node of {} has to spare: {} less {} "
                    "outside\n",
                    format_bytes(budget), cluster.name, format_bytes(cluster.host_memory),
                    format_bytes(cluster.host_outside_bytes())));
  }
  return budget;
}

// The sequences of a step, and how they are divided where that is asked.
void set_batch(Pins& pins, const QuestionFlags& flags) {
  const std::int64_t replicas = std::max<std::int64_t>(flags.data_parallel, 1);
  const std::int64_t each = std::max<std::int64_t>(flags.micro_batches, 1);
  const std::int64_t asked = replicas * each;
  pins.batch = flags.batch > 0 ? flags.batch : asked;
  const bool exact = flags.data_parallel > 0 && flags.micro_batches > 0;
  if (pins.batch % asked != 0 || (exact && pins.batch != asked)) {
    throw InputError(fmt::format(
        "--batch {}: --data-parallel {} with --micro-batches {} makes {} sequences; leave one of "
        "the three out",
        pins.batch, replicas, each, asked));
  }
  if (flags.data_parallel > 0) pins.data_parallel = flags.data_parallel;
  if (flags.micro_batches > 0) pins.data_parallel = pins.batch / flags.micro_batches;
}

// A chunk and a method may contradict each other.
void require_region(const Problem& problem, const Pins& pins) {
  const std::vector<Split> all = splits(problem, pins);
  if (pins.method == nullptr || !pins.chunk_tokens || all.empty()) return;
  const Strategy strategy =
      entered(problem, pins, skeleton_of(problem, all.front(), *pins.chunk_tokens));
  if (!check(problem, strategy).empty() || pins.method->holds(problem, strategy)) return;
  throw InputError(fmt::format(
      "--chunk {}: {} has no such strategy for {} tokens; leave --chunk or --method out",
      format_tokens(*pins.chunk_tokens), pins.method->title, format_tokens(problem.seq_len)));
}

// The published strategy of the pinned method decides everything but the batch.
void pin_published(Pins& pins, const QuestionFlags& flags, Problem& problem) {
  if (pins.method == nullptr) {
    throw InputError("--published: name the method that is meant, such as --method fpdt");
  }
  if (!flags.chunk.empty() || !flags.gradients.empty() ||
      flags.data_parallel + flags.micro_batches > 0) {
    throw InputError(
        "--published decides everything but the batch: leave --chunk, --gradients, "
        "--data-parallel and --micro-batches out");
  }
  const ClusterSpec used = usable_part(problem, pins);
  note_unused(problem, pins, used.devices());
  problem.cluster = used;
  problem = with_published_kernels(problem);
  pins.strategy = pins.method->published(problem, pins.batch);
  const std::int64_t batch = pins.strategy->mesh.replicas * pins.strategy->micro_batches;
  if (batch != pins.batch) {
    throw InputError(fmt::format("--batch {}: {} as published trains {} sequences or a multiple",
                                 pins.batch, pins.method->title, batch));
  }
  pins.method = nullptr;  // a short sequence has one chunk, which is outside the region of FPDT
  require_sound(problem, *pins.strategy, "");
}

Pins load_pins(const QuestionFlags& flags, Problem& problem) {
  Pins pins;
  set_batch(pins, flags);
  if (!flags.method.empty()) pins.method = method_named(flags.method);
  if (pins.method != nullptr && !serves(*pins.method, problem.model)) {
    throw InputError(fmt::format(
        "--method {}: its ranks share products, and the {} of {} are not cut; leave --method out",
        flags.method, problem.model.uncut(), problem.model.name));
  }
  if (!flags.strategy.empty() &&
      !(flags.chunk.empty() && flags.method.empty() && flags.gradients.empty())) {
    throw InputError("--strategy decides everything: leave --chunk, --gradients and --method out");
  }
  if (!flags.strategy.empty() && flags.batch + flags.data_parallel + flags.micro_batches > 0) {
    throw InputError(
        "--strategy decides everything: leave --batch, --data-parallel and --micro-batches out");
  }
  if (!flags.chunk.empty()) pins.chunk_tokens = parse_length("--chunk", flags.chunk);
  if (flags.gradients == "bf16") pins.gradients = Storage::bf16;
  if (!flags.seq_len.empty()) require_region(problem, pins);
  if (flags.published) pin_published(pins, flags, problem);
  if (flags.strategy.empty()) return pins;
  const std::string file = find_shared(Shelf::strategies, "--strategy", flags.strategy);
  pins.strategy = load_strategy(file);
  if (flags.seq_len.empty()) problem.seq_len = shortest_sequence(problem, pins);
  problem.cluster = used_cluster(problem.cluster, *pins.strategy, flags.strategy);
  require_sound(problem, *pins.strategy, file);
  pins.batch = pins.strategy->mesh.replicas * pins.strategy->micro_batches;
  if (flags.seq_len.empty()) return pins;  // what has an effect depends on the length
  for (const std::string& note : without_effect(problem, *pins.strategy)) {
    say(fmt::format("note: {}: {}\n", flags.strategy, note));
  }
  return pins;
}

}  // namespace

void add_question(Options& options, QuestionFlags& flags, Length length) {
  options
      .value("--model", flags.model,
             "Model: a name that `fpdt-plan list` shows, its name at Hugging Face, a .yaml file, "
             "or a Hugging Face directory or its config.json")
      .required();
  options
      .value("--cluster", flags.cluster, "Machine: a name that `fpdt-plan list` shows, or a file")
      .required();
  options.value("--gpus", flags.gpus, "Number of GPUs; default: those of the cluster file")
      .integer(1, 1 << 20);
  if (length != Length::found) {
    options.value("--seq-len", flags.seq_len, "Tokens in a sequence: 64K, 2M (2^21), 100000")
        .required(length == Length::required);
  }
  options.value("--strategy", flags.strategy,
                "Strategy, a name or a file, which decides everything");
  options.value("--device-budget", flags.device_budget,
                "Memory to use on each device, such as 60GiB; default: all");
  options.value("--host-budget", flags.host_budget,
                "Memory to use on each node; default: all but host_outside of the cluster");
  const Option several =
      options.flag("--documents", flags.documents,
                   "Sequences may hold several documents; default unless attention is cuDNN's");
  options
      .flag("--one-document", flags.one_document,
            "Each sequence is one document; default where attention is cuDNN's")
      .excludes(several);
  OptimizerSpec& optimizer = flags.optimizer;
  const auto number = [&options](const char* name, double& value, const char* help) {
    return options.value(name, value, help).shows_default().under("Optimizer");
  };
  number("--beta1", optimizer.beta1, "Beta 1 of AdamW").from_zero();
  number("--beta2", optimizer.beta2, "Beta 2 of AdamW").from_zero();
  number("--epsilon", optimizer.epsilon, "Epsilon of AdamW").positive();
  number("--weight-decay", optimizer.weight_decay, "Weight decay of matrices").from_zero();
  number("--clip", optimizer.clip, "Clip the global gradient norm to this; 0: no clipping")
      .from_zero();
  options.flag("--json", flags.json, "Print one JSON object");
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Method* method : methods()) names.emplace_back(method->name);
  return names;
}

void add_method(Options& options, QuestionFlags& flags) {
  options.value("--method", flags.method, "Method; default: the fastest").one_of(method_names());
}

void add_published(Options& options, QuestionFlags& flags) {
  options.flag("--published", flags.published,
               "Take the strategy that the authors of --method published, and search nothing");
}

void add_pins(Options& options, QuestionFlags& flags) {
  add_method(options, flags);
  add_other_pins(options, flags);
}

void add_other_pins(Options& options, QuestionFlags& flags) {
  options.value("--chunk", flags.chunk,
                "Tokens in a chunk over all ranks, such as 64K; default: the fastest");
  options
      .value("--gradients", flags.gradients,
             "Format in which gradients of layers wait for the update; default: f32")
      .one_of({"f32", "bf16"});
  constexpr std::int64_t kMost = 1 << 20;
  options.value("--batch", flags.batch, "Sequences in a step; default: one").integer(1, kMost);
  options
      .value("--data-parallel", flags.data_parallel,
             "Replicas that train at the same time; default: the fastest number")
      .integer(1, kMost);
  options
      .value("--micro-batches", flags.micro_batches,
             "Sequences that each replica trains in turn; default: the fastest number")
      .integer(1, kMost);
}

Question load_question(const QuestionFlags& flags, bool all_gpus) {
  Question question;
  Problem& problem = question.problem;
  std::vector<std::string> notes;
  question.model_file = find_shared(Shelf::models, "--model", flags.model);
  problem.model = load_model(question.model_file, &notes);
  for (const std::string& note : notes) say(fmt::format("note: {}\n", note));
  notes.clear();
  problem.cluster = question.machine =
      load_cluster(find_shared(Shelf::clusters, "--cluster", flags.cluster), &notes);
  for (const std::string& note : notes) say(fmt::format("note: {}\n", note));
  if (flags.gpus > 0) problem.cluster = with_devices(problem.cluster, flags.gpus);
  problem.seq_len = flags.seq_len.empty() ? shortest_sequence(problem, {})
                                          : parse_length("--seq-len", flags.seq_len);
  const bool fused = problem.cluster.attention == AttentionKernels::cudnn;
  problem.documents = flags.documents || (!flags.one_document && !fused);
  problem.optimizer = flags.optimizer;
  problem.device_budget = device_budget(flags, problem.cluster);
  problem.host_budget = host_budget(flags, problem.cluster);
  const std::int64_t asked = problem.cluster.devices();
  question.pins = load_pins(flags, problem);
  if (!question.pins.strategy && !all_gpus) {
    const ClusterSpec used = usable_part(problem, question.pins);
    note_unused(problem, question.pins, used.devices());
    problem.cluster = used;
  }
  question.unused = asked - problem.cluster.devices();
  if (flags.published) question.published = method_named(flags.method);
  if (!flags.seq_len.empty()) note_length(question, problem);
  note_own_products(problem);
  return question;
}

void note_length(const Question& question, const Problem& problem) {
  const std::string positions = note_positions(question.model_file, problem.seq_len);
  if (!positions.empty()) say(fmt::format("note: {}\n", positions));
  note_own_attention(problem, question.pins.strategy.value_or(default_strategy(problem)));
}

void note_unused(const Problem& problem, const Pins& pins, std::int64_t used,
                 std::string_view name) {
  const std::int64_t all = problem.ranks();
  if (used == all) return;
  const std::vector<std::int64_t> degrees = data_parallel_degrees(problem);
  std::int64_t batch = degrees.empty() ? 0 : round_up(pins.batch, degrees.front());
  // Each replica then has one sequence.
  if (pins.gradients != Storage::f32 &&
      std::find(degrees.begin(), degrees.end(), batch) == degrees.end()) {
    batch = 0;
  }
  const std::string nearest =
      batch == 0 || pins.data_parallel ? "" : fmt::format("; --batch {} uses all", batch);
  say(fmt::format(
      "note: {}{} of {} GPUs stay unused: {} sequence{} and {} heads do not divide by more{}\n",
      name.empty() ? "" : fmt::format("{}: ", name), all - used, all, pins.batch,
      pins.batch == 1 ? "" : "s", problem.model.heads, nearest));
}

ClusterSpec used_cluster(const ClusterSpec& whole, const Strategy& strategy,
                         std::string_view file) {
  const Mesh& mesh = strategy.mesh;
  const std::int64_t devices = whole.devices();
  std::int64_t ranks = 1;
  for (const std::int64_t size : {mesh.replicas, mesh.ring, mesh.heads, mesh.tensor}) {
    if (size < 1 || size > devices / ranks) return whole;  // "rest", or what check refuses
    ranks *= size;
  }
  const std::int64_t node = whole.devices_per_node;
  if (ranks == devices || (ranks > node && ranks % node != 0)) return whole;
  say(fmt::format("note: {}: {} of {} GPUs stay unused: its mesh has {} ranks\n", file,
                  devices - ranks, devices, ranks));
  return with_devices(whole, ranks);
}

std::int64_t parse_length(const std::string& flag, const std::string& text) {
  const auto tokens = parse_tokens(text);
  if (!tokens || *tokens < 1) {
    throw InputError(fmt::format(
        "{}: expected 1 to 1G tokens, such as 64K, 2M or 100000, found \"{}\"", flag, text));
  }
  return *tokens;
}

void note_own_attention(const Problem& problem, const Strategy& strategy, std::string_view name) {
  std::string why = why_own_attention(problem, strategy);
  const std::vector<LayerKind>& kinds = problem.model.kinds;
  const bool some = why.empty() && problem.cluster.attention == AttentionKernels::cudnn &&
                    std::any_of(kinds.begin(), kinds.end(), [&](const LayerKind& kind) {
                      return kind.window_in(problem.seq_len) > 0;
                    });
  std::string which;
  if (some) {
    why = kNoWindows;
    which = "that a window cuts ";
  }
  if (some && problem.cluster.cudnn_windows) {
    why = "those of cuDNN compute no others here";
    which = "that a window cuts, but for those of rows with their own keys, ";
  }
  if (why.empty()) return;
  const bool known = problem.cluster.rates.own_attention_forward.typical > 0 &&
                     problem.cluster.rates.own_attention_backward.typical > 0;
  say(fmt::format("note: {}attention tiles {}run on the backend's own kernels, because {}{}\n",
                  name.empty() ? "" : fmt::format("{}: ", name), which, why,
                  known ? ""
                        : fmt::format("; the rates of {} are cuDNN's, so these times are too short",
                                      problem.cluster.name)));
}

void note_own_products(const Problem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  if (!problem.model.has_experts() || cluster.attention != AttentionKernels::cudnn) return;
  if (cluster.rates.grouped_matmul.typical > 0 || !(cluster.rates.matmul.typical > 0)) return;
  say(
      fmt::format("note: products of experts run on the backend's own kernels; {} has no rate "
                  "grouped_matmul, so these times are too short\n",
                  cluster.name));
}

void require_sound(const Problem& problem, const Strategy& strategy, const std::string& path) {
  std::vector<Diagnostic> findings = check(problem, strategy);
  if (findings.empty()) return;
  for (Diagnostic& finding : findings) {
    if (path.empty() || finding.field.empty()) continue;
    finding.where = place_of_key(path, finding.field);
  }
  throw InputError(format_diagnostics(findings));
}

}  // namespace fpdt
