"""The items that ask whether things are right: tests, sanitizer, loss curves, memory.

An item fills `result`, which is for programs, and `text`, lines of Markdown for people, as it goes,
so that a part of it is there when it is cut off. It raises Failed or Skipped.
"""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import xml.etree.ElementTree

from gpu_check import cluster
from gpu_check.harness import Failed, Skipped
from gpu_check.model import Model

# Loss curves on two backends in bf16: sums are f32 but their order differs, so that stored values
# differ by a rounding here and there. A curve in bf16 is about this share of the loss away from one
# in f32: a unit of bf16's last place.
CURVE_TOLERANCE = 2.0 ** -8
CURVE_STRATEGY = """storage: bf16
fpdt:
  chunk_tokens: {}
  ffn_tile_rows: 128
  loss_tile_rows: 128
  layer_classes:
    - {{layers: rest, recompute: keep_attention, keep: {{}}}}
"""


def build(session, result, text):
    """Configures and builds what the other items need. Before all of them, in every call."""
    programs = ["fpdt-plan", "fpdt-run"]
    if session.rehearse and all(session.program(name).exists() for name in programs):
        text.append("The programs were there already.")
        return
    options = ["-DCMAKE_BUILD_TYPE=Release"]
    if not session.rehearse:
        options += ["-DFPDT_CUDA=ON", "-DFPDT_GPU_TESTS=ON"]
        capability = query_gpu(["compute_cap"]).get("compute_cap", "").replace(".", "")
        if capability:
            exact = "a" if capability == "90" else ""
            options.append(f"-DFPDT_CUDA_ARCHITECTURES={capability}{exact}-real")
    if (session.root / ".deps").is_dir():
        options.append(f"-DCMAKE_PREFIX_PATH={session.root / '.deps'}")
    session.run("cmake", "-S", session.root, "-B", session.build, "-G", "Ninja", *options)
    make = ["cmake", "--build", session.build, "-j", os.cpu_count(), "--target"]
    session.run(*make, *programs)
    if not session.rehearse:
        result["tests_built"] = session.run(*make, "gpu_tests", codes=None).code == 0
        if not result["tests_built"]:
            text.append("**The tests of the GPU do not build**: see build.log.")
    text.append("Built with " + " ".join(options) + ".")


