"""Starts the ranks of a job as processes that share a GPU, as torchrun would, and tells how each
ended. NCCL refuses two ranks of a host on one GPU, so each rank has a host of its own in its eyes.

launch.py --ranks N [--hosts N] --logs PREFIX [--kill RANK --steps-log FILE] [--within S] -- COMMAND

Prints one JSON object: `killed`, the rank or null, and for each rank its exit `code` (null: it had
to be killed), its `seconds` (since the kill, if there was one), the last line of its standard
output, and the end of its standard error. Output goes to PREFIX-RANK.out.log and .err.log.
"""
import argparse
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
PERIOD = 0.02
STEPS = 2  # in the log before a rank is killed
SHOWN_LINES = 12


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--hosts", type=int, default=1, help="that the ranks believe to be on")
    parser.add_argument("--logs", required=True, metavar="PREFIX")
    parser.add_argument("--kill", type=int, metavar="RANK", help="kill it when FILE has two steps")
    parser.add_argument("--steps-log", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--within", type=float, default=15, metavar="S",
                        help="after the first rank has ended by an error, the others have so long")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def free_port():
    """A port of this machine such that the next one is free too: rank 0 listens there."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def environment(arguments, rank, port):
    locals_ = arguments.ranks // arguments.hosts
    known = {name: value for name, value in os.environ.items() if name != "NCCL_COMM_ID"}
    return {**known, "RANK": str(rank), "WORLD_SIZE": str(arguments.ranks),
            "LOCAL_RANK": str(rank % locals_), "LOCAL_WORLD_SIZE": str(locals_),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "NCCL_HOSTID": f"gpu-check-{rank}", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}


def start(arguments):
    def die_with_parent():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    port, children = free_port(), []
    for rank in range(arguments.ranks):
        with open(f"{arguments.logs}-{rank}.out.log", "wb") as out, \
                open(f"{arguments.logs}-{rank}.err.log", "wb") as err:
            children.append(subprocess.Popen(
                arguments.command, env=environment(arguments, rank, port), stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent))
    return children


def has_begun(arguments):
    path = arguments.steps_log
    return path.exists() and path.read_bytes().count(b"\n") >= STEPS


def watch(arguments, children):
    """Waits for all. Returns the rank that was killed, and the seconds of each."""
    begin, killed, seconds, limit = time.monotonic(), None, {}, None
    while len(seconds) < len(children) and (limit is None or time.monotonic() < limit):
        if arguments.kill is not None and killed is None and not seconds and has_begun(arguments):
            killed = arguments.kill
            children[killed].kill()
            begin = time.monotonic()
        for rank, child in enumerate(children):
            if rank not in seconds and child.poll() is not None:
                seconds[rank] = time.monotonic() - begin
                if child.returncode != 0 and limit is None:
                    limit = time.monotonic() + arguments.within
        time.sleep(PERIOD)
    return killed, seconds


def end_of(path, lines):
    return "\n".join(path.read_text(errors="replace").strip().splitlines()[-lines:])


def main():
    arguments = parse()
    children = start(arguments)
    killed, seconds = watch(arguments, children)
    for child in children:
        child.kill()
        child.wait()
    ranks = []
    for rank, child in enumerate(children):
        log = f"{arguments.logs}-{rank}"
        ranks.append({"code": child.returncode if rank in seconds else None,
                      "seconds": seconds.get(rank),
                      "out": end_of(pathlib.Path(f"{log}.out.log"), 1),
                      "err": end_of(pathlib.Path(f"{log}.err.log"), SHOWN_LINES)})
    print(json.dumps({"killed": killed, "ranks": ranks}))


if __name__ == "__main__":
    main()
