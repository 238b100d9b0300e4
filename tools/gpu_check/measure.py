"""The items that measure: the bench, true-width layers of one rank of four, PyTorch, ceilings."""
import math
import re

from gpu_check import cluster, items
from gpu_check.harness import Failed, Skipped
from gpu_check.model import Model, line, utilisation, whole_seconds

RANKS = 4
# What a whole step at the speed of its products and tiles alone is made of.
ARITHMETIC = ("matmul", "attention_forward", "attention_backward")
# Of steps from so many tokens on.
GOALS = {"mfu_causal": {0: 0.45, 1 << 20: 0.50}, "compute_busy": {0: None, 1 << 19: 0.97}}
TIME_TOLERANCE = 0.05


def bench(session, result, text):
    """Rates of this GPU into DIR/machine.yaml, which the items after it plan with."""
    flags = ["--quick"] if session.rehearse else ["--peak-flops", session.peak_flops]
    done = session.run(session.program("fpdt-run"), "bench", "--backend", session.backend, "--out",
                       session.path("machine.yaml"), "--json", *flags)
    result.update(done.json())
    best = {}
    for one in result["measurements"]:
        amount = one["flops"] or one["bytes"]
        if amount and one["seconds"]:
            entry = {"per_second": amount / one["seconds"], "sizes": one["sizes"],
                     "unit": "TFLOP/s" if one["flops"] else "TB/s"}
            best[one["op"]] = max(entry, best.get(one["op"], entry), key=lambda e: e["per_second"])
    result["best"] = best
    text += ["| op | best | at |", "|---|---|---|"]
    text += [f"| {op} | {one['per_second'] / 1e12:.4g} {one['unit']} | {one['sizes']} |"
             for op, one in best.items()]


def _simulate(session, schedule, machine):
    """Seconds of a step, those of its arithmetic, and executed flops of one rank (None where the
    machine's file has no peak)."""
    answer = session.run(session.program("fpdt-plan"), "simulate", schedule, "--cluster", machine,
                         "--json").json()
    seconds, peak = answer["nanoseconds"] * 1e-9, cluster.peak_flops(machine)
    kinds = (answer["kinds"].get(kind, {"nanoseconds": 0}) for kind in ARITHMETIC)
    return {"seconds": seconds,
            "arithmetic": sum(kind["nanoseconds"] for kind in kinds) * 1e-9,
            "executed": answer["hfu"] * peak * seconds if answer.get("hfu") and peak else None}


def _plan_whole(session, model, tokens, node, folder, text):
    """The file of the whole model's strategy on a node of such GPUs, None when nothing fits; and
    fpdt-plan's answer."""
    done = session.run(session.program("fpdt-plan"), "search", "--model", model, "--cluster", node,
                       "--seq-len", tokens, "--host-budget", cluster.NODE_HOST_MEMORY, "--out-dir",
                       folder, "--json", codes=(0, 3))
    answer = done.json()
    if done.code == 3:
        text.append(f"The whole model does not fit: {answer['binding']}, needs "
                    f"{answer['need_bytes'] / 2**30:.1f} GiB.")
        return None, answer
    text += [f"Strategy of the whole model, planned for {cluster.NODE_HOST_MEMORY} of host memory "
             f"a node: {answer['strategy']['words']}.", ""]
    return folder / "plan.yaml", answer


def _plan_few(session, model, tokens, node, strategy, host, folder, text):
    """A schedule of a model of few layers: with the strategy of the whole model, or searched where
    that is too large for this machine. None when nothing fits; the text says why then."""
    asked = ["--model", model, "--cluster", node, "--seq-len", tokens, "--host-budget", host,
             "--out-dir", folder]
    if strategy is not None:
        done = session.run(session.program("fpdt-plan"), "lower", *asked, "--strategy", strategy,
                           codes=(0, 2, 3))
        if done.code == 0:
            return folder / "schedule.json"
        text.append(f"- {model.stem}: the whole model's strategy does not do here, so another was "
                    "searched")
    done = session.run(session.program("fpdt-plan"), "search", *asked, codes=(0, 3))
    if done.code == 0:
        return folder / "schedule.json"
    text += ["```", done.out.rstrip(), "```"]
    return None


def _sequences(schedule):
    """Of a step: replicas times micro-batches."""
    beside = (schedule.parent / "plan.yaml", schedule.parent / "strategy.yaml")
    text = next(path for path in beside if path.exists()).read_text()
    keys = (re.search(rf"^{key}: (\d+)", text, re.M) for key in ("data_parallel", "micro_batches"))
    return math.prod(int(found[1]) for found in keys if found)


