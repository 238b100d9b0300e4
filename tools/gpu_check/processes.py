"""The item `processes`: ranks in processes of their own that share a GPU, connected by NCCL. They
must compute what threads compute, and end when one of them is killed."""
import hashlib
import json
import shutil

from gpu_check import items
from gpu_check.harness import Failed, Skipped, Wrong

JOBS = ((2, 1), (4, 2))  # ranks, and the hosts that they believe to be on
STEPS = 3
MANY_STEPS = 100000
DEADLINE = 10  # seconds that a rank waits for others, if it does not see that one is gone
WITHIN = 15    # seconds in which all ranks end after one was killed
DISAGREE, PEER_LOST = 4, 6  # exit codes (docs/diagnostics.md)
USAGE = 2


def _command(session, schedule, steps, *flags):
    """A run of a schedule. It goes on from nothing that another one left."""
    log = session.path(f"{schedule.parent.name}-steps.log")
    log.unlink(missing_ok=True)
    save = schedule.parent / "checkpoint"
    shutil.rmtree(save, ignore_errors=True)
    command = [session.program("fpdt-run"), "train", schedule, "--data", items.text_file(session),
               "--data-format", "bytes", "--steps", steps, "--learning-rate", "3e-4", "--log", log,
               "--save", save, "--json", "--backend", session.backend, "--device", "0",
               "--deterministic", *flags]
    return command, log, save


def _left(log, save):
    """What a run computed: losses and norms, and the digest of each file of its checkpoint."""
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    return {"bits": [(one["loss"], one["grad_norm"]) for one in steps],
            "checkpoint": {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                           for path in sorted(save.iterdir())}}


def _launch(session, ranks, hosts, command, *flags):
    """The answer of launch.py."""
    done = session.run("python3", session.root / "tools/gpu_check/launch.py", "--ranks", ranks,
                       "--hosts", hosts, "--logs", session.path(f"processes-{ranks}"), "--within",
                       WITHIN, *flags, "--", *command)
    return done.json()


def _said(answer, rank):
    one = answer["ranks"][rank]
    return f"rank {rank} ended with {one['code']}:\n{one['err'] or one['out']}"


def _compare(session, ranks, hosts, schedule, text):
    """Runs the schedule as threads and as processes. Returns their results, and what is wrong."""
    command, log, save = _command(session, schedule, STEPS, "--communicator", "thread")
    session.run(*command)
    threads = _left(log, save)
    command, log, save = _command(session, schedule, STEPS, "--communicator", "nccl")
    answer = _launch(session, ranks, hosts, command)
    codes = [one["code"] for one in answer["ranks"]]
    if USAGE in codes and "NCCL" in _said(answer, codes.index(USAGE)):
        raise Skipped(_said(answer, codes.index(USAGE)))
    if not set(codes) <= {0, DISAGREE}:
        raise Failed("\n".join(_said(answer, rank) for rank in range(ranks)))
    told = json.loads(answer["ranks"][0]["out"])
    processes = {**_left(log, save), "driver": told["memory"]["driver"],
                 "sent_bytes": told["sent_bytes"], "seconds": items.step_seconds(log)}
    grown = processes["driver"]["taken_after_warm_up"]
    where = f"{ranks} processes"
    wrong = [f"{where} {what}" for what, found in (
        ("give other losses than threads", processes["bits"] != threads["bits"]),
        ("save another checkpoint than threads", processes["checkpoint"] != threads["checkpoint"]),
        (f"took {grown} bytes of device memory after the first step", grown != 0),
        (f"do not use memory as planned: {_said(answer, codes.index(max(codes)))}",
         DISAGREE in codes and grown == 0),
        ("count other bytes than the schedule sends",
         told["sent_bytes"]["measured"] != told["sent_bytes"]["predicted"])) if found]
    text.append(f"- {where} on {hosts} host{'s' * (hosts > 1)}, {STEPS} steps of "
                f"{processes['seconds']:.3g} s, beside threads: "
                f"{'**' + '; '.join(wrong) + '**' if wrong else 'the same losses and checkpoint'}")
    return {"threads": threads, "processes": processes}, wrong


def wrong_ends(answer):
    """What is wrong with how the ranks ended of which one was killed, by launch.py's answer."""
    wrong = []
    for rank, one in enumerate(answer["ranks"]):
        if rank == answer["killed"]:
            continue
        if one["code"] is None:
            wrong.append(f"rank {rank} still ran {WITHIN} s after the first had ended")
        elif one["code"] != PEER_LOST:
            wrong.append(f"after a kill {_said(answer, rank)}, not {PEER_LOST}")
        elif not one["err"].rpartition("\n")[2].startswith("fpdt"):
            wrong.append(f"after a kill {_said(answer, rank)}, without a message of fpdt-run")
    return wrong


def _kill(session, ranks, hosts, schedule, result, text):
    """Kills the last rank in the middle of a run. Returns what is wrong with the end of the
    others."""
    command, log, _ = _command(session, schedule, MANY_STEPS, "--communicator", "nccl",
                               "--deadline", DEADLINE)
    answer = _launch(session, ranks, hosts, command, "--kill", ranks - 1, "--steps-log", log)
    result.update(answer)
    if answer["killed"] is None:
        raise Failed(f"no rank was killed: {_said(answer, 0)}")
    wrong = wrong_ends(answer)
    text += [f"- rank {rank} of {ranks} ended {one['seconds']:.1f} s after rank "
             f"{answer['killed']} was killed: {one['err'].rpartition(chr(10))[2]}"
             for rank, one in enumerate(answer["ranks"]) if one["seconds"] and rank < ranks - 1]
    return wrong


def processes(session, result, text):
    """Trains with threads and with processes on one GPU, which must give the same bits, and kills
    one of the processes."""
    if session.rehearse:
        raise Skipped("NCCL connects GPUs, and a rehearsal has none")
    wrong = []
    for ranks, hosts in JOBS:
        schedule = items.lowered(session, f"processes-{ranks}", "llama-tiny", ranks, "own", 2048,
                                 1024, hosts)
        result[str(ranks)], found = _compare(session, ranks, hosts, schedule, text)
        wrong += found
    result["kill"] = {}
    wrong += _kill(session, ranks, hosts, schedule, result["kill"], text)
    if wrong:
        raise Wrong("; ".join(wrong))
