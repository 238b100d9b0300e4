"""Nsight Compute on one launch of each kernel of a step: how close it is to the limits of memory
and pipes."""
import csv
import io
import shutil

from gpu_check import items
from gpu_check.harness import Skipped
from gpu_check.sampler import words

KERNELS = 24  # at most, in the order of a step
# Of ours and of cuDNN. Those of cuBLASLt would take all the places, because fpdt-run tries several
# of them for each product.
NAMES = "regex:fpdt|cudnn"
# Few metrics, so that each launch is repeated only a few times.
METRICS = {
    "gpu__time_duration.sum": ("us", 1e-3),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("memory %", 1),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("SM %", 1),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("warps %", 1),
    "dram__bytes_read.sum": ("MB read", 1e-6), "dram__bytes_write.sum": ("MB written", 1e-6),
    "launch__registers_per_thread": ("registers", 1), "launch__grid_size": ("blocks", 1)
}
# ncu stops at a name that its version does not know; then the nearest section is tried.
CHOICES = (["--metrics", ",".join(METRICS)], ["--section", "SpeedOfLight"])


def rows(text):
    """Reads the output of `ncu --page raw --csv --print-units base`: a header, units, then one row
    per launch. Numbers may have commas. A metric that a GPU does not count is None."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        if not (row.get("ID") or "").isdigit():
            continue  # the row of units
        one = {"kernel": row.get("Kernel Name", "?").partition("(")[0]}
        for metric in METRICS:
            try:
                one[metric] = float((row.get(metric) or "").replace(",", ""))
            except ValueError:
                one[metric] = None
        found.append(one)
    return found


def kernels(session, result, text):
    """Profiles the second launch of each kernel, when caches are warm, in a layer of true width.
    Does not change clocks."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise Skipped("ncu was not found")
    length = 512 if session.rehearse else 16 << 10
    model, schedule, _ = items.few_layers(session, "kernels", length)
    table = session.path("kernels.csv")
    for choice in CHOICES:
        table.unlink(missing_ok=True)
        done = session.run(ncu, "--clock-control", "none", "--kernel-name-base", "mangled",
                           "--kernel-id", f"::{NAMES}:2", "--launch-count", KERNELS, *choice,
                           "--page", "raw", "--csv", "--print-units", "base", "--log-file", table,
                           session.program("fpdt-run"), "train", schedule, "--data",
                           items.tokens_file(session, model.sizes["vocabulary"]), "--steps", 2,
                           "--backend", session.backend, *session.memory_flags("train"), "--json",
                           codes=None)
        said = table.read_text(errors="replace") if table.exists() else ""
        result["kernels"] = rows(said)
        if result["kernels"] or done.stopped:
            break
    heads = [head for head, _ in METRICS.values()]
    text += [f"Clocks: {words(done.clocks)}.", "", f"| kernel | {' | '.join(heads)} |",
             "|---" * (len(heads) + 1) + "|"]
    for one in result["kernels"]:
        numbers = ("" if one[metric] is None else f"{one[metric] * factor:.4g}"
                   for metric, (_, factor) in METRICS.items())
        text.append(f"| {one['kernel'][:60]} | {' | '.join(numbers)} |")
    if not result["kernels"]:
        tail = "\n".join(said.splitlines()[-6:])
        raise done.failure(f"ncu counted nothing ({done.how()})\n{tail}\n{done.tail()}")
    if done.stopped:
        raise done.failure("time was up: some kernels are missing")
