"""Stands in for fpdt-run on an H200 in tests of tools/gpu-check: plans are real, and a step takes
the simulated time plus a twentieth. The environment names the real fpdt-plan (FPDT_PLAN) and a
cluster file with rates (RATES). It may also tell how many GPUs there are (GPUS), how far two of them
are apart in their losses (APART), and that these two are refused (REFUSED)."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

SLOWER = 1.05
MEASUREMENTS = {"matmul": 700e12, "attention_forward": 650e12, "attention_backward": 550e12}


def flag(name, otherwise=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


def bench():
    shutil.copy(os.environ["RATES"], flag("--out"))
    return {"peak_flops": float(flag("--peak-flops")), "measurements": [
        {"op": op, "sizes": "large", "seconds": 1.0, "flops": rate, "bytes": 0}
        for op, rate in MEASUREMENTS.items()]}


def times(schedule):
    done = subprocess.run([os.environ["FPDT_PLAN"], "simulate", schedule, "--cluster",
                           flag("--machine"), "--json"], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    seconds = answer["nanoseconds"] * 1e-9
    kinds = [{"what": kind, "ops": one["ops"], "predicted": one["nanoseconds"] * 1e-9,
              "measured": SLOWER * one["nanoseconds"] * 1e-9}
             for kind, one in answer["kinds"].items()]
    return {"predicted_seconds": seconds, "measured_seconds": SLOWER * seconds,
            "error": 1 / SLOWER - 1, "kinds": kinds,
            "lanes": [{"what": "compute.0", "predicted": seconds, "measured": SLOWER * seconds}]}


def device():
    gpus = [{"gpu": {"name": "H200"}}] * int(os.environ.get("GPUS", 1))
    return gpus[0] if len(gpus) == 1 else {"gpus": gpus}


def train():
    two = flag("--device") == "0,1"
    if two and "REFUSED" in os.environ:
        print("fpdt-run: GPU 0 cannot read the memory of GPU 1", file=sys.stderr)
        sys.exit(2)
    steps = int(flag("--steps"))
    time = times(sys.argv[2]) if flag("--machine") else None
    losses = [11.0 - step / 100 + two * float(os.environ.get("APART", 0)) for step in range(steps)]
    # As on a GPU: gaps of the arena are not touched, and the operating system has no numbers for
    # it.
    device = {"predicted": 1 << 34, "arena": 1 << 33, "live": 1 << 32, "touched": (1 << 33) - 4096,
              "resident": None, "difference": ""}
    driver = {"predicted": 1 << 34, "before": 1 << 29, "highest": 1 << 33, "as_predicted": True,
              "taken_after_warm_up": 0}
    if flag("--log"):
        with pathlib.Path(flag("--log")).open("a") as log:
            for loss in losses:
                seconds = SLOWER * (time["predicted_seconds"] if time else 1) + 0.1
                log.write(json.dumps({"loss": loss, "grad_norm": 1.0, "seconds": seconds}) + "\n")
    return {"losses": losses, "time": time,
            "memory": {"device": device, "driver": driver, "as_predicted": True}}


def main():
    verb = sys.argv[1]
    if "--help" in sys.argv:
        print("  --short\n  --declared TEXT\n  --host-memory TEXT")
        return
    answers = {"device": device, "bench": bench, "train": train}
    print(json.dumps(answers[verb]()))


if __name__ == "__main__":
    main()
