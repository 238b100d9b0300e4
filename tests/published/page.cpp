// Writes the page as Markdown.
#include "page.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "lss.h"

namespace fpdt::test {
namespace {

std::string intro() {
  const Waste& fpdt = method_named("fpdt")->waste;
  const Waste& ulysses = method_named("ulysses")->waste;
  const Waste& alst = method_named("alst")->waste;
  std::string text = R"(# Published numbers

This page compares simulated with published runs of FPDT, Ulysses, Megatron's sequence parallelism,
ALST, zigzag ring attention and all-gather context parallelism, and with the claims of LSS. Every
prediction is that of the method as its authors run it: the schedule of its published strategy, and
beside it the waste of its implementation. `fpdt-plan compare` shows the same in its rows
`(published)`. All numbers of this page come from one command, and a test compares the page with
what the command prints:

```
build/dev/tests/published/published_page > docs/results/published.md
```

MFU counts attention over the full square, as the sources do. `device` is the predicted memory of a
GPU, with what lies outside the arena. Panel letters are those of the figure. The vocabulary of the
Llama panels is not published. It is taken to be that of the GPT panels, because with 128256 words
the loss of Ulysses and the states would exceed a GPU at lengths that are published. Other pages ask
about Llama with its own vocabulary, so a row there may not fit where it fits here: FPDT of
llama3-8b at 2M tokens on four A100s ([what each lever gives](levers.md)).

## What was fitted

Three constants, all on the rows of FPDT and Ulysses in panels a, c and e of the figure; panels b,
d, f and the other sources test them:

)";
  text += fmt::format(
      "- {:.0f} ms of host time for each row of tiles in each pass over a layer, for all "
      "methods.\n",
      1000 * kHostSeconds);
  text +=
      "- The typical attention rates of all A100 files, 0.72 of what FlashAttention 2 reaches in "
      "bursts.\n"
      "- The typical network rate of all A100 files, one port of 200 Gb/s rather than two.\n\n"
      "They are not sharp: 0.70 with 5 ms less, or 0.72 with 5 ms more, fit the panels within 0.1 "
      "points of\nrms as well, but leave one or two of their cells outside of 5 points. With two "
      "ports the rms is 4.8\npoints instead of 2.8.\n\n"
      "The rest of the waste is read from the sources of the implementations:\n\n";
  text += fmt::format(
      "- FPDT: {} tensors of the hidden size over all rows of a rank that its schedule does not "
      "need: the\n  output of the repeated forward, its gradient, and a second copy of the "
      "gradient "
      "of the norm's\n  output.\n"
      "- FPDT: cosines and sines of the whole sequence on every rank, {} bytes for each position "
      "and\n  rotated element.\n",
      fpdt.hidden_tensors, fpdt.rotary_bytes);
  text += "- FPDT: blocks of pinned memory are as long as powers of two.\n";
  text += fmt::format(
      "- Ulysses and Megatron: the loss holds {} and {} bytes a logit beyond the 6 of a schedule.\n"
      "- Megatron, where layers store everything (no run above does): what a schedule makes again, "
      "the\n  outputs of the activation and of the second norm, and masks of dropout. For the "
      "layer "
      "of its\n  paper that is 12 of 34 bytes for each token and element.\n"
      "- ALST: {} tensors of the hidden size over all rows of a rank: input, output and gradient "
      "of "
      "its\n  tiled feed-forward, and three copies of an all-to-all.\n"
      "- All: layer inputs go to pageable memory and back while the device waits, {:.1f} times as "
      "long as\n  from pinned memory.\n",
      ulysses.logit_bytes, method_named("megatron")->waste.logit_bytes, alst.hidden_tensors,
      fpdt.pageable_copies);
  return text;
}

struct Errors {
  std::int64_t points = 0, close = 0, verdicts = 0, right = 0;
  double sum = 0, squares = 0, largest = 0;
};

using Chosen = std::function<bool(const Source&, const Cell&)>;

std::string error_row(const std::vector<Source>& sources,
                      const std::vector<std::vector<Predicted>>& predicted, const std::string& name,
                      const Chosen& chosen) {
  Errors all;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    for (std::size_t j = 0; j < sources[i].cells.size(); ++j) {
      const Cell& cell = sources[i].cells[j];
      const Predicted& found = predicted[i][j];
      if (!chosen(sources[i], cell)) continue;
      ++all.verdicts;
      if (cell.runs == found.fits) ++all.right;
      if (!cell.runs) continue;
      const double error = found.mfu - found.published;
      ++all.points;
      if (std::abs(error) <= kMfuPoints) ++all.close;
      all.sum += error;
      all.squares += error * error;
      if (std::abs(error) > std::abs(all.largest)) all.largest = error;
    }
  }
  const auto count = static_cast<double>(all.points);
  return fmt::format("| {} | {:+.1f} | {:.1f} | {:+.1f} | {} of {} | {} of {} |\n", name,
                     all.sum / count, std::sqrt(all.squares / count), all.largest, all.close,
                     all.points, all.right, all.verdicts);
}

