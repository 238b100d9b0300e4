// The question that all verbs of fpdt-plan share: a model, a machine, a length, budgets, and what
// is decided already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/plan/search/search.h"
#include "fpdt/spec/strategy.h"

#include "common/flags.h"

namespace fpdt {

struct QuestionFlags {
  std::string model, cluster, seq_len;
  std::int64_t gpus = 0;                         // 0: those of the cluster file
  std::string device_budget;                     // empty: the device's memory
  std::string host_budget;                       // empty: what a node has to spare
  std::string method;                            // empty: the fastest
  bool published = false;                        // the method's published strategy, not searched
  std::string strategy;                          // a file; empty: searched
  std::string chunk;                             // empty: searched
  std::string gradients;                         // empty: f32
  std::int64_t batch = 0;                        // 0: data_parallel * micro_batches
  std::int64_t data_parallel = 0;                // 0: searched
  std::int64_t micro_batches = 0;                // 0: searched
  bool documents = false, one_document = false;  // neither: as the kernels of the cluster like it
  OptimizerSpec optimizer;
  bool json = false;
};

enum class Length : std::uint8_t { required, optional, found };  // found: there is no --seq-len

// Declares the flags.
void add_question(Options& options, QuestionFlags& flags, Length length = Length::required);
// --method, --chunk, --gradients and the batch, for verbs that search.
void add_pins(Options& options, QuestionFlags& flags);
// The same without --method.
void add_other_pins(Options& options, QuestionFlags& flags);
// The names of all methods, as --method takes them.
std::vector<std::string> method_names();
// --method, and --published, for which the length must be known.
void add_method(Options& options, QuestionFlags& flags);
void add_published(Options& options, QuestionFlags& flags);

struct Question {
  ClusterSpec machine;  // as its file has it, before --gpus
  Problem problem;      // on the GPUs that it uses
  Pins pins;
  std::int64_t unused = 0;            // GPUs that were asked for beyond them
  const Method* published = nullptr;  // whose published strategy is pinned
  std::string model_file;             // or the directory
};

// InputError with the flag or the line that is wrong. What was ignored goes to standard error.
// `all_gpus`: the problem keeps those that it cannot use.
Question load_question(const QuestionFlags& flags, bool all_gpus = false);

// Says how many GPUs of the problem's machine stay unused, and why; `name`: of the contender, where
// there are several.
void note_unused(const Problem& problem, const Pins& pins, std::int64_t used,
                 std::string_view name = "");

// The part of the machine that a strategy uses: the ranks of its mesh where that says how many they
// are, else all. Says how many GPUs stay unused; `file`: of the strategy.
ClusterSpec used_cluster(const ClusterSpec& whole, const Strategy& strategy, std::string_view file);

// The value of a flag, a token count. InputError when it is none.
std::int64_t parse_length(const std::string& flag, const std::string& text);

// Says on standard error what the length of a sequence means for weights and for kernels.
void note_length(const Question& question, const Problem& problem);
// Says on standard error when attention tiles are not computed by the kernels whose rates the
// cluster has; `name`: of the strategy, where there are several.
void note_own_attention(const Problem& problem, const Strategy& strategy,
                        std::string_view name = "");
// Says so where the rates of a library stand for products of experts.
void note_own_products(const Problem& problem);

// Throws what is wrong with the strategy, at the lines of its file (empty: no file).
void require_sound(const Problem& problem, const Strategy& strategy, const std::string& path);

}  // namespace fpdt
