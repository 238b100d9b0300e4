"""Timed steps of a few layers at true width, with their prediction."""
import re

from gpu_check import cluster, items
from gpu_check.harness import Failed, Wrong, size_bytes
from gpu_check.sampler import words

HOST_RESERVE = 8 << 30  # bytes of host memory for everything but arenas
TIME_TOLERANCE = 0.05
DISAGREE, STOPPED = 4, 143  # exit codes of fpdt-run whose report is complete
HEADER = ["| layers | measured s | host's clock s | predicted s | error | busy | clocks |",
          "|---|---|---|---|---|---|---|"]


# What fpdt-run says of large pinned memory, rank by rank.
PINNED = re.compile(r"(?:^|\r)(.* is pinned after [0-9.]+ s)$", re.M)


def machine(session, text):
    """The cluster file to plan with. The text says so if it was not measured to its end."""
    path, measured = cluster.machine(session)
    if not measured or "unfinished" in cluster.source(path):
        text += [f"**The bench has not ended; rates are those of: {cluster.source(path)}.**", ""]
    return path


def host_budget(session, times=1):
    """The host budget on a node with this machine's memory, less a reserve, so many times."""
    free = size_bytes(session.host_memory) if session.host_memory else items.meminfo("MemAvailable")
    return f"{int(max(free - HOST_RESERVE, free / 2) * times) >> 20}MiB"


def measure(session, run, schedule, machine_file, vocabulary, steps, *flags, name=None):
    """Trains by `run`, which is called as session.run, and compares rank 0 with its prediction.
    Seconds are the median step's by the GPU's events; the host's clock would include reading the
    events. `name` is that of the files that it leaves; default: the item's."""
    name = name or session.item
    log = session.path(f"{name}-steps.log")
    log.unlink(missing_ok=True)
    done = run(session.program("fpdt-run"), "train", schedule, "--data",
               items.tokens_file(session, vocabulary), "--steps", steps, "--backend",
               session.backend, "--machine", machine_file, *session.memory_flags("train"),
               "--draw", session.path(f"{name}.html"), "--log", log, "--json", *flags,
               codes=(0, DISAGREE, STOPPED))
    answer = done.json()
    time = answer["time"]
    if time is None:
        raise Failed(f"{done.how()}: no step after the first was measured")
    busy = {lane["what"]: lane["measured"] / time["measured_seconds"] for lane in time["lanes"]}
    return {"seconds": time["measured_seconds"], "host_seconds": items.step_seconds(log),
            "predicted": time["predicted_seconds"], "error": time["error"],
            "exit_code": done.code, "said": done.tail(), "memory": answer["memory"],
            "sent_bytes": answer.get("sent_bytes"), "kinds": time["kinds"], "lanes": time["lanes"],
            "busy": busy, "clocks": done.clocks, "products": answer.get("products"),
            "pinned": PINNED.findall(done.err)}


def row(layers, one):
    """The line under HEADER of a measured step."""
    busy = ", ".join(f"{lane} {100 * share:.1f} %" for lane, share in one["busy"].items())
    host = "" if one["host_seconds"] is None else f"{one['host_seconds']:.4g}"
    return (f"| {layers} | {one['seconds']:.4g} | {host} | {one['predicted']:.4g} | "
            f"{100 * one['error']:+.1f} % | {busy} | {words(one['clocks'])} |")


def apart(one):
    """Lines about a prediction of seconds that is too far from the measurement."""
    if abs(one["error"]) <= TIME_TOLERANCE:
        return []
    return [f"- **predicted and measured seconds are {100 * abs(one['error']):.1f} % apart**, "
            f"tolerance {100 * TIME_TOLERANCE:.0f} %"]


def of_model(source, layers, tokens, count=3, **keys):
    """An item: `count` steps of a few layers of true width on one rank: touched bytes and the
    device's total as its driver counts it, and the seconds of each kind of op. `keys` change those
    of the cluster file."""
    def item(session, result, text):
        machine(session, text)
        length = 512 if session.rehearse else tokens
        model, schedule, file = items.few_layers(session, session.item, length, source, layers,
                                                    **keys)
        one = measure(session, session.run, schedule, file, model.sizes["vocabulary"], count)
        result.update(one, model=model.name, layers=model.layers, tokens=length)
        lines, wrong = items.memory_lines(one["memory"])
        text += [f"{length} tokens of {model.name} on one rank.", "", *HEADER,
                 row(model.layers, one), "", "| op | measured s | predicted s |", "|---|---|---|"]
        text += [f"| {kind['what']} | {kind['measured']:.4g} | {kind['predicted']:.4g} |"
                 for kind in one["kinds"]]
        text += lines + apart(one)
        if one["exit_code"] == DISAGREE or wrong:
            raise Wrong("measured and predicted bytes disagree")

    return item
