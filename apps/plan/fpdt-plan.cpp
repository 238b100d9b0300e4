// fpdt-plan: from a question to a schedule. Needs no GPU.
#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "plan/verbs.h"

namespace {

// A search makes and drops thousands of steps. glibc would return their memory to the system each
// time and ask for it again, which was two fifths of a search for llama3-70b on one GPU.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kMebi = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMebi);
  mallopt(M_TRIM_THRESHOLD, 256 * kMebi);
#endif
}

}  // namespace

int main(int count, char** words) {
  keep_freed_memory();
  const fpdt::Verb verbs[] = {
      {"search", "Find the fastest strategy that fits", fpdt::declare_search},
      {"max-seq", "Find the longest sequence that fits", fpdt::declare_max_seq},
      {"sweep", "Search at several chunk lengths, sequence lengths, GPU counts or host budgets",
       fpdt::declare_sweep},
      {"compare", "Compare the answer with each method and other strategies",
       fpdt::declare_compare},
      {"explain", "Show what fills memory at its peak and what each lever would change",
       fpdt::declare_explain},
      {"simulate", "Predict how long a schedule takes on its machine", fpdt::declare_simulate},
      {"draw", "Draw lanes and memory over time, or the graph of dependencies", fpdt::declare_draw},
      {"export", "Export a simulated step to Perfetto or PyTorch's memory viewer",
       fpdt::declare_export},
      {"lower", "Write the verified schedule of a strategy", fpdt::declare_lower},
      {"verify", "Prove that a schedule file is safe to run", fpdt::declare_verify},
      {"list", "List the models, clusters and strategies that flags may name", fpdt::declare_list},
      {"cluster", "Write a cluster file that starts from another", fpdt::declare_cluster},
  };
  return fpdt::run_program(
      "fpdt-plan", "Plans the training of transformers on very long sequences.",
      "Exit codes: 0 done, 1 internal error, 2 bad input, 3 nothing fits, 5 out of memory,\n"
      "7 file system.",
      verbs, {words, static_cast<std::size_t>(count)});
}
