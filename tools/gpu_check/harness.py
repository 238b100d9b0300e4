"""Runs items one after another, each with a time limit, and keeps all results on disk.

Invariant: from its start, an item has DIR/ITEM.json, a complete object with its commands so far,
whatever kills the process. `state` is `running` until the item ends, then one of

  done        complete, and everything is right
  wrong       complete with its numbers, but something is wrong
  failed      a command failed; the next call tries again
  unfinished  the call's time was up, or a signal came; the next call tries again
  skipped     something that it needs is missing here
"""
import ctypes
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import traceback

# Seconds between SIGTERM and SIGKILL, in which fpdt-run ends its step and reports.
GRACE = 20
LOGGED_CHARACTERS = 1 << 18  # of each output of a command; the middle is left out
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Failed(Exception):
    """A command failed, so results are missing."""


class Wrong(Exception):
    """No result is missing, but one of them is wrong."""


class Skipped(Exception):
    """Something that the item needs is missing here."""


class OutOfTime(Exception):
    """The time limit of the call was reached."""


class Done:
    """A command that has ended. `stopped`: it was told to end because its time was up. `of_call`:
    the time of the whole call was up."""
    def __init__(self, code, out, err, seconds, stopped=False):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.stopped, self.of_call, self.clocks = stopped, False, None

    def json(self):
        """The last line of standard output that is a JSON object."""
        for text in reversed(self.out.splitlines()):
            if text.startswith("{"):
                try:
                    return json.loads(text)
                except json.JSONDecodeError:  # the line was cut off
                    break
        raise Failed("printed no JSON object")

    def how(self):
        end = f"exit code {self.code}"
        return f"{end}, stopped after {self.seconds:.0f} s" if self.stopped else end

    def failure(self, reason):
        """The error to raise when the command did not do its work."""
        return OutOfTime() if self.of_call else Failed(reason)

    def tail(self):
        return "\n".join((self.err or self.out).strip().splitlines()[-12:])


