// Counts windows.
#include "run/train/data_notes.h"

#include <fmt/format.h>

namespace fpdt {
namespace {

std::string counted(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void add_format_note(const Batches& data, std::vector<std::string>& notes) {
  if (!data.tokens().seem_halves()) return;
  notes.push_back(
      fmt::format("note: every second token of {} is 0, as if tokens of 32 bits were read as 16; "
                  "the name of such a file ends in .u32",
                  data.tokens().path()));
}

}  // namespace

std::vector<std::string> notes_on(const Batches& data, const TrainingUse& use) {
  std::vector<std::string> notes;
  add_format_note(data, notes);
  const std::int64_t labels = data.tokens().count() - 1;
  const std::int64_t windows = data.windows();
  const std::int64_t left = (labels - data.cursor()) / data.seq_len();
  const std::int64_t full_steps = left / use.sequences;
  const std::string holds =
      fmt::format("note: {} holds {} of {}", data.tokens().path(), counted(windows, "sequence"),
                  counted(data.seq_len(), "token"));
  if (use.sequences > windows) {
    notes.push_back(fmt::format("{}, and a step takes {}: some occur in it more than once", holds,
                                use.sequences));
  } else if (use.next + full_steps <= use.last) {
    const std::int64_t tail = labels % data.seq_len();
    notes.push_back(
        fmt::format("{}: step {} begins again at its start{}", holds, use.next + full_steps,
                    tail == 0 ? "" : fmt::format(", without its last {}", counted(tail, "token"))));
  }
  return notes;
}

std::vector<std::string> notes_on(const Batches& data, const EvaluationUse& use) {
  std::vector<std::string> notes;
  add_format_note(data, notes);
  const std::int64_t labels = data.tokens().count() - 1;
  const std::int64_t taken = use.sequences * data.seq_len();
  if (taken < labels) {
    notes.push_back(fmt::format("note: an evaluation takes the first {} of {}: {} of its {} labels",
                                counted(use.sequences, "sequence"), data.tokens().path(), taken,
                                labels));
  }
  if (use.last_step % use.every != 0) {
    notes.push_back(
        fmt::format("note: step {}, the last, is not evaluated: --evaluate-every {} "
                    "does not divide it",
                    use.last_step, use.every));
  }
  return notes;
}

}  // namespace fpdt
