// Writes the section of LSS as Markdown.
#include <fmt/format.h>

#include "fpdt/report/axis.h"

#include "lss.h"

namespace fpdt::test {
namespace {

double ratio(Bytes a, Bytes b) {
  return static_cast<double>(a.value) / static_cast<double>(b.value);
}

std::string assumptions(const Claims& claims, const Problem& problem) {
  const ModelSpec& model = problem.model;
  std::string text = fmt::format(
      "\nThese are claims of an abstract, not runs: it names neither the model nor the length of "
      "each\nnumber. Tables of the paper could not be confirmed and are left out. What is "
      "assumed:\n\n"
      "- The model is `models/{}.yaml`, of low confidence, and a step has one sequence.\n",
      claims.model);
  text += fmt::format(
      "- The GPUs are those of `configs/clusters/{}.yaml`. Its rates of attention are\n  "
      "estimates, since no fused kernel is published for a V100.\n",
      claims.cluster);
  text +=
      "- LSS: all GPUs share a sequence. Each has all parameters, gradients and states, and keeps "
      "the\n  gathered keys of every layer. Attention is not fused, so a layer stores 5 bytes for "
      "each query,\n  key and head.\n";
  text += fmt::format(
      "- Megatron: the GPUs that share a sequence divide the {} heads. The others are replicas, "
      "each\n  with a sequence of its own. A layer stores 34 bytes for each token and element, and "
      "5 for each\n  score, without repeating any forward. The states take 18 bytes a parameter. A "
      "layer has 4\n  collectives forward and 4 backward, in rings and 16 bits\n  "
      "([arXiv 2205.05198](https://arxiv.org/abs/2205.05198)).\n",
      model.heads);
  text +=
      "- Both: attention counts the causal half. What is stored passes device memory once in each\n"
      "  direction.\n"
      "- fpdt sums gradients in the order of ranks, in f32, so each rank sends a part to every "
      "other one.\n  `in rings` is the step with those of keys summed in a ring and in 16 bits, as "
      "NCCL does.\n";
  return text;
}

std::string tables(const Claims& claims, const std::vector<LssRow>& rows) {
  std::string text = fmt::format(
      "\n### A sequence of {} tokens\n\n"
      "| GPUs | Megatron shares over | device: LSS | Megatron | ratio | step: LSS | in rings | "
      "Megatron | ratio | in rings |\n|---|---|---|---|---|---|---|---|---|---|\n",
      format_tokens(claims.longest));
  for (const LssRow& row : rows) {
    text += fmt::format(
        "| {} | {} | {} | {} | {:.1f}x | {} | {} | {} | {:.1f}x | {:.1f}x |\n", row.gpus, row.ranks,
        format_bytes(row.lss.device), format_bytes(row.megatron),
        ratio(row.megatron, row.lss.device), format_seconds(row.lss.seconds),
        format_seconds(row.lss.ring_seconds), format_seconds(row.megatron_seconds),
        row.megatron_seconds / row.lss.seconds, row.megatron_seconds / row.lss.ring_seconds);
  }
  text += fmt::format(
      "\nWhat does not fit in 16 GiB is timed as if it did. `ratio` is Megatron over LSS, of "
      "steps: "
      "that of\nMegatron trains a sequence in each replica.\n\n"
      "### Tokens that fit, and tokens that grow with the GPUs\n\n"
      "Efficiency is flops per second and GPU, over the full square, as a share of those on {} "
      "GPUs. Tokens\ngrow with the GPUs to {} on {}, as they would if the claimed rate was "
      "constant.\n\n"
      "| GPUs | longest: LSS | Megatron | growing tokens | efficiency of LSS |\n"
      "|---|---|---|---|---|\n",
      rows.front().gpus, format_tokens(claims.longest), rows.back().gpus);
  for (const LssRow& row : rows) {
    text +=
        fmt::format("| {} | {} | {} | {} | {:.0f} % |\n", row.gpus, format_tokens(row.lss_longest),
                    format_tokens(row.megatron_longest), row.scaled, 100 * row.efficiency);
  }
  return text;
}

std::string comparison(const Claims& claims, const std::vector<LssRow>& rows) {
  const LssRow& last = rows.back();
  const LssRow* compared = &last;
  for (const LssRow& row : rows) {
    if (row.gpus == claims.compared) compared = &row;
  }
  constexpr double kPeta = 1e15;
  const double claimed_step = last.lss.flops * last.lss.seconds / kPeta / claims.petaflops;
  std::string text = "\n### The claims\n\n| claim | published | simulated | |\n|---|---|---|---|\n";
  text += fmt::format(
      "| memory of Megatron over that of LSS, {} GPUs | {:.1f}x | {:.1f}x | the abstract names no "
      "length; here {} tokens |\n",
      compared->gpus, claims.smaller, ratio(compared->megatron, compared->lss.device),
      format_tokens(claims.longest));
  text += fmt::format(
      "| step of Megatron over that of LSS, {} GPUs | {:.1f}x | {:.1f}x, in rings {:.1f}x | "
      "**off**: "
      "sums in the order of ranks; in rings nearer |\n",
      compared->gpus, claims.faster, compared->megatron_seconds / compared->lss.seconds,
      compared->megatron_seconds / compared->lss.ring_seconds);
  text += fmt::format(
      "| tokens on {} GPUs | {} | {} fit | the claim is what was run. It does not divide by the "
      "GPUs, so {} are padded |\n",
      last.gpus, format_tokens(claims.longest), format_tokens(last.lss_longest),
      last.gpus - claims.longest % last.gpus);
  text += fmt::format(
      "| parallel efficiency, {} to {} GPUs | {:.0f} % | {:.0f} % | **off**: here collectives wait "
      "for each of {} others; the lengths on fewer GPUs are not published |\n",
      rows.front().gpus, last.gpus, claims.efficiency, 100 * last.efficiency, last.gpus - 1);
  text += fmt::format(
      "| PFLOP/s on {} GPUs | {:.0f} | {:.1f} | **off**: for this model it would be a step of "
      "{}, so the claim is of a larger one or of several sequences |\n",
      last.gpus, claims.petaflops, last.lss.flops / kPeta, format_seconds(claimed_step));
  return text;
}

}  // namespace

std::string lss_text(const Claims& claims, const std::vector<LssRow>& rows) {
  const Problem problem = question(claims, rows.front().gpus, claims.longest);
  return fmt::format("\n## lss\n\nSource: {}.\nRead {}. File: `tests/published/lss.yaml`.\n",
                     claims.source, claims.read) +
         assumptions(claims, problem) + tables(claims, rows) + comparison(claims, rows);
}

}  // namespace fpdt::test
