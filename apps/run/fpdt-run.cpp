// fpdt-run: executes a schedule. The command line, and nothing else.
#include "run/verbs.h"

int main(int count, char** words) {
  const fpdt::Verb verbs[] = {
      {"train", "Train on the tokens of a file", fpdt::declare_train},
      {"check", "Compare two steps with the reference in double precision", fpdt::declare_check},
      {"bench", "Measure this machine and write its cluster file", fpdt::declare_bench},
      {"device", "Open a GPU and describe it", fpdt::declare_device},
      {"explain-failure", "Say which rank was the first to fail, from the records of a run",
       fpdt::declare_explain_failure},
  };
  return fpdt::run_program(
      "fpdt-run", "Executes schedules: real training steps, chunk by chunk.",
      "Exit codes: 0 done, 1 internal error, 2 bad input, 4 measured and predicted disagree,\n"
      "5 out of memory, 6 a peer died, 7 file system, 8 numeric, 130 and 143 stopped by a signal.",
      verbs, {words, static_cast<std::size_t>(count)});
}
