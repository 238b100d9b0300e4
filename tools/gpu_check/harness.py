"""Runs items one after the other, each with a time limit, and keeps what is known on the disk.

Invariant: from its start on an item has DIR/ITEM.json, a whole object with the commands so far,
whatever kills the process. `state` is `running` until the item ends, then `done`, `failed`,
`skipped` or `unfinished`.
"""
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback


class Failed(Exception):
    """The item found something wrong, or a command of it did."""


class Skipped(Exception):
    """The item needs what is not here."""


class OutOfTime(Exception):
    """The time limit of the whole check came first: the next call goes on."""


class Done:
    """A command that has ended."""
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def json(self):
        """The last line of standard output that is a JSON object."""
        for text in reversed(self.out.splitlines()):
            if text.startswith("{"):
                return json.loads(text)
        raise Failed("printed no JSON object")


def write_json(path, value):
    """Whole or not at all."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(beside, path)


class Session:
    """What the items share: where things are, how much time is left, which GPU this is."""
    def __init__(self, arguments, root):
        self.root = root
        self.out = pathlib.Path(arguments.out).resolve()
        self.build = pathlib.Path(arguments.build).resolve()
        self.rehearse = arguments.rehearse
        self.backend = "cpu" if arguments.rehearse else "cuda"
        self.peak_flops = arguments.peak_flops
        self.deadline = time.monotonic() + arguments.time_limit
        self.gpu = "no GPU (rehearsal)" if arguments.rehearse else None
        self.item, self.record, self.limit = None, {}, None
        self.child = None
        self.out.mkdir(parents=True, exist_ok=True)

    def left(self):
        """Seconds of this call."""
        return self.deadline - time.monotonic()

    def item_left(self):
        """Seconds of the item, were the call endless."""
        return self.limit - time.monotonic()

    def program(self, name):
        return self.build / "apps" / name

    def path(self, name):
        return self.out / name

    def load(self, item):
        """The record of an item, {} without one."""
        try:
            return json.loads(self.path(f"{item}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def save(self):
        write_json(self.path(f"{self.item}.json"), self.record)

    def say(self, text):
        print(text, flush=True)

    def run(self, *command, limit=None, codes=(0,)):
        """Runs a command, logs it, returns it; Failed when its exit code is none of `codes`, of
        which None holds all."""
        words = [str(word) for word in command]
        allowed = min(limit or 1e9, self.item_left(), self.left())
        if allowed <= 1:
            if self.left() <= 1:
                raise OutOfTime()
            raise Failed(f"the item's time was up before {words[0]}")
        entry = {"command": " ".join(words), "seconds": None, "exit_code": None}
        self.record["commands"].append(entry)
        self.save()
        done = self._wait(words, allowed)
        entry.update(seconds=round(done.seconds, 3), exit_code=done.code)
        self.save()
        end = f"stopped after {allowed:.0f} s" if done.code is None else f"exit code {done.code}"
        with self.path(f"{self.item}.log").open("a") as file:
            file.write(f"$ {entry['command']}\n{done.out}{done.err}{end}\n\n")
        if done.code is None:
            raise OutOfTime() if self.left() <= 1 else Failed(f"{end}: {entry['command']}")
        if codes is not None and done.code not in codes:
            tail = "\n".join((done.err or done.out).strip().splitlines()[-12:])
            raise Failed(f"{end}: {entry['command']}\n{tail}")
        return done

    def _wait(self, words, allowed):
        """Its exit code is None when the time was up; the whole process group has ended then."""
        begin = time.monotonic()
        try:
            self.child = subprocess.Popen(
                words, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        except OSError as error:
            return Done(127, "", f"{words[0]}: {error.strerror}\n", 0)
        try:
            out, err = self.child.communicate(timeout=allowed)
            code = self.child.returncode
        except subprocess.TimeoutExpired:
            self.stop_child()
            out, err = self.child.communicate()
            code = None
        self.child = None
        return Done(code, out, err, time.monotonic() - begin)

    def stop_child(self):
        """Ends the running command with all that it started."""
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)

    def perform(self, item):
        """Runs an item and returns its state."""
        self.item = item.name
        self.limit = time.monotonic() + item.most
        self.path(f"{item.name}.log").unlink(missing_ok=True)
        self.record = {
            "item": item.name, "state": "running", "reason": "", "rehearsal": self.rehearse,
            "gpu": self.gpu, "versions": self.load("versions").get("result", {}),
            "started": datetime.datetime.now().isoformat(timespec="seconds"), "seconds": None,
            "commands": [], "result": {}, "text": []}
        self.save()
        begin = time.monotonic()
        state, reason = "unfinished", "interrupted"
        try:
            item.function(self, self.record["result"], self.record["text"])
            state, reason = "done", ""
        except OutOfTime:
            reason = "the time limit of this call was up"
        except Skipped as why:
            state, reason = "skipped", str(why)
        except Failed as why:
            state, reason = "failed", str(why)
        except Exception as error:  # a bug of an item must not cost the others their turn
            state = "failed"
            reason = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        finally:
            self.record.update(state=state, reason=reason,
                               seconds=round(time.monotonic() - begin, 1))
            self.save()
        return state


def stop_on_signals(session):
    """A signal ends the running command, and the item's record says so."""
    def stop(number, _):
        session.stop_child()
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
