"""A layer of a model at true width and length, on one rank of four alone, and the step of the whole
model that follows from it."""
import math
import re

from gpu_check import cluster, items, steps
from gpu_check.harness import Failed, Wrong
from gpu_check.measure import ARITHMETIC
from gpu_check.model import Model, line, utilisation, whole_seconds

RANKS = 4
PLANNED = (1, 2)  # numbers of layers; one or both are measured
# Goals of a step with at least this many tokens.
GOALS = {"mfu_causal": {0: 0.45, 1 << 20: 0.50}, "compute_busy": {0: None, 1 << 19: 0.97}}


def _simulate(session, schedule, machine):
    """Seconds of a step, seconds of its arithmetic by kind, and executed flops of one rank (None if
    the machine's file has no peak)."""
    answer = session.run(session.program("fpdt-plan"), "simulate", schedule, "--cluster", machine,
                         "--json").json()
    seconds, peak = answer["nanoseconds"] * 1e-9, cluster.peak_flops(machine)
    kinds = {kind: answer["kinds"].get(kind, {"nanoseconds": 0})["nanoseconds"] * 1e-9
             for kind in ARITHMETIC}
    return {"seconds": seconds, **kinds,
            "executed": answer["hfu"] * peak * seconds if answer.get("hfu") and peak else None}


def _plan_whole(session, model, tokens, node, folder, text):
    """The strategy file of the whole model on a node of such GPUs (None if nothing fits), and
    fpdt-plan's answer."""
    done = session.run(session.program("fpdt-plan"), "search", "--model", model, "--cluster", node,
                       "--seq-len", tokens, "--host-budget", cluster.NODE_HOST_MEMORY, "--out-dir",
                       folder, "--json", codes=(0, 3))
    answer = done.json()
    if done.code == 3:
        text.append(f"The whole model does not fit: {answer['binding']}, needs "
                    f"{answer['needs'][0]['need_bytes'] / 2**30:.1f} GiB.")
        return None, answer
    text += [f"Strategy of the whole model, planned for {cluster.NODE_HOST_MEMORY} of host memory "
             f"a node: {answer['strategy']['words']}.", ""]
    return folder / "plan.yaml", answer


def _plan_few(session, model, tokens, node, strategy, host, folder, text):
    """A schedule of a model with few layers, with the strategy of the whole model; if that is too
    large for this machine, with a searched one. None if nothing fits; then the text says why."""
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
    """The number of sequences of a step: replicas times micro-batches."""
    beside = (schedule.parent / "plan.yaml", schedule.parent / "strategy.yaml")
    text = next(path for path in beside if path.exists()).read_text()
    keys = (re.search(rf"^ *{key}: (\d+)", text, re.M) for key in ("replicas", "micro_batches"))
    return math.prod(int(found[1]) for found in keys if found)


def _plans(session, name, model, length, strategy, result, text):
    """Schedules of few layers, each with its prediction for a rank alone, and the machine of these
    predictions. If only one can be planned, the line that scales ends at the whole model's
    prediction."""
    node = cluster.of_ranks(session, RANKS, solo=False)
    alone = cluster.of_ranks(session, RANKS, solo=True)
    folder, host = session.path(session.item), steps.host_budget(session, RANKS)
    predicted = result["predicted"] = {}
    for layers in PLANNED:
        few = folder / f"{name}-{layers}.yaml"
        few.write_text(model.with_layers(layers).text)
        schedule = _plan_few(session, few, length, node, strategy, host, folder / str(layers), text)
        if schedule is not None:
            predicted[layers] = {"schedule": str(schedule), "sequences": _sequences(schedule),
                                 **_simulate(session, schedule, alone)}
    whole = folder / "whole/schedule.json"
    if len(predicted) == 1 and whole.exists():
        predicted[model.layers] = {"schedule": str(whole), "sequences": _sequences(whole),
                                   **_simulate(session, whole, alone)}
    return alone


def _measured_before(session, base):
    """The steps that another item measured, by their number of layers."""
    found = session.result(base).get("measured", {}) if base else {}
    return {int(layers): one for layers, one in found.items()}


def solo(tokens, layers, count, base=None):
    """An item: runs `count` steps of layers of the model at true width as rank 0 of four alone, and
    derives the whole model's step. With `base` it also uses that item's measurements. A rehearsal
    uses a tiny model and 512 tokens."""
    def item(session, result, text):
        name = "llama-tiny" if session.rehearse else "llama3-8b"
        path = session.root / f"models/{name}.yaml"
        model, length = Model.load(path), 512 if session.rehearse else tokens
        steps.machine(session, text)
        session.path(session.item).mkdir(parents=True, exist_ok=True)
        strategy, whole = _plan_whole(session, path, length,
                                      cluster.of_ranks(session, RANKS, solo=False),
                                      session.path(session.item) / "whole", text)
        kept = ("verdict", "strategy", "prediction", "nearest")
        result.update(tokens=length, ranks=RANKS, measured=_measured_before(session, base),
                      plan_of_whole={key: whole.get(key) for key in kept})
        alone = _plans(session, name, model, length, strategy, result, text)
        if layers not in result["predicted"]:
            raise Failed(f"{layers} layers do not fit this machine")
        result["measured"][layers] = steps.measure(
            session, session.run, result["predicted"][layers]["schedule"], alone,
            model.sizes["vocabulary"], 2 if session.rehearse else count, "--communicator", "solo",
            "--rank", 0)
        session.save()
        _scale(session, result, model)
        _report(session, result, layers, text)
        wrong = items.memory_lines(result["measured"][layers]["memory"])[1]
        if result["measured"][layers]["exit_code"] == steps.DISAGREE or wrong:
            raise Wrong("measured and predicted bytes disagree; the times stand")

    return item