std::string errors(const std::vector<Source>& sources,
                   const std::vector<std::vector<Predicted>>& predicted) {
  std::string text = fmt::format(
      "\n## Errors\n\n"
      "Points of MFU, simulated less published:\n\n"
      "| cells | mean | rms | largest | within {:.0f} points | fits or out of memory, right |\n"
      "|---|---|---|---|---|---|\n",
      kMfuPoints);
  const auto in = [](std::string_view name) {
    return [name](const Source& source, const Cell&) { return source.name == name; };
  };
  const auto figure = [](bool fitted) {
    return [fitted](const Source& source, const Cell& cell) {
      return source.name == "fpdt-figure4" && cell.fitted == fitted;
    };
  };
  text += error_row(sources, predicted, "panels a, c, e (fitted)", figure(true));
  text += error_row(sources, predicted, "panels b, d, f (not fitted)", figure(false));
  text += error_row(sources, predicted, "table of strategies (not fitted)", in("fpdt-table"));
  text += error_row(sources, predicted, "H100, run by others (not fitted)", in("upipe"));
  text += error_row(sources, predicted, "H100, TRL (not fitted)", in("trl"));
  text += error_row(sources, predicted, "all", [](const Source&, const Cell&) { return true; });
  return text;
}

std::string cell_row(const Cell& cell, const Predicted& found, const std::vector<Miss>& misses) {
  const std::string published = cell.runs ? fmt::format("{:.1f} %", found.published) : "OOM";
  const std::string mfu =
      fmt::format("{:.1f} % ({:.1f} to {:.1f})", found.mfu, found.slow_mfu, found.fast_mfu);
  const double device = static_cast<double>(found.usage.device.value) / kGiB;
  std::string memory = fmt::format("{:.1f} GiB", device);
  if (cell.device_bytes > 0) memory += fmt::format(" ({:.1f})", cell.device_bytes / kGiB);
  const bool right = cell.runs == found.fits;
  const bool off = cell.runs && std::abs(found.mfu - found.published) > kMfuPoints;
  std::string verdict = found.fits ? "fits" : "OOM";
  verdict += right ? "" : ": **wrong**";
  std::string note;
  for (const char* what : {"fits", "mfu", "memory"}) {
    const Miss* miss = find_miss(misses, cell, what);
    if (miss == nullptr || note.find(miss->why) != std::string::npos) continue;
    note += fmt::format("{}{}", note.empty() ? "" : "; ", miss->why);
  }
  return fmt::format("| {} | {} | {} | {} | {} | {} | {}{} |\n", cell.method->title,
                     format_tokens(cell.seq_len), published, mfu, memory, verdict,
                     off ? "**MFU off**: " : "", note);
}