def query_gpu(fields):
    """A dict of what nvidia-smi says of the first GPU, {} without one."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return {}
    return dict(zip(fields, (value.strip() for value in lines[0].split(","))))


def meminfo(key):
    """Bytes of a line of /proc/meminfo."""
    with open("/proc/meminfo") as file:
        return 1024 * int(re.search(rf"^{key}:\s+(\d+)", file.read(), re.M)[1])


def versions(session, result, text):
    """What made the other numbers: GPU, driver, libraries, compilers, source."""
    result["gpu"] = query_gpu(["name", "driver_version", "memory.total", "memory.used",
                               "compute_cap", "pci.bus_id", "power.limit", "clocks.max.sm",
                               "clocks.max.mem", "pcie.link.gen.max", "pcie.link.width.max"])
    torch = ("import torch; print(torch.__version__, 'CUDA', torch.version.cuda, 'cuDNN', "
             "torch.backends.cudnn.version())")
    for name, command in {"nvcc": ["nvcc", "--version"], "gcc": ["g++", "--version"],
                          "cmake": ["cmake", "--version"], "kernel": ["uname", "-sr"],
                          "commit": ["git", "describe", "--always", "--dirty"],
                          "torch": ["python3", "-c", torch]}.items():
        done = session.run(*command, codes=None, limit=90)
        lines = [line for line in done.out.splitlines() if line.strip()]
        wanted = [line for line in lines if "release" in line] or lines[:1]
        result[name] = wanted[0].strip() if done.code == 0 and wanted else None
    result.update(host_memory_bytes=meminfo("MemTotal"), cores=os.cpu_count())
    if not session.rehearse:
        result["device"] = session.run(session.program("fpdt-run"), "device", "--json").json()
    text += [f"- {name}: {json.dumps(value) if isinstance(value, dict) else value}"
             for name, value in result.items()]


def gpu_tests(session):
    """Of ctest: [(command, labels)] of the tests labelled gpu."""
    done = session.run("ctest", "--test-dir", session.build, "-L", "^gpu$", "--show-only=json-v1")
    found = []
    for test in json.loads(done.out[done.out.index("{"):])["tests"]:
        labels = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        if "command" in test:
            found.append((test["command"], labels[0] if labels else []))
    return found


def tests(session, result, text):
    """ctest -L gpu. Passes when all pass and none was left out."""
    if session.rehearse:
        raise Skipped("needs a GPU")
    junit = session.path("tests.xml")
    junit.unlink(missing_ok=True)
    done = session.run("ctest", "--test-dir", session.build, "-L", "^gpu$", "-j8", "--timeout",
                       "120", "--no-tests=error", "--output-on-failure", "--output-junit", junit,
                       codes=None)
    if not junit.exists():
        raise Failed(f"ctest wrote no results (exit code {done.code}); see tests.log")
    status = {case.get("name"): case.get("status")
              for case in xml.etree.ElementTree.parse(junit).iter("testcase")}
    failed = [name for name, state in status.items() if state == "fail"]
    skipped = [name for name, state in status.items() if state not in ("run", "fail")]
    passed = len(status) - len(failed) - len(skipped)
    result.update(tests=len(status), passed=passed, failed=failed, skipped=skipped)
    text.append(f"{passed} of {len(status)} passed.")
    text += [f"- failed: `{name}`" for name in failed]
    text += [f"- not run: `{name}`" for name in skipped]
    if failed or done.code != 0:
        raise Failed(f"{len(failed)} of {len(status)} tests failed")
    if skipped:
        raise Failed(f"{len(skipped)} of {len(status)} tests were left out")


def sanitizer(session, result, text):
    """compute-sanitizer over the tests of the GPU, suite by suite, so that what was clean is known
    when time is up."""
    if session.rehearse:
        raise Skipped("needs a GPU")
    if shutil.which("compute-sanitizer") is None:
        raise Skipped("compute-sanitizer was not found")
    found = gpu_tests(session)
    suites = {}
    for command, _ in [test for test in found if "small" in test[1]] or found:
        names = [word.partition("=")[2] for word in command if word.startswith("--gtest_filter=")]
        for name in names:
            suites.setdefault((command[0], name.partition(".")[0]), []).append(name)
    # Tests make calls that must fail, so those are no errors. Races within libraries are not ours,
    # and their kernels would take most of the time.
    tools = {"memcheck": (["--report-api-errors", "no"], r"ERROR SUMMARY: (\d+) error"),
             "racecheck": (["--kernel-name", "kernel_substring=fpdt"],
                           r"RACECHECK SUMMARY: (\d+) hazard")}
    dirty = 0
    for tool, (flags, summary) in tools.items():
        for (program, suite), names in suites.items():
            done = session.run("compute-sanitizer", "--tool", tool, *flags, "--error-exitcode", "9",
                               program, f"--gtest_filter={':'.join(names)}", codes=None)
            counts = [int(count) for count in re.findall(summary, done.out + done.err)]
            clean = done.code == 0 and counts and counts[-1] == 0
            dirty += not clean
            result[f"{tool} {suite}"] = {"tests": len(names), "exit_code": done.code,
                                         "errors": counts[-1] if counts else None}
            text.append(f"- {tool} {suite}: {'clean' if clean else '**not clean**'} ({len(names)} "
                        f"tests, exit code {done.code})")
    if dirty:
        raise Failed(f"{dirty} of {len(result)} runs were not clean")


def text_file(session):
    """Text to learn: the documents of this project."""
    path = session.path("text.txt")
    if not path.exists():
        pages = sorted((session.root / "docs").glob("*.md"))
        path.write_bytes(b"".join(page.read_bytes() for page in pages))
    return path


def curves(session, result, text):
    """The same schedules, data and seed on the CPU and on the GPU, one rank and two that share it,
    attention by our kernels and by cuDNN. In rehearsal the CPU twice, which must agree exactly."""
    tokens, steps, chunk = (256, 2, 256) if session.rehearse else (2048, 20, 1024)
    larger = "llama-tiny" if session.rehearse else "llama-30m"
    strategy = session.path("curves-strategy.yaml")
    strategy.write_text(CURVE_STRATEGY.format(chunk))
    for name, ranks, attention in (("gpt-tiny", 1, "own"), (larger, 2, "cudnn")):
        machine = cluster.bare(session, f"curves-{name}", devices_per_node=ranks,
                               device_memory="8GiB", host_memory="16GiB", row_multiple=128,
                               attention=attention)
        folder = session.path(f"curves-{name}")
        session.run(session.program("fpdt-plan"), "lower", "--model",
                    session.root / f"models/{name}.yaml", "--cluster", machine, "--seq-len", tokens,
                    "--strategy", strategy, "--out-dir", folder)
        train = [session.program("fpdt-run"), "train", folder / "schedule.json", "--data",
                 text_file(session), "--steps", steps, "--learning-rate", "3e-4", "--warmup", 5,
                 "--json", "--backend"]
        # Whether memory is as predicted (exit code 4) is another item's question.
        reference, other = (session.run(*train, backend, codes=(0, 4)).json()["losses"]
                            for backend in ("cpu", session.backend))
        apart = max(abs(a - b) / a for a, b in zip(reference, other))
        result[name] = {"ranks": ranks, "attention": attention, "reference": reference,
                        "other": other, "largest_relative_difference": apart,
                        "tolerance": CURVE_TOLERANCE}
        text.append(f"- {name}, {ranks} on one device, attention {attention}: loss "
                    f"{reference[0]:.4f} -> {reference[-1]:.4f} (cpu), {other[-1]:.4f} "
                    f"({session.backend}); largest difference {100 * apart:.3f} % of the loss, "
                    f"tolerance {100 * CURVE_TOLERANCE:.2f} %")
    far = [name for name, one in result.items()
           if not one["largest_relative_difference"] <= CURVE_TOLERANCE]
    if far:
        raise Failed(f"loss curves of {', '.join(far)} are farther apart than bf16 explains")


def tokens_file(session, vocabulary):
    """2M tokens and one, random but the same every time."""
    path = session.path("tokens.u32")
    if not path.exists():
        numbers = random.Random(1)
        block = [numbers.randrange(vocabulary).to_bytes(4, "little") for _ in range(1 << 16)]
        path.write_bytes(b"".join(block * 32 + block[:1]))
    return path


def memory_lines(memory):
    """A Markdown table of train --json's memory, and whether all that was placed was touched."""
    def size(count):
        return "" if count is None else f"{count / 2**20:.1f} MiB"

    keys = ("predicted", "arena", "touched", "resident")
    spaces = {space: use for space, use in memory.items()
              if isinstance(use, dict) and "arena" in use}
    lines = ["", "| space | predicted | arena | touched | resident |", "|---|---|---|---|---|"]
    lines += [f"| {space} | " + " | ".join(size(use[key]) for key in keys) + " |"
              for space, use in spaces.items()]
    driver = memory.get("driver")
    if driver:
        verdict = "as predicted" if driver["as_predicted"] else "**not as predicted**"
        lines += ["", f"- the driver's total: predicted {size(driver['predicted']) or 'nothing'}, "
                      f"highest {size(driver['highest'])} ({size(driver['before'])} before the "
                      f"arenas), taken after the first step "
                      f"{size(driver['taken_after_warm_up'])}: {verdict}"]
    return lines, all(use["touched"] == use["arena"] for use in spaces.values())


def step_seconds(log):
    """Median of the steps after the first, of a log of train."""
    seconds = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    return statistics.median(seconds[1:])


def memory(session, result, text):
    """A step of a true-width layer on one rank: bytes that were touched, and the device's total by
    its driver."""
    name = "llama-tiny" if session.rehearse else "llama3-8b"
    model = Model.load(session.root / f"models/{name}.yaml").with_layers(1)
    path, folder = session.path("memory-model.yaml"), session.path("memory")
    path.write_text(model.text)
    machine, _ = cluster.machine(session)
    session.run(session.program("fpdt-plan"), "search", "--model", path, "--cluster", machine,
                "--seq-len", "512" if session.rehearse else "64K", "--out-dir", folder, "--json")
    done = session.run(session.program("fpdt-run"), "train", folder / "schedule.json", "--data",
                       tokens_file(session, model.sizes["vocabulary"]), "--steps", 2, "--backend",
                       session.backend, "--json", codes=(0, 4))
    result.update(done.json())
    lines, exact = memory_lines(result["memory"])
    text += lines
    if done.code != 0 or not exact:
        raise Failed("measured and predicted bytes disagree")
