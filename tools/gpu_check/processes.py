"""The item `processes`: ranks in processes of their own, which share a GPU or have one each. They
must compute what threads compute, and end when one of them is killed."""
import hashlib
import json
import shutil

from gpu_check import items
from gpu_check.harness import Failed, Skipped, Wrong
from gpu_check.jobs import PEER_LOST, WITHIN, launch, lost_code, said

# Gathers and sums of ZeRO in the node, then over nodes.
BY_NODE = "zero: 3\nzero_groups: hierarchical\n"
STEPS = 3
MANY_STEPS = 100000
DEADLINE = 10  # seconds that a rank waits for others, if it does not see that one is gone
USAGE, DISAGREE = 2, 4  # exit codes (docs/diagnostics.md)


def _command(session, schedule, steps, *flags):
    """A run of a schedule. It goes on from nothing that another one left."""
    log = session.path(f"{schedule.parent.name}-steps.log")
    log.unlink(missing_ok=True)
    device = ["--device", "0"] if session.gpus == 1 else []
    bits = [] if session.rehearse else ["--deterministic"]
    save = schedule.parent / "checkpoint"
    shutil.rmtree(save, ignore_errors=True)
    command = [session.program("fpdt-run"), "train", schedule, "--data", items.text_file(session),
               "--data-format", "bytes", "--steps", steps, "--learning-rate", "3e-4", "--log", log,
               "--save", save, "--json", "--backend", session.backend, *device, *bits, *flags]
    return command, log, save


def _left(log, save):
    """What a run computed: losses and norms, and the digest of each file of its checkpoint."""
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    return {"bits": [(one["loss"], one["grad_norm"]) for one in steps],
            "checkpoint": {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                           for path in sorted(save.iterdir())}}


def cases(gpus):
    """Ranks, the hosts that they believe to be on, and whether ZeRO goes by node. On one GPU, ranks
    share it."""
    if gpus == 1:
        return [(2, 1, False), (4, 2, False), (4, 2, True)]
    return [(gpus, 1, False), *([(gpus, 2, True)] if gpus > 2 else [])]


def _compare(session, ranks, hosts, by_node, schedule, text):
    """Runs the schedule as threads and as processes. Returns their results, and what is wrong."""
    command, log, save = _command(session, schedule, STEPS, "--communicator", "thread")
    session.run(*command)
    threads = _left(log, save)
    command, log, save = _command(session, schedule, STEPS)
    answer, _ = launch(session, ranks, command, "--hosts", hosts)
    codes = [one["code"] for one in answer["ranks"]]
    if USAGE in codes and "NCCL" in said(answer, codes.index(USAGE)):
        raise Skipped(said(answer, codes.index(USAGE)))
    if not set(codes) <= {0, DISAGREE}:
        raise Failed("\n".join(said(answer, rank) for rank in range(ranks)))
    told = json.loads(answer["ranks"][0]["out"])
    processes = {**_left(log, save), "driver": told["memory"]["driver"],
                 "sent_bytes": told["sent_bytes"], "seconds": items.step_seconds(log)}
    # MPI knows that a rehearsal has one host.
    sent = [sum(links.values()) if session.rehearse else links
            for links in processes["sent_bytes"].values()]
    grown = processes["driver"]["taken_after_warm_up"] if processes["driver"] else 0
    where = f"{ranks} processes{' with ZeRO by node' if by_node else ''}"
    wrong = [f"{where} {what}" for what, found in (
        ("give other losses than threads", processes["bits"] != threads["bits"]),
        ("save another checkpoint than threads", processes["checkpoint"] != threads["checkpoint"]),
        (f"took {grown} bytes of device memory after the first step", grown != 0),
        (f"do not use memory as planned: {said(answer, codes.index(max(codes)))}",
         DISAGREE in codes and grown == 0),
        ("count other bytes than the schedule sends",
         sent[0] != sent[1])) if found]
    text.append(f"- {where} on {hosts} host{'s' * (hosts > 1)}, {STEPS} steps of "
                f"{processes['seconds']:.3g} s, beside threads: "
                f"{'**' + '; '.join(wrong) + '**' if wrong else 'the same losses and checkpoint'}")
    return {"threads": threads, "processes": processes}, wrong


