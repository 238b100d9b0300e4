// fpdt-plan: from a question to a schedule. Needs no GPU.
#include "plan_verbs.h"

int main(int count, char** words) {
  const fpdt::Verb verbs[] = {
      {"search", "Find the fastest strategy that fits", fpdt::declare_search},
      {"max-seq", "Find the longest sequence that fits", fpdt::declare_max_seq},
      {"sweep", "Search along chunk lengths, lengths, GPUs or host memory", fpdt::declare_sweep},
      {"compare", "Set the answer beside the published policy and others", fpdt::declare_compare},
      {"explain", "Say what stands at the peak and what each lever would change",
       fpdt::declare_explain},
      {"simulate", "Time a schedule on the clock of its machine", fpdt::declare_simulate},
      {"draw", "Draw memory and lanes over time", fpdt::declare_draw},
      {"export", "Write a simulated step for other programs", fpdt::declare_export},
      {"lower", "Write the schedule of a strategy: lowered, placed, proven", fpdt::declare_lower},
      {"verify", "Prove that a schedule file is safe to run", fpdt::declare_verify},
  };
  return fpdt::run_program("fpdt-plan",
                           "Plans the training of transformers on very long sequences.", "", verbs,
                           {words, static_cast<std::size_t>(count)});
}
