"""The items that check correctness: versions, loss curves, memory, reproducible bits, two GPUs.

An item fills `result`, which is for programs, and `text`, lines of Markdown for people, as it goes,
so that an item that is cut off keeps its first part. It raises the exceptions of harness.py.
"""
import json
import os
import pathlib
import random
import re
import resource
import statistics
import subprocess

from gpu_check import cluster
from gpu_check.harness import Failed, Skipped, Wrong
from gpu_check.model import Model
from gpu_check.sampler import words

# Loss curves on two backends in bf16. Sums are f32 but their order differs, so stored values differ
# by a rounding here and there. A curve in bf16 differs from one in f32 by about this share of the
# loss: a unit of bf16's last place.
CURVE_TOLERANCE = 2.0 ** -8
LONG = 512 << 10  # tokens from which only cuDNN's tiles are fast enough
CURVE_STRATEGY = """storage: bf16
tiles:
  chunk_tokens: {}
  ffn_rows: 128
  loss_rows: 128
layer_classes:
  - {{layers: rest, recompute: keep_attention, keep: {{}}}}
"""


def query_gpus(fields):
    """What nvidia-smi reports about each GPU, as dicts; [] without a GPU."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [dict(zip(fields, (value.strip() for value in line.split(","))))
            for line in done.stdout.strip().splitlines()]


def meminfo(key):
    """The bytes in a line of /proc/meminfo."""
    with open("/proc/meminfo") as file:
        return 1024 * int(re.search(rf"^{key}:\s+(\d+)", file.read(), re.M)[1])


def _one_line(path):
    """The text of a small file; "unknown" if there is none."""
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return "unknown"


def system():
    """What of this machine limits or slows pinned memory, shared memory and access between GPUs."""
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    shared = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    iommu = pathlib.Path("/sys/class/iommu")
    words = [word for word in _one_line("/proc/cmdline").split() if "iommu" in word]
    found = {
        "locked_memory_limit": "none" if locked == resource.RLIM_INFINITY else locked,
        "shared_memory_bytes": shared and shared.f_bsize * shared.f_blocks,
        "transparent_huge_pages": _one_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "huge_pages": _one_line("/proc/sys/vm/nr_hugepages"),
        "iommu": "on" if iommu.is_dir() and any(iommu.iterdir()) else "off", "iommu_flags": words}
    for key in ("ecc.mode.current", "mig.mode.current", "persistence_mode", "compute_mode"):
        values = query_gpus([key])  # alone: a GPU may not know it
        found[key] = values[0][key] if values else "unknown"
    return found


def driver_words(gpu, device):
    """The driver beside the toolkit that the programs were built with."""
    first = device.get("gpus", [device])[0]["gpu"]
    return (f"driver {gpu.get('driver_version', 'of unknown version')} supports CUDA "
            f"{first.get('driver')}; the programs were built with CUDA {first.get('runtime')}")


def has_cudnn(session):
    """Whether fpdt-run found cuDNN; also True before it was asked."""
    device = session.result("versions").get("device") or {}
    return device.get("gpus", [device])[0].get("gpu", {}).get("cudnn", 1) is not None


def tiles(session):
    """The kernels of attention tiles in a cluster file for this machine."""
    return "cudnn" if has_cudnn(session) else "own"


def need_library_tiles(session, planned):
    """Skips an item whose tiles fpdt-plan gives to the built-in kernels, as those of 2^31 elements:
    it would run out of its time."""
    note = re.search(r"^note: (.*own kernels.*)$", planned.err, re.M)
    if note and has_cudnn(session):
        raise Skipped(note[1])


def need_cudnn(session, why):
    if not has_cudnn(session):
        raise Skipped(f"without cuDNN {why}")


def versions(session, result, text):
    """What produced all other numbers: GPU, driver, libraries, compilers, source."""
    found = query_gpus(["name", "driver_version", "memory.total", "memory.used", "compute_cap",
                        "pci.bus_id", "power.limit", "clocks.max.sm", "clocks.max.mem",
                        "pcie.link.gen.max", "pcie.link.width.max"])
    result["gpu"] = found[0] if found else {}
    if session.gpus > 1:
        result["gpus"] = session.gpus
    torch = ("import torch; print(torch.__version__, 'CUDA', torch.version.cuda, 'cuDNN', "
             "torch.backends.cudnn.version())")
    for name, command in {"nvcc": ["nvcc", "--version"], "kernel": ["uname", "-sr"],
                          "commit": ["git", "describe", "--always", "--dirty"],
                          "torch": ["python3", "-c", torch]}.items():
        done = session.run(*command, codes=None, limit=60)
        lines = [line for line in done.out.splitlines() if line.strip()]
        wanted = [line for line in lines if "release" in line] or lines[:1]
        result[name] = wanted[0].strip() if done.code == 0 and wanted else None
    sources = session.result("programs").get("sources")
    result.update(commit=result["commit"] or (sources and sources[-1]),
                  host_memory_bytes=meminfo("MemTotal"), host_memory_given=session.host_memory,
                  cores=os.cpu_count(), system=system())
    if not session.rehearse:
        result["device"] = session.run(session.program("fpdt-run"), "device", "--json").json()
        result["driver"] = driver_words(result["gpu"], result["device"])
    text += [f"- {name}: {json.dumps(value) if isinstance(value, dict) else value}"
             for name, value in result.items()]
    if session.gpus > 1 and not session.rehearse:
        links = session.run("nvidia-smi", "topo", "-m", codes=None, limit=60)
        result["links"] = links.out
        text += ["", "```", links.out.rstrip() or links.tail(), "```"]


def text_file(session):
    """Text to train on: the documents of this project."""
    path = session.path("text.txt")
    if not path.exists():
        pages = sorted((session.root / "docs").glob("*.md"))
        path.write_bytes(b"".join(page.read_bytes() for page in pages))
    return path


def on_gpus(session, numbers):
    """The end of a command: the value of --backend, and the GPUs with these numbers, of which a
    rehearsal has none."""
    return ["cpu"] if session.rehearse else [session.backend, "--device", numbers]


def lowered(session, name, model, ranks, attention, tokens, chunk, hosts=1, more=""):
    """A schedule of `ranks` ranks with the strategy of the curves, and more keys beside it."""
    strategy = session.path(f"{name}-strategy.yaml")
    strategy.write_text(CURVE_STRATEGY.format(chunk) + more)
    machine = cluster.bare(session, name, nodes=hosts, devices_per_node=ranks // hosts,
                           device_memory="8GiB", host_memory="16GiB", row_multiple=128,
                           attention=attention)
    session.run(session.program("fpdt-plan"), "lower", "--model",
                session.root / f"models/{model}.yaml", "--cluster", machine, "--seq-len", tokens,
                "--strategy", strategy, "--out-dir", session.path(name))
    return session.path(name) / "schedule.json"


def largest_distance(reference, other):
    """The largest difference of two loss curves, as a share of the loss."""
    return max(abs(a - b) / a for a, b in zip(reference, other))


def curves(session, result, text):
    """Trains the same schedules, data and seed on the CPU and on the GPU: one rank, and two that
    share the GPU, with attention by our kernels and by cuDNN. A rehearsal runs the CPU twice, and
    both runs must agree exactly."""
    tokens, steps, chunk = (256, 2, 256) if session.rehearse else (2048, 20, 1024)
    larger = "llama-tiny" if session.rehearse else "llama-30m"
    for name, ranks, attention in (("gpt-tiny", 1, "own"), (larger, 2, tiles(session))):
        schedule = lowered(session, f"curves-{name}", name, ranks, attention, tokens, chunk)
        train = [session.program("fpdt-run"), "train", schedule, "--data",
                 text_file(session), "--data-format", "bytes", "--steps", steps, "--learning-rate",
                 "3e-4", "--warmup", 5, "--json", "--backend"]
        # Another item checks whether memory is as predicted (exit code 4).
        reference, other = (session.run(*train, *backend, codes=(0, 4)).json()["losses"]
                            for backend in (["cpu"], on_gpus(session, "0")))
        first = largest_distance(reference[:1], other[:1])
        largest = largest_distance(reference, other)
        result[name] = {"ranks": ranks, "attention": attention, "reference": reference,
                        "other": other, "first_relative_difference": first,
                        "largest_relative_difference": largest, "tolerance": CURVE_TOLERANCE}
        text.append(f"- {name}, {ranks} on one device, attention {attention}: loss "
                    f"{reference[0]:.4f} -> {reference[-1]:.4f} (cpu), {other[-1]:.4f} "
                    f"({session.backend}). Apart after the first step, from the same weights: "
                    f"{100 * first:.4f} % of the loss; at most in {steps} steps: "
                    f"{100 * largest:.4f} %, tolerance {100 * CURVE_TOLERANCE:.2f} %")
    far = [name for name, one in result.items()
           if not one["largest_relative_difference"] <= CURVE_TOLERANCE]
    if far:
        raise Wrong(f"loss curves of {', '.join(far)} are farther apart than bf16 explains")


def tokens_file(session, vocabulary):
    """2M + 1 random tokens, the same in every call."""
    path = session.path(f"tokens-{vocabulary}.u32")
    if not path.exists():
        numbers = random.Random(1)
        block = [numbers.randrange(vocabulary).to_bytes(4, "little") for _ in range(1 << 16)]
        path.write_bytes(b"".join(block * 32 + block[:1]))
    return path


def memory_lines(memory):
    """A Markdown table of train --json's memory, and what is wrong with it. fpdt-run says how
    memory deviates from the prediction, since it knows which bytes of an arena the schedule writes.
    On a GPU, bytes between operands stay untouched, and so may scratch."""
    def size(count):
        return "" if count is None else f"{count / 2**20:.1f} MiB"

    keys = ("predicted", "arena", "touched", "resident")
    spaces = {space: use for space, use in memory.items()
              if isinstance(use, dict) and "arena" in use}
    lines = ["", "| space | predicted | arena | touched | resident |", "|---|---|---|---|---|"]
    lines += [f"| {space} | " + " | ".join(size(use[key]) for key in keys) + " |"
              for space, use in spaces.items()]
    lines.append("")
    wrong = list(memory.get("deviations") or
                 [f"{space}: {use['difference']}" for space, use in spaces.items()
                  if use["difference"]])
    for space, use in spaces.items():
        if use["touched"] > use["arena"]:
            wrong.append(f"{space}: more was touched than the arena holds")
        untouched = use.get("untouched")
        if untouched:
            lines.append(f"- {space}: counted on the device; untouched are "
                         f"{size(untouched['scratch'])} of scratch and "
                         f"{size(untouched['between'])} between operands")
    process, driver = memory.get("process"), memory.get("driver")
    if driver and process:
        lines.append(f"- the system: {size(process['resident'])} resident, "
                     f"{size(process['locked'])} locked, {size(process['pinned'])} pinned by "
                     "drivers that report it")
    if driver:
        verdict = "as predicted" if driver["as_predicted"] else "**not as predicted**"
        lines.append(f"- the driver's total: predicted {size(driver['predicted']) or 'nothing'}, "
                     f"highest {size(driver['highest'])} ({size(driver['before'])} before the "
                     f"arenas), taken after the first step "
                     f"{size(driver['taken_after_warm_up'])}: {verdict}")
    return lines + [f"- **{what}**" for what in wrong], wrong


def step_seconds(log):
    """The median step time in a train log without the first step; None if there is only one."""
    seconds = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    return statistics.median(seconds[1:]) if len(seconds) > 1 else None


def few_layers(session, name, length, source="llama3-8b", layers=1, **keys):
    """A model with a few layers of true width, its schedule on one rank, and the cluster file with
    `keys` changed. A rehearsal takes a layer of a tiny model."""
    source, layers = ("llama-tiny", 1) if session.rehearse else (source, layers)
    model = Model.load(session.root / f"models/{source}.yaml").with_layers(layers)
    path, folder = session.path(f"{name}-model.yaml"), session.path(name)
    path.write_text(model.text)
    machine, _ = cluster.machine(session)
    if keys:
        machine = cluster.changed(session, machine, f"{name}-machine", **keys)
    session.run(session.program("fpdt-plan"), "search", "--model", path, "--cluster", machine,
                "--seq-len", length, "--out-dir", folder, "--json")
    return model, folder / "schedule.json", machine


def deterministic(session, result, text):
    """Runs our own tiles at 8K rows twice: both runs must give the same bits. Also reports the time
    of the tiles."""
    own, mode = ({}, []) if session.rehearse else ({"attention": "own"}, ["--deterministic"])
    length = 512 if session.rehearse else 8192
    model, schedule, machine = few_layers(session, "deterministic", length, **own)
    data = tokens_file(session, model.sizes["vocabulary"])
    for number in ("first", "second"):
        log = session.path(f"deterministic-{number}-steps.log")
        log.unlink(missing_ok=True)
        done = session.run(session.program("fpdt-run"), "train", schedule, "--data", data,
                           "--steps", 3, "--backend", session.backend, *mode, "--machine", machine,
                           *session.memory_flags("train"), "--log", log, "--json", codes=(0, 4))
        steps = [json.loads(line) for line in log.read_text().splitlines()]
        result[number] = {"bits": [(one["loss"], one["grad_norm"]) for one in steps],
                          "kinds": done.json()["time"]["kinds"], "clocks": done.clocks}
    same = result["first"]["bits"] == result["second"]["bits"]
    text.append(f"- losses and gradient norms of {len(steps)} steps, twice: "
                f"{'the same bits' if same else '**not the same bits**'}")
    pairs = model.sizes["heads"] * model.sizes["head_dim"] * length * (length + 1) / 2
    flops = {"attention_forward": 4 * pairs, "attention_backward": 10 * pairs}
    for kind in result["second"]["kinds"]:
        if kind["what"] in flops and kind["measured"] > 0:
            rate = flops[kind["what"]] / kind["measured"]
            text.append(f"- {kind['what']}, {length} rows: {1000 * kind['measured']:.3g} ms per "
                        f"step, {rate / 1e12:.4g} TFLOP/s if no tile is repeated "
                        f"({words(result['second']['clocks'])})")
    if not same:
        raise Wrong("two runs with --deterministic differ")


def on_two(session, result, item, mesh=""):
    """A function that trains two ranks, on one GPU, on two or on a CPU, and returns the losses."""
    if not session.rehearse:
        found = session.run(session.program("fpdt-run"), "device", "--json").json()
        if len(found.get("gpus", [found])) < 2:
            raise Skipped("it needs two GPUs, and fpdt-run device lists one")
    tokens, steps, chunk = (256, 2, 256) if session.rehearse else (2048, 5, 1024)
    model = "llama-tiny" if session.rehearse else "llama-30m"
    schedule = lowered(session, item, model, 2, tiles(session), tokens, chunk, more=mesh)

    def train(name, *backend):
        log = session.path(f"{item}-{name}-steps.log")
        log.unlink(missing_ok=True)
        done = session.run(session.program("fpdt-run"), "train", schedule, "--data",
                           text_file(session), "--data-format", "bytes", "--steps", steps,
                           "--learning-rate", "3e-4", "--warmup", 5, "--log", log, "--json",
                           "--backend", *backend, codes=(0, 2, 4))
        if done.code == 2:
            # One GPU ran the same before, so these two do not fit together. The message says why.
            raise Skipped(done.tail()) if "0,1" in backend else Failed(done.tail())
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        result[name] = {"bits": [(one["loss"], one["grad_norm"]) for one in entries],
                        "seconds": step_seconds(log), "driver": done.json()["memory"]["driver"]}
        return [one["loss"] for one in entries]

    return train


def same_bits(session, result, text, train):
    """Whether two GPUs, which read each other's memory, give the bits of one with built-in
    kernels. A rehearsal runs the CPU twice."""
    same = [] if session.rehearse else ["--deterministic"]
    steps = len(train("one", *on_gpus(session, "0"), *same))
    train("two", *on_gpus(session, "0,1"), *same)
    equal = result["one"]["bits"] == result["two"]["bits"]
    text += [f"- losses and gradient norms of {steps} steps, two ranks on one GPU and on two: "
             f"{'the same bits' if equal else '**not the same bits**'}",
             f"- seconds of a step: {result['one']['seconds']:.3g} on one GPU, "
             f"{result['two']['seconds']:.3g} on two, with built-in kernels"]
    return equal


OTHER_BITS = "two ranks give other bits on two GPUs than on one"


def two_gpus(session, result, text):
    """Trains two ranks that share heads: bits on two GPUs are those on one, and with cuDNN the
    losses are those of a CPU."""
    train = on_two(session, result, "two-gpus")
    equal = same_bits(session, result, text, train)
    largest = largest_distance(train("cpu", "cpu"), train("library", *on_gpus(session, "0,1")))
    result.update(largest_relative_difference=largest, tolerance=CURVE_TOLERANCE)
    text += [f"- with cuDNN on two GPUs, at most {100 * largest:.4f} % of the loss from a CPU, "
             f"tolerance {100 * CURVE_TOLERANCE:.2f} %"]
    if not equal:
        raise Wrong(OTHER_BITS)
    if not largest <= CURVE_TOLERANCE:
        raise Wrong("losses on two GPUs are farther from a CPU's than bf16 explains")


def tensor_gpus(session, result, text):
    """Trains two ranks that share products: bits on two GPUs are those on one."""
    train = on_two(session, result, "tensor-gpus", "mesh: {tensor: 2}\n")
    if not same_bits(session, result, text, train):
        raise Wrong(OTHER_BITS)
