"""The whole of tools/gpu-check in rehearsal: on a CPU with tiny sizes, and what remains of it when
something breaks. PyTorch has its own test.

gpu_rehearsal_test.py SOURCE_DIR BUILD_DIR [unittest's arguments]
"""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tools"))
HEADLINE = ("versions", "curves", "tests", "bench", "ceiling", "solo-1m")
THEN = ("processes", "memory", "deterministic", "kernels")


def the_script():
    """Loads tools/gpu-check as a module."""
    loader = importlib.machinery.SourceFileLoader("the_script", str(SOURCE / "tools/gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("the_script", loader))
    loader.exec_module(module)
    return module


class Order(unittest.TestCase):
    """The table in docs/gpu.md equals the script's, and its sums are right."""

    def test_minutes(self):
        items, node = the_script().ITEMS, the_script().of_node(8)
        page = (SOURCE / "docs/gpu.md").read_text()
        rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) \|", page, re.M)
        self.assertEqual(rows, [(item.name, str(item.napkin)) for item in items + node])
        headline = [item for item in items if item.name in HEADLINE]
        first = HEADLINE + THEN
        self.assertEqual(tuple(item.name for item in items[:len(first)]), first)
        self.assertEqual(node[0].name, "torchrun")
        for asked, sum_of in (("the headline is there after", headline), ("All items take", items),
                              ("the items of a node take", node)):
            seconds = sum(item.napkin for item in sum_of)
            self.assertRegex(page, rf"{asked} {seconds} s")
        self.assertLess(sum(item.napkin for item in headline), 540)
        self.assertLess(sum(item.napkin for item in items), 4 * 540)
        slowest = the_script().of_node(2)
        self.assertIn(f"Two GPUs take {sum(item.napkin for item in slowest)} s", page)
        self.assertLess(sum(item.napkin for item in node), 540)
        self.assertLess(sum(item.napkin for item in slowest), 2 * 540)
        for item in items + node + slowest:
            self.assertLess(item.napkin, item.most)
            self.assertLess(item.most, 540)


class Rehearsal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        (self.folder / "absent").mkdir()
        (self.folder / "absent/torch.py").write_text("raise ImportError('left out')\n")

    def command(self, *flags):
        return [SOURCE / "tools/gpu-check", "--rehearse", "--build", BUILD, "--out", self.out,
                "--time-limit", "3600", *flags]

    def environment(self):
        return {**os.environ, "PYTHONPATH": str(self.folder / "absent")}

    def check(self, *flags):
        return subprocess.run(self.command(*flags), capture_output=True, text=True,
                              env=self.environment())

    def record(self, item):
        return json.loads((self.out / f"{item}.json").read_text())

    def from_archive(self):
        """{name: content} of the archive; each record in it is whole."""
        with tarfile.open(self.out / "results.tar.gz") as archive:
            found = {one.name: archive.extractfile(one).read().decode() for one in archive}
        for name, content in found.items():
            if name.endswith(".json"):
                json.loads(content)
        self.assertIn("| item | state |", found["summary.md"])
        return found

    def programs(self, **scripts):
        """A folder of programs, some replaced by shell scripts, in which $real is the true
        program."""
        folder = self.folder / f"programs-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        for name in ("fpdt-plan", "fpdt-run"):
            real, path = BUILD / "apps" / name, folder / name
            script = scripts.get(name.replace("-", "_"), "")
            path.write_text(f"#!/bin/sh\nreal={real}\n{script}\nexec $real \"$@\"\n")
            path.chmod(0o755)
        return ["--programs", folder]

    def test_all(self):
        copy = self.folder / "copy.tar.gz"
        first = self.check("--items", "versions,bench", "--archive", copy)
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        bench = (self.out / "bench.json").read_text()
        # Continues as on another machine, from the archive alone.
        self.out = self.folder / "elsewhere"
        self.out.mkdir()
        copy.rename(self.out / "results.tar.gz")
        second = self.check()
        self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
        self.assertIn("continuing from", second.stdout)
        self.assertEqual((self.out / "bench.json").read_text(), bench,
                         "a finished item was repeated")
        begun = re.findall(r"^(\S+) \.\.\.$", second.stdout, re.M)
        names = [item.name for item in the_script().ITEMS]
        self.assertEqual(begun, ["programs", *(n for n in names if n not in ("versions", "bench"))])
        self.check_numbers(names)
        third = self.check()
        self.assertEqual(third.returncode, 0)
        self.assertNotIn(" ...", third.stdout)

    def check_numbers(self, names):
        whole = self.record("solo-1m")["result"]["whole"]
        for key in ("mfu_causal", "mfu_full", "hfu", "share_of_ceiling", "layer_seconds"):
            self.assertGreater(whole[key], 0)
        self.assertIn("with 1 of them", whole["how"])
        for one in self.record("solo-1m-2")["result"]["classes"]:
            self.assertEqual(list(one["measured"]), ["1", "2"])
        curves = self.record("curves")["result"]
        self.assertEqual({one["largest_relative_difference"] for one in curves.values()}, {0.0})
        two = self.record("two-gpus")["result"]
        self.assertEqual(two["one"]["bits"], two["two"]["bits"])
        self.assertEqual(two["largest_relative_difference"], 0.0)
        states = {name: self.record(name)["state"] for name in names}
        self.assertEqual({name for name, state in states.items() if state != "done"},
                         {"tests", "ceiling", "kernels", "processes", "pytorch-128k",
                          "pytorch-512k", "sanitizer"})
        clocks = self.record("solo-1m")["commands"][-1]["clocks"]
        self.assertEqual(clocks["sm_mhz"], [1000, 1000, 1000])
        found = self.from_archive()
        self.assertLessEqual({f"{name}.json" for name in names} | {
            "machine.yaml", "clocks.log", "solo-1m.log", "solo-1m-class1-steps.log"}, set(found))
        page = found["summary.md"]
        self.assertIn("Rehearsal without a GPU", page)
        self.assertIn("**1M tokens: mfu_causal", page)
        for name in names:
            self.assertIn(f"## {name}", page)

    def test_failing_verdict_hides_no_number(self):
        flags = self.programs(fpdt_run='[ $1 = train ] && { $real "$@"; exit 4; }')
        done = self.check("--items", "versions,solo-1m,memory", *flags)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        solo = self.record("solo-1m")
        self.assertEqual(solo["state"], "wrong")
        self.assertGreater(solo["result"]["whole"]["mfu_causal"], 0)
        self.assertGreater(self.record("memory")["result"]["memory"]["device"]["touched"], 0)
        page = self.from_archive()["summary.md"]
        self.assertIn("**1M tokens: mfu_causal", page)
        self.assertIn("measured and predicted bytes disagree", page)
        again = self.check("--items", "curves")
        self.assertEqual(again.returncode, 1)
        self.assertEqual(self.record("solo-1m"), solo)

    def test_a_class_that_does_not_fit_is_not_replaced(self):
        """The headline is the plan of the whole model or nothing."""
        flags = self.programs(fpdt_plan='case "$*" in *1-class1.yaml*) echo 9 GiB short; exit 3;; '
                              'esac')
        done = self.check("--items", "solo-1m", *flags)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        record = self.record("solo-1m")
        self.assertEqual(record["state"], "failed")
        self.assertIn("does not fit this machine with the whole model's strategy:\n9 GiB short",
                      record["reason"])
        self.assertEqual(sum(" search " in one["command"] for one in record["commands"]), 1)

    def test_bench_that_is_cut_off(self):
        """A bench that is cut off leaves a part of machine.yaml; the next call measures it
        whole."""
        cut = self.programs(fpdt_run='[ "$1" = bench ] && [ "$2" != --help ] && {\n'
                            f'  cp {SOURCE}/configs/clusters/cpu-local.yaml "$5"\n'
                            '  echo "matmul 3 TFLOP/s"; exec sleep 1000; }')
        done = self.check("--items", "versions,bench,memory", "--time-limit", "20", *cut)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("the same command continues", done.stdout)
        bench = self.record("bench")
        self.assertEqual(bench["state"], "unfinished")
        self.assertFalse((self.out / "memory.json").exists())
        self.assertRegex("\n".join(bench["text"]), "it left in machine.yaml: chosen for examples")
        found = self.from_archive()
        self.assertIn("peak_flops", found["machine.yaml"])
        self.assertIn("matmul 3 TFLOP/s", found["bench.log"])
        again = self.check("--items", "bench")
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertIn("measured by fpdt-run bench", self.from_archive()["machine.yaml"])

    def test_killed_in_the_middle(self):
        """SIGKILL of the script leaves no program running, and leaves an archive and a page of the
        items that were done. The next call repeats the interrupted item."""
        pid = self.folder / "pid"
        slow = self.programs(fpdt_run=f'[ "$1" = train ] && {{ echo $$ >{pid}; echo begun\n'
                             '  exec sleep 1000; }')
        flags = ("--items", "versions,memory,deterministic")
        with subprocess.Popen(self.command(*flags, *slow), stdout=subprocess.DEVNULL,
                              env=self.environment()) as script:
            printed = self.out / "memory.stdout.log"
            self.wait_for(lambda: printed.exists() and printed.read_text() == "begun\n")
            script.send_signal(signal.SIGKILL)
        self.wait_for(lambda: not self.runs(int(pid.read_text())))
        self.assertEqual(self.record("memory")["state"], "running")
        self.assertEqual((self.out / "memory.stdout.log").read_text(), "begun\n")
        self.assertIn("| versions | done |", self.from_archive()["summary.md"])
        done = self.check(*flags)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.record("memory")["attempts"], 2)
        self.assertNotIn("memory.stdout.log", self.from_archive())

    def test_terminated_in_the_middle(self):
        """SIGTERM from an outside limit: the archive has the item as far as it got."""
        pid = self.folder / "pid"
        slow = self.programs(fpdt_run=f'[ "$1" = train ] && {{ echo $$ >{pid}; exec sleep 1000; }}')
        with subprocess.Popen(self.command("--items", "memory", *slow), stdout=subprocess.DEVNULL,
                              env=self.environment()) as script:
            self.wait_for(lambda: pid.exists() and pid.read_text().strip())
            script.send_signal(signal.SIGTERM)
        self.assertEqual(script.returncode, 143)
        self.wait_for(lambda: not self.runs(int(pid.read_text())))
        self.assertEqual(json.loads(self.from_archive()["memory.json"])["state"], "unfinished")

    @staticmethod
    def runs(pid):
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]
        return False

    def wait_for(self, condition):
        deadline = time.monotonic() + 600
        while not condition():
            self.assertLess(time.monotonic(), deadline, "nothing happened")
            time.sleep(0.05)

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_node(self):
        """All items of a node, with two processes over MPI. Processes that send more than the
        schedule says, and a run that says that memory is not as predicted, are reported as
        wrong. Only the first rank says it: mpirun ends the others when one fails."""
        lie = ('[ $1 = train ] && case "$*" in *node-128k*) $real "$@" || exit; '
               '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0; '
               'echo "fpdt-run: memory disagrees: rank 1: 1 B" >&2; exit 4;; '
               '*node-2m*) $real "$@" >out.$$ || exit; '
               'sed \'s/"measured":{"network":0,"node":/&1/;'
               's/"measured":{"node":/&1/\' out.$$; rm out.$$; exit;; esac')
        done = self.check("--gpus", "2", *self.programs(fpdt_run=lie))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        names = [item.name for item in the_script().of_node(2)]
        records = {name: self.record(name) for name in names}
        self.assertEqual({name: one["state"] for name, one in records.items()
                          if one["state"] != "done"}, {"node-128k": "wrong", "node-2m": "wrong"})
        self.assertIn("rank 1: 1 B", records["node-128k"]["reason"])
        self.assertIn("count other bytes", records["node-2m"]["reason"])
        self.check_node({name: one["result"] for name, one in records.items()})
        page = self.from_archive()["summary.md"]
        for words in ("512 tokens, 2 ranks", "as predicted", "**not as predicted**",
                      "the same losses and checkpoint", "| all_to_all | 256 KiB |",
                      "processes connected by MPI", "| comm.0 |"):
            self.assertIn(words, page)
        again = self.check("--gpus", "2", "--items", "node-2m")
        self.assertEqual(self.record("node-2m")["state"], "done", again.stdout)

    def check_node(self, found):
        machine = (self.out / "machine.yaml").read_text()
        self.assertIn("devices_per_node: 2", machine)
        self.assertIn("2 ranks in processes over mpi", machine)
        self.assertGreater(found["node-bench"]["rates"]["link"], 0)
        self.assertGreater(found["torchrun"]["loss"], 0)
        tensor = found["tensor-gpus"]
        self.assertEqual(tensor["one"]["bits"], tensor["two"]["bits"])
        kill = found["node-kill"]
        self.assertEqual((kill["killed"], [one["code"] for one in kill["ranks"]]), (1, [137, 137]))
        for name, layers in (("node-1m", 2), ("node-128k", 2), ("node-2m", 1)):
            one = found[name]
            self.assertEqual((one["ranks"], one["layers"]), (2, layers))
            self.assertGreater(one["mfu_causal"], 0)
            self.assertGreater(one["measured"]["sent_bytes"]["measured"]["node"], 0)
            plan = (self.out / f"{name}-strategy.yaml").read_text()
            self.assertIn("replicas: 1\n", plan)
            self.assertIn("overlap_all_to_all: true", plan)

    def test_host_memory(self):
        """--host-memory goes into the budget, and to fpdt-run if that has the flag."""
        helps = 'for flag; do [ $flag = --help ] && { echo "  --host-memory T"; exit 0; }; done\n'
        taken = self.folder / "taken"
        drop = f'case "$*" in *--host-memory*) echo "$*" >>{taken}; ' \
               'set -- $(echo "$*" | sed "s/--host-memory [^ ]*//");; esac'
        flags = self.programs(fpdt_run=helps + drop)
        done = self.check("--items", "solo-1m", "--host-memory", "115GiB", *flags)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("--host-memory 115GiB", taken.read_text())
        log = self.record("solo-1m")["commands"]
        self.assertTrue(any(f"--host-budget {4 * 107 * 1024}MiB" in one["command"] for one in log))

    def test_wrong_usage(self):
        done = self.check("--items", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no item begins with 'nothing'", done.stderr)
        done = self.check("--host-memory", "many")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a size such as 115GiB", done.stderr)
        (self.out / "bench.json").write_text('{"gpu": "another", "state": "done"}')
        done = self.check()
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds results of another", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