def _host_budget(session):
    """What RANKS ranks may ask for when one has this machine's free memory, less some of it."""
    free = items.meminfo("MemAvailable")
    return f"{int(max(free - (8 << 30), free / 2) * RANKS) >> 20}MiB"


def _measure(session, schedule, machine, vocabulary, steps, name):
    """One rank of RANKS alone, beside its prediction."""
    log = session.path(f"{name}.jsonl")
    log.unlink(missing_ok=True)
    done = session.run(session.program("fpdt-run"), "train", schedule, "--data",
                       items.tokens_file(session, vocabulary), "--steps", steps, "--communicator",
                       "solo", "--rank", 0, "--backend", session.backend, "--machine", machine,
                       "--draw", session.path(f"{name}.html"), "--log", log, "--json",
                       codes=(0, 4))
    answer = done.json()
    time = answer["time"]
    busy = {lane["what"]: lane["measured"] / time["measured_seconds"] for lane in time["lanes"]}
    return {"seconds": items.step_seconds(log), "predicted": time["predicted_seconds"],
            "error": time["error"], "exit_code": done.code, "memory": answer["memory"],
            "kinds": time["kinds"], "busy": busy}


def _plans(session, name, model, counts, length, strategy, result, text):
    """Schedules of as many layers as `counts` says, each with its prediction for a rank alone."""
    node = cluster.of_ranks(session, RANKS, solo=False)
    alone = cluster.of_ranks(session, RANKS, solo=True)
    folder, host = session.path(session.item), _host_budget(session)
    for layers in counts:
        few = folder / f"{name}-{layers}.yaml"
        few.write_text(model.with_layers(layers).text)
        schedule = _plan_few(session, few, length, node, strategy, host, folder / str(layers), text)
        if schedule is not None:
            result["predicted"][layers] = {"schedule": str(schedule),
                                           "sequences": _sequences(schedule),
                                           **_simulate(session, schedule, alone)}
    if len(result["predicted"]) < 2:
        raise Failed("fewer than two numbers of layers can be planned: nothing to scale from")
    if len({plan["sequences"] for plan in result["predicted"].values()}) > 1:
        raise Failed("plans of different numbers of layers take different numbers of sequences")
    return alone


def solo(tokens, counts, steps):
    """An item: layers of the model at true width, rank 0 of four alone, and the whole model's step
    that follows. In rehearsal a tiny model and 512 tokens."""
    def item(session, result, text):
        name = "llama-tiny" if session.rehearse else "llama3-8b"
        path = session.root / f"models/{name}.yaml"
        model, length = Model.load(path), 512 if session.rehearse else tokens
        if not cluster.machine(session)[1]:
            text += ["**Rates are published ones: the bench has not run.**", ""]
        session.path(session.item).mkdir(parents=True, exist_ok=True)
        strategy, whole = _plan_whole(session, path, length,
                                      cluster.of_ranks(session, RANKS, solo=False),
                                      session.path(session.item) / "whole", text)
        kept = ("verdict", "strategy", "prediction", "nearest")
        result.update(tokens=length, ranks=RANKS, predicted={}, measured={},
                      plan_of_whole={key: whole.get(key) for key in kept})
        alone = _plans(session, name, model, counts, length, strategy, result, text)
        for layers, plan in result["predicted"].items():
            wanted = 1.3 * steps * plan["seconds"] + 20
            if result["measured"] and wanted > min(session.left(), session.item_left()):
                text.append(f"- {layers} layers were left out: they take about {wanted:.0f} s")
                continue
            result["measured"][layers] = _measure(session, plan["schedule"], alone,
                                                  model.sizes["vocabulary"],
                                                  2 if session.rehearse else steps,
                                                  f"{session.item}-{layers}")
            session.save()
        _scale(session, result, model)
        _report(session, result, text)
        if any(one["exit_code"] for one in result["measured"].values()):
            raise Failed("measured and predicted bytes disagree")
    return item


def _scale(session, result, model):
    """From the steps of few layers to a step of the whole model: result["whole"]."""
    predicted, measured, tokens = result["predicted"], result["measured"], result["tokens"]
    few, more = min(predicted), max(predicted)
    seconds, layer, how = whole_seconds(
        model.layers, {layers: one["seconds"] for layers, one in predicted.items()},
        {layers: one["seconds"] for layers, one in measured.items()})

    def scaled(key):
        ends = predicted[few][key], predicted[more][key]
        return None if None in ends else line(few, ends[0], more, ends[1], model.layers)

    executed, sequences = scaled("executed"), predicted[few]["sequences"]
    result["whole"] = {
        "layers": model.layers, "seconds": seconds, "layer_seconds": layer, "how": how,
        "sequences": sequences, "tokens_per_second_per_gpu": tokens * sequences / seconds / RANKS,
        "predicted_seconds": scaled("seconds"), "peak_flops": session.peak_flops,
        "share_of_ceiling": scaled("arithmetic") / seconds,
        **utilisation(model, tokens, RANKS, seconds / sequences, session.peak_flops,
                      None if executed is None else executed * RANKS / sequences)}