def write_json(path, value):
    """Writes the whole file or nothing."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(beside, path)


def size_bytes(text):
    """The bytes of a size such as 115GiB; None for any other text."""
    found = re.fullmatch(r"([0-9.]+)([KMGT]iB)", text)
    return int(float(found[1]) * 1024 ** ("KMGT".index(found[2][0]) + 1)) if found else None


def shortened(text):
    if len(text) <= LOGGED_CHARACTERS:
        return text
    half = LOGGED_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def _begin_child():
    """Makes the child a process group, so that it ends with all that it starts. It dies with this
    process."""
    os.setpgrp()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Session:
    """What the items share: paths, the time left, and this GPU."""
    def __init__(self, arguments, root):
        self.root = root
        self.out = pathlib.Path(arguments.out).resolve()
        self.build = pathlib.Path(arguments.build).resolve()
        self.rehearse, self.gpus = arguments.rehearse, arguments.gpus
        self.backend = "cpu" if arguments.rehearse else "cuda"
        self.peak_flops, self.host_memory = arguments.peak_flops, arguments.host_memory
        self.deadline = time.monotonic() + arguments.time_limit
        self.gpu = None  # its name, of several also their number
        # programs.find sets these.
        self.programs, self.test_program, self.library_path = self.build / "apps", None, []
        self.item, self.record, self.limit = None, {}, None
        self.child, self.sampler, self.helps = None, None, {}
        self.out.mkdir(parents=True, exist_ok=True)

    def left(self):
        """Seconds left in this call."""
        return self.deadline - time.monotonic()

    def item_left(self):
        """Seconds left for the item, ignoring the limit of the call."""
        return self.limit - time.monotonic()

    def program(self, name):
        return self.programs / name

    def path(self, name):
        return self.out / name

    def load(self, item):
        """The record of an item, or {}."""
        try:
            return json.loads(self.path(f"{item}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def result(self, item):
        return self.load(item).get("result", {})

    def save(self):
        write_json(self.path(f"{self.item}.json"), self.record)

    def say(self, text):
        print(text, flush=True)

    def takes(self, program, verb, flag):
        """Whether a command of a program knows a flag."""
        if (program, verb) not in self.helps:
            done = self.run(self.program(program), verb, "--help", codes=None, limit=60)
            self.helps[program, verb] = done.out
        return re.search(rf"(^|[\s,]){flag}\b", self.helps[program, verb]) is not None

    def memory_flags(self, verb):
        """The --host-memory flag for fpdt-run, if it was given."""
        if self.host_memory is None or not self.takes("fpdt-run", verb, "--host-memory"):
            return []
        return ["--host-memory", self.host_memory]

    def run(self, *command, limit=None, codes=(0,)):
        """Runs a command, logs it with the clocks of the GPU meanwhile, and returns it. Raises
        Failed or OutOfTime if its exit code is not in `codes`; None allows any."""
        words = [str(word) for word in command]
        allowed = min(limit or 1e9, self.item_left(), self.left())
        if allowed <= 1:
            if self.left() <= 1:
                raise OutOfTime()
            raise Failed(f"the item's time was up before {words[0]}")
        entry = {"command": " ".join(words), "seconds": None, "exit_code": None}
        self.record["commands"].append(entry)
        self.save()
        begin = time.time()
        of_call = self.left() < min(limit or 1e9, self.item_left())
        done = self._wait(words, allowed)
        done.of_call = done.stopped and of_call
        if self.sampler:
            self.sampler.take()
            done.clocks = self.sampler.between(begin, time.time())
        entry.update(seconds=round(done.seconds, 3), exit_code=done.code, stopped=done.stopped,
                     clocks=done.clocks)
        self.save()
        if codes is None or done.code in codes:
            return done
        raise done.failure(f"{done.how()}: {entry['command']}\n{done.tail()}")

    def _environment(self, words):
        """The environment of a command. Only our programs get their libraries: PyTorch has its
        own."""
        ours = str(self.programs), str(self.test_program)
        if not self.library_path or not any(word.startswith(ours) for word in words):
            return None
        known = os.environ.get("LD_LIBRARY_PATH")
        paths = [*map(str, self.library_path), *([known] if known else [])]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}

    def _wait(self, words, allowed):
        """Runs it until it ends or time is up. Output goes to files while it runs, so that it is
        kept whatever happens to this process."""
        outputs = [self.path(f"{self.item}.{name}.log") for name in ("stdout", "stderr")]
        begin = time.monotonic()
        stopped = False
        with outputs[0].open("wb") as out, outputs[1].open("wb") as err:
            try:
                self.child = subprocess.Popen(
                    words, cwd=self.root, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    env=self._environment(words), preexec_fn=_begin_child)
                code = self.child.wait(max(1, allowed - min(GRACE, allowed / 4)))
            except OSError as error:
                code = 127
                err.write(f"{words[0]}: {error.strerror}\n".encode())
            except subprocess.TimeoutExpired:
                stopped = True
                code = self._end_child(begin + allowed)
        self.stop_child()
        self.child = None
        texts = [path.read_text(errors="replace") for path in outputs]
        done = Done(code, *texts, time.monotonic() - begin, stopped)
        with self.path(f"{self.item}.log").open("a") as file:
            file.write(f"$ {' '.join(words)}\n{shortened(texts[0])}{shortened(texts[1])}"
                       f"{done.how()}\n\n")
        for path in outputs:
            path.unlink()
        return done

    def _end_child(self, deadline):
        self.child.terminate()
        try:
            return self.child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.stop_child()
            return self.child.wait()

    def stop_child(self):
        """Ends the running command with all that it started."""
        try:
            if self.child is not None:
                os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def perform(self, item):
        """Runs an item and returns its state."""
        self.item = item.name
        self.limit = time.monotonic() + item.most
        earlier = self.load(item.name)
        self.path(f"{item.name}.log").unlink(missing_ok=True)
        self.record = {
            "item": item.name, "state": "running", "reason": "", "rehearsal": self.rehearse,
            "gpu": self.gpu, "napkin_seconds": item.napkin,
            "attempts": earlier.get("attempts", 0) + 1, "versions": self.result("versions"),
            "started": datetime.datetime.now().isoformat(timespec="seconds"), "seconds": None,
            "commands": [], "result": {}, "text": []}
        self.save()
        begin = time.monotonic()
        state, reason = "unfinished", "interrupted by a signal"
        try:
            item.function(self, self.record["result"], self.record["text"])
            state, reason = "done", ""
        except OutOfTime:
            reason = "the time limit of this call was up"
        except (Skipped, Wrong, Failed) as why:
            state, reason = type(why).__name__.lower(), str(why)
        except Exception as error:  # an item's bug must not cost the others their turn
            state = "failed"
            reason = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        finally:
            self.record.update(state=state, reason=reason,
                               seconds=round(time.monotonic() - begin, 1))
            self.save()
        return state


def stop_on_signals(session):
    """On a signal, ends the running command and records that."""
    def stop(number, _):
        session.stop_child()
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
