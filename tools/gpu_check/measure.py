"""The items that measure parts: the bench, the same ops in other libraries, PyTorch."""
from gpu_check import cluster, items, jobs
from gpu_check.harness import GRACE, Skipped
from gpu_check.sampler import words

# A step takes at least the time of these ops.
ARITHMETIC = ("matmul", "attention_forward", "attention_backward")
COLLECTIVES = ("all_to_all", "all_gather", "reduce_scatter", "all_reduce")
# What the GPUs of a node share: rates of each while all do the same, and paces beside other work.
RATES = ("link", "h2d", "d2h")
PACES = ("h2d_beside_d2h", "d2h_beside_h2d", "compute_beside_collective",
         "collective_beside_compute", "copy_beside_collective", "collective_beside_copy")


def _best(measurements):
    """The fastest size of each op."""
    best = {}
    for one in measurements:
        amount = one["flops"] or one["bytes"]
        if amount and one["seconds"]:
            entry = {"per_second": amount / one["seconds"], "sizes": one["sizes"],
                     "unit": "TFLOP/s" if one["flops"] else "TB/s"}
            best[one["op"]] = max(entry, best.get(one["op"], entry), key=lambda e: e["per_second"])
    return best


def bench(session, result, text):
    """Measures rates into DIR/machine.yaml, with which later items plan: of this GPU, or of several
    that work at the same time, and of the links between them. The file has published rates where
    nothing is measured yet, and grows during the bench, so a bench that was cut off keeps what it
    found."""
    path = session.path("machine.yaml")
    path.unlink(missing_ok=True)
    several = session.gpus > 1
    flags = ["--quick"] if session.rehearse else ["--peak-flops", session.peak_flops]
    if not session.rehearse and session.takes("fpdt-run", "bench", "--short"):
        flags.append("--short")
    if session.takes("fpdt-run", "bench", "--declared"):
        flags += ["--declared", cluster.machine(session)[0]]
    command = [session.program("fpdt-run"), "bench", "--backend", session.backend, "--out", path,
               "--json", *flags, *session.memory_flags("bench")]
    done = jobs.run(session, *command, codes=None) if several else session.run(*command, codes=None)
    if done.code != 0:
        text += [f"**The bench did not end ({done.how()})**. What it left in machine.yaml: "
                 f"{cluster.source(path)}", "", "```", done.tail(), "```"]
        raise done.failure(f"{done.how()}\n{done.tail()}")
    result.update(done.json(), clocks=done.clocks)
    result["best"] = _best(result["measurements"])
    text += [f"Clocks: {words(done.clocks)}.", "", "| op | best | at |", "|---|---|---|"]
    text += [f"| {op} | {one['per_second'] / 1e12:.4g} {one['unit']} | {one['sizes']} |"
             for op, one in result["best"].items()]
    if several:
        result["rates"] = cluster.rates(path, RATES + PACES)
        text += _of_node(session, result)


def _of_node(session, result):
    """Lines about what only several GPUs have: collectives by size, and rates that they share."""
    rates = result["rates"]
    lines = ["", f"Collectives of {session.gpus} ranks, by the bytes of each:", "",
             "| op | size | microseconds |", "|---|---|---|"]
    lines += [f"| {one['op']} | {one['sizes']} | {1e6 * one['seconds']:.4g} |"
              for one in result["measurements"] if one["op"] in COLLECTIVES]
    lines += ["", f"Of each rank while all {session.gpus} do the same:", ""]
    lines += [f"- {key}: {rates[key] / 1e9:.4g} GB/s" for key in RATES]
    return lines + [f"- {key}: {rates[key]:.2f} of its pace alone" for key in PACES if key in rates]


def _compare(session, *flags):
    """Runs tools/compare-pytorch-gpu in the time that the item has left."""
    known = session.result("versions")
    if not (known["torch"] if "torch" in known else session.run(
            "python3", "-c", "import torch", codes=None, limit=60).code == 0):
        raise Skipped("python3 has no torch")
    # It reports before it would be told to stop.
    seconds = max(1, int(min(session.left(), session.item_left()) - GRACE) - 5)
    rehearse = ["--rehearse"] if session.rehearse else []
    return session.run("python3", session.root / "tools/compare-pytorch-gpu", "--json",
                       "--time-limit", seconds, *rehearse, *flags)


def ceiling(session, result, text):
    """Times products, attention and copies by PyTorch's libraries right after the bench. This is
    the only check of the bench's rates that does not use the executor that measures them."""
    done = _compare(session, "--ceiling")
    result.update(done.json(), clocks=done.clocks)
    text.append(f"Clocks: {words(done.clocks)}; of the bench: "
                f"{words(session.result('bench').get('clocks'))}.")
    text += result["text"]
    ours = session.result("bench").get("best", {})
    for op, one in result["best"].items():
        if op in ours:
            text.append(f"- **{op}: fpdt-run bench {ours[op]['per_second'] / 1e12:.4g} "
                        f"{ours[op]['unit']}, {100 * ours[op]['per_second'] / one:.1f} % of "
                        f"PyTorch's {one / 1e12:.4g}**")


def pytorch(tokens, steps, fitting):
    """An item: the same layers and tokens on one rank, by fpdt-run and by PyTorch's fastest setup
    among `fitting` ones that fit. The first of `steps` is not timed."""
    def item(session, result, text):
        if tokens >= items.LONG:
            items.need_cudnn(session, "such steps take minutes")
        machine, _ = cluster.machine(session)
        memory = session.memory_flags("train")
        done = _compare(session, "--programs", session.programs, "--machine", machine, "--tokens",
                        tokens, "--steps", steps, "--fitting",
                        1 if session.rehearse else fitting, "--backend", session.backend, *memory)
        result.update(done.json(), clocks=done.clocks)
        text += [f"Clocks: {words(done.clocks)}.", ""] + result["text"]

    return item