def wrong_ends(answer, expected=PEER_LOST, within=WITHIN):
    """What is wrong with how the ranks ended of which one was killed, by launch.py's answer. The
    others must end within so many seconds with the code `expected`, and say why unless their
    launcher ended them."""
    wrong = []
    for rank, one in enumerate(answer["ranks"]):
        if rank == answer["killed"]:
            continue
        if one["code"] is None:
            wrong.append(f"rank {rank} still ran {within} s after the first had ended")
        elif one["code"] != expected:
            wrong.append(f"after a kill {said(answer, rank)}, not {expected}")
        elif expected == PEER_LOST and not one["err"].rpartition("\n")[2].startswith("fpdt"):
            wrong.append(f"after a kill {said(answer, rank)}, without a message of fpdt-run")
    return wrong


def kill(session, ranks, command, log, result, text, *flags, within=WITHIN):
    """Kills the last rank in the middle of a run. Returns what is wrong with the end of the
    others."""
    answer, _ = launch(session, ranks, command, *flags, "--kill", ranks - 1, "--steps-log", log,
                       within=within)
    result.update(answer)
    if answer["killed"] is None:
        raise Failed(f"no rank was killed: {said(answer, 0)}")

    def why(one):
        return "by mpirun" if session.rehearse else one["err"].rpartition("\n")[2]

    text += [f"- rank {rank} of {ranks} ended {one['seconds']:.1f} s after rank "
             f"{answer['killed']} was killed: {why(one)}"
             for rank, one in enumerate(answer["ranks"]) if one["seconds"] and rank < ranks - 1]
    return wrong_ends(answer, lost_code(session), within)


def torchrun(session, result, text):
    """Two ranks with a GPU each take one step, under torchrun if it is installed: in seconds it
    tells whether the rest can run at all."""
    schedule = items.lowered(session, "torchrun", "llama-tiny", 2, "own", 512, 256)
    command, log, _ = _command(session, schedule, 1)
    if session.rehearse or shutil.which("torchrun") is None:
        answer, _ = launch(session, 2, command)
        codes = [one["code"] for one in answer["ranks"]]
        if not set(codes) <= {0, DISAGREE}:
            raise Failed("\n".join(said(answer, rank) for rank in range(2)))
        how = "with its variables, since torchrun was not found"
    else:
        debug = session.path(f"{session.item}-%h-%p.nccl.log")
        session.run("env", "NCCL_DEBUG=INFO", f"NCCL_DEBUG_FILE={debug}", "torchrun", "--no_python",
                    "--nproc_per_node", 2, *command, "--communicator", "nccl", codes=(0, DISAGREE))
        how = "by torchrun"
    result["loss"] = json.loads(log.read_text().splitlines()[0])["loss"]
    text.append(f"- two ranks, started {how}, took a step: loss {result['loss']:.4f}")


def processes(session, result, text):
    """Trains with threads and with processes on the same GPUs, which must give the same bits.
    On one GPU, kills one of the processes."""
    if session.rehearse and session.gpus == 1:
        raise Skipped("NCCL connects GPUs, and a rehearsal has none")
    wrong = []
    for ranks, hosts, by_node in cases(session.gpus):
        tokens = 256 * ranks if session.rehearse else 2048
        name = f"{ranks}-by-node" if by_node else str(ranks)
        schedule = items.lowered(session, f"processes-{name}", "llama-tiny", ranks, "own", tokens,
                                 tokens // 2, hosts, BY_NODE if by_node else "")
        result[name], found = _compare(session, ranks, hosts, by_node, schedule, text)
        wrong += found
    if session.gpus == 1:  # the item node-kill does it on several
        result["kill"] = {}
        command, log, _ = _command(session, schedule, MANY_STEPS, "--deadline", DEADLINE)
        wrong += kill(session, ranks, command, log, result["kill"], text, "--hosts", hosts)
    if wrong:
        raise Wrong("; ".join(wrong))