std::string source_text(const Source& source, const std::vector<Predicted>& predicted,
                        const std::vector<Miss>& misses) {
  std::string text =
      fmt::format("\n## {}\n\nSource: {}.\nRead {}. File: `tests/published/{}.yaml`.\n",
                  source.name, source.text, source.read, source.name);
  if (source.name == "fpdt-table") {
    text +=
        "\nThe source does not say what its G is, nor whether it counts libraries. The table takes "
        "it for\n"
        "GiB, in brackets. The tensors of FPDT are fitted to it.\n\n";
    for (std::size_t i = 0; i < source.cells.size(); ++i) {
      const Cell& cell = source.cells[i];
      if (cell.device_bytes == 0) continue;
      const auto device = static_cast<double>(predicted[i].usage.device.value);
      text += fmt::format("- {} ({}): {:+.1f} % if G is GiB, {:+.1f} % if it is 1e9 bytes.\n",
                          cell.method->title, cell.panel, 100 * (device / cell.device_bytes - 1),
                          100 * (device / (cell.device_bytes * 1e9 / kGiB) - 1));
    }
  }
  std::string panel;
  for (std::size_t i = 0; i < source.cells.size(); ++i) {
    const Cell& cell = source.cells[i];
    if (cell.panel != panel) {
      panel = cell.panel;
      text += fmt::format(
          "\n### {}: {} on {}{}\n\n"
          "| method | tokens | published | simulated (range) | device | verdict | |\n"
          "|---|---|---|---|---|---|---|\n",
          panel, cell.model, cell.cluster, cell.fitted ? " (fitted)" : "");
    }
    text += cell_row(cell, predicted[i], misses);
  }
  return text;
}

std::string readme_row(const Cell& cell, const Predicted& found) {
  std::string name(cell.method->title);
  if (cell.plain) name += " without checkpointing";
  if (cell.zero != 3) name += fmt::format(", ZeRO {}", cell.zero);
  return fmt::format("| {}, {}, {} tokens, {} | {:.1f} % | {:.1f} % |\n", name, cell.model,
                     format_tokens(cell.seq_len), cell.cluster, found.published, found.mfu);
}

}  // namespace

std::string readme_table(const std::vector<Source>& sources,
                         const std::vector<std::vector<Predicted>>& predicted) {
  std::string text = "| published run | MFU | simulated |\n|---|---|---|\n";
  const Cell* worst = nullptr;
  const Predicted* of_worst = nullptr;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::vector<Cell>& cells = sources[i].cells;
    for (std::size_t j = 0; j < cells.size(); ++j) {
      const Predicted& found = predicted[i][j];
      const auto error = [](const Predicted& one) { return std::abs(one.mfu - one.published); };
      if (cells[j].runs && (worst == nullptr || error(found) > error(*of_worst))) {
        worst = &cells[j];
        of_worst = &found;
      }
      const bool last = j + 1 == cells.size() || cells[j + 1].panel != cells[j].panel;
      // FPDT comes first in a panel.
      const bool longest = last || cells[j + 1].method != cells[j].method;
      const bool shown = cells[j].method->name == "fpdt" && sources[i].name != "fpdt-table";
      if (longest && shown && !cells[j].fitted) text += readme_row(cells[j], found);
    }
  }
  return text + readme_row(*worst, *of_worst);
}

std::vector<std::vector<Predicted>> predict_all(const std::vector<Source>& sources) {
  std::vector<std::vector<Predicted>> predicted;
  for (const Source& source : sources) {
    std::vector<Predicted>& row = predicted.emplace_back();
    for (const Cell& cell : source.cells) row.push_back(predict(cell));
  }
  return predicted;
}

std::string page(const std::vector<Source>& sources,
                 const std::vector<std::vector<Predicted>>& predicted,
                 const std::vector<Miss>& misses) {
  std::string text = intro() + errors(sources, predicted);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    text += source_text(sources[i], predicted[i], misses);
  }
  const Claims claims = load_claims();
  return text + lss_text(claims, lss_rows(claims));
}

}  // namespace fpdt::test