def _ceilings(session, predicted, model):
    """Seconds of the whole model's arithmetic alone, at the bench's rates, and at the rates that
    other libraries reach where the bench has its best (None without them)."""
    few, more = min(predicted), max(predicted)
    seconds = {kind: line(few, predicted[few][kind], more, predicted[more][kind], model.layers)
               for kind in ARITHMETIC}
    ours, theirs = (session.result(item).get("best", {}) for item in ("bench", "ceiling"))
    other = None
    if all(kind in ours and kind in theirs for kind in ARITHMETIC):
        other = sum(seconds[kind] * ours[kind]["per_second"] / theirs[kind] for kind in ARITHMETIC)
    return sum(seconds.values()), other


def _scale(session, result, model):
    """Scales steps of few layers to a step of the whole model: result["whole"], None if the time of
    a layer is unknown."""
    predicted, tokens = result["predicted"], result["tokens"]
    result["whole"] = None
    if len(predicted) < 2:
        return
    few, more = min(predicted), max(predicted)
    seconds, layer, how = whole_seconds(
        model.layers, {layers: one["seconds"] for layers, one in predicted.items()},
        {layers: one["seconds"] for layers, one in result["measured"].items()})

    def scaled(key):
        ends = predicted[few][key], predicted[more][key]
        return None if None in ends else line(few, ends[0], more, ends[1], model.layers)

    executed, sequences = scaled("executed"), predicted[few]["sequences"]
    arithmetic, others = _ceilings(session, predicted, model)
    result["whole"] = {
        "layers": model.layers, "seconds": seconds, "layer_seconds": layer, "how": how,
        "sequences": sequences, "tokens_per_second_per_gpu": tokens * sequences / seconds / RANKS,
        "predicted_seconds": scaled("seconds"), "peak_flops": session.peak_flops,
        "share_of_ceiling": arithmetic / seconds,
        "share_of_other_libraries": others and others / seconds,
        **utilisation(model, tokens, RANKS, seconds / sequences, session.peak_flops,
                      None if executed is None else executed * RANKS / sequences)}


def _report(session, result, layers, text):
    """The numbers as text, with goals and predictions."""
    whole, measured = result["whole"], result["measured"]
    text += [f"Rank 0 of {RANKS} alone at its true size: its collectives copy on the device, so "
             "communication between GPUs is not in these numbers. Seconds are the GPU's, by its "
             "events.", "",
             *steps.HEADER, *(steps.row(count, one) for count, one in measured.items())]
    if whole is None:
        text += ["", "Nothing to scale from: one number of layers was planned, and not the whole "
                     "model."]
    else:
        text += _whole_lines(whole)
        if not session.rehearse:
            text += _goals(result["tokens"], whole, measured[layers])
    text += items.memory_lines(measured[layers]["memory"])[0]


def _whole_lines(whole):
    error = whole["predicted_seconds"] / whole["seconds"] - 1
    shares = (f"{key} {100 * whole[key]:.1f} %" for key in ("mfu_causal", "mfu_full", "hfu")
              if key in whole)
    lines = [f"| {whole['layers']} (scaled) | {whole['seconds']:.4g} | | "
             f"{whole['predicted_seconds']:.4g} | {100 * error:+.1f} % | | |", "",
             f"The whole model of {whole['layers']} layers is scaled {whole['how']}.", "",
             f"- a layer: {whole['layer_seconds']:.4g} s; {whole['tokens_per_second_per_gpu']:.4g} "
             f"tokens/s per GPU; sequences per step: {whole['sequences']}",
             f"- **{', '.join(shares)}** of {whole['peak_flops'] / 1e12:.4g} TFLOP/s",
             f"- {100 * whole['share_of_ceiling']:.1f} % of the ceiling: what products and "
             "attention tiles alone take at the bench's rates, over the step"]
    if whole["share_of_other_libraries"] is not None:
        lines.append(f"- {100 * whole['share_of_other_libraries']:.1f} % of the ceiling by "
                     "PyTorch's libraries: the same at the rates that they reach beside the "
                     "bench's best")
    return lines


def _goals(tokens, whole, one):
    lines = []
    compute = (busy for lane, busy in one["busy"].items() if lane.startswith("compute"))
    found = {"mfu_causal": whole["mfu_causal"], "compute_busy": max(compute, default=0)}
    for what, value in found.items():
        goal = GOALS[what][max(length for length in GOALS[what] if length <= tokens)]
        if goal is not None:
            lines.append(f"- goal {what} {100 * goal:.0f} %: "
                         f"{'met' if value >= goal else '**not met**'}, {100 * value:.1f} %")
    return lines + steps.apart(one)