def _report(session, result, text):
    """The numbers for people, beside goals and predictions."""
    whole, measured = result["whole"], result["measured"]
    text += [f"Rank 0 of {RANKS} alone at its true size: its collectives copy on the device, so "
             "communication between GPUs is not in these numbers. The whole model of "
             f"{whole['layers']} layers is scaled {whole['how']}.", "",
             "| layers | measured s | predicted s | error | busy |", "|---|---|---|---|---|"]
    for layers, one in measured.items():
        busy = ", ".join(f"{lane} {100 * share:.1f} %" for lane, share in one["busy"].items())
        text.append(f"| {layers} | {one['seconds']:.4g} | {one['predicted']:.4g} | "
                    f"{100 * one['error']:+.1f} % | {busy} |")
    error = whole["predicted_seconds"] / whole["seconds"] - 1
    shares = (f"{key} {100 * whole[key]:.1f} %" for key in ("mfu_causal", "mfu_full", "hfu")
              if key in whole)
    text += [f"| {whole['layers']} (scaled) | {whole['seconds']:.4g} | "
             f"{whole['predicted_seconds']:.4g} | {100 * error:+.1f} % | |", "",
             f"- a layer: {whole['layer_seconds']:.4g} s; {whole['tokens_per_second_per_gpu']:.4g} "
             f"tokens/s a GPU; sequences a step: {whole['sequences']}",
             f"- {', '.join(shares)} of {whole['peak_flops'] / 1e12:.4g} TFLOP/s",
             f"- {100 * whole['share_of_ceiling']:.1f} % of the ceiling: what products and "
             "attention tiles alone take at the bench's rates, over the measured step"]
    most = measured[max(measured)]
    if not session.rehearse:
        text += _goals(result["tokens"], whole, most)
    text += items.memory_lines(most["memory"])[0]


def _goals(tokens, whole, most):
    lines = []
    compute = (busy for lane, busy in most["busy"].items() if lane.startswith("compute"))
    found = {"mfu_causal": whole["mfu_causal"], "compute_busy": max(compute, default=0)}
    for what, value in found.items():
        goal = GOALS[what][max(length for length in GOALS[what] if length <= tokens)]
        if goal is not None:
            lines.append(f"- goal {what} {100 * goal:.0f} %: "
                         f"{'met' if value >= goal else '**not met**'}, {100 * value:.1f} %")
    if abs(most["error"]) > TIME_TOLERANCE:
        lines.append(f"- **predicted and measured seconds are {100 * abs(most['error']):.1f} % "
                     f"apart**, tolerance {100 * TIME_TOLERANCE:.0f} %")
    return lines


def _compare(session, *flags):
    """tools/compare-pytorch-gpu, in as much time as the item has."""
    if session.run("python3", "-c", "import torch", codes=None, limit=120).code != 0:
        raise Skipped("python3 has no torch")
    seconds = int(min(session.left(), session.item_left())) - 5
    rehearse = ["--rehearse", "--fitting", 1] if session.rehearse else []
    return session.run("python3", session.root / "tools/compare-pytorch-gpu", "--json",
                       "--time-limit", seconds, *rehearse, *flags).json()


def pytorch(tokens, steps):
    """An item: the same layers and tokens on one rank, by fpdt-run and by the fastest PyTorch that
    fits."""
    def item(session, result, text):
        machine, _ = cluster.machine(session)
        result.update(_compare(session, "--programs", session.build / "apps", "--machine", machine,
                               "--tokens", tokens, "--steps", steps, "--backend", session.backend))
        text += result["text"]
    return item


def ceiling(session, result, text):
    """Products and attention by PyTorch's libraries, to hold the bench's rates against."""
    result.update(_compare(session, "--ceiling"))
    text += result["text"]
    for op, one in session.load("bench").get("result", {}).get("best", {}).items():
        if op in ARITHMETIC:
            text.append(f"- fpdt-run bench: {op} {one['per_second'] / 1e12:.1f} TFLOP/s at "
                        f"{one['sizes']}")
