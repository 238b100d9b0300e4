"""The parts of tools/gpu-check: its arithmetic, its harness, and its readers of other programs'
output, with scripts in place of those programs. gpu_rehearsal_test.py tests the whole script.

gpu_check_test.py SOURCE_DIR BUILD_DIR [unittest's arguments]
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tools"))

from gpu_check import (archive, cluster, gtests, harness, items, jobs, model, ncu,  # noqa: E402
                       node, processes, sampler, solo)


def session_in(folder, **changes):
    arguments = {
        "out": folder, "build": BUILD, "rehearse": True, "peak_flops": 1e12, "time_limit": 100,
        "host_memory": None, "gpus": 1, **changes
    }
    return harness.Session(types.SimpleNamespace(**arguments), SOURCE)


def item(function, most=60):
    return types.SimpleNamespace(name="item", function=function, napkin=0, most=most)


class Arithmetic(unittest.TestCase):
    """Flops and parameters equal fpdt-plan's, and linear quantities are scaled exactly."""

    def plan(self, verb, *flags):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([BUILD / "apps/fpdt-plan", verb, "--json", "--out-dir", folder,
                                   *flags], capture_output=True, text=True)

    def test_parameters_of_few_layers(self):
        for name in ("llama3-8b", "gpt-tiny", "gpt-2.7b", "qwen3-8b", "gpt-neox-20b"):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(model.Model.load(SOURCE / f"models/{name}.yaml").with_layers(2).text)
                file.flush()
                done = self.plan("lower", "--model", file.name, "--cluster",
                                 SOURCE / "configs/clusters/cpu-local.yaml", "--seq-len", "1K")
                # The file was read, whether the model fits or not.
                self.assertIn(done.returncode, (0, 3), f"{name}: {done.stderr}")

    def test_flops(self):
        path = SOURCE / "models/llama3-8b.yaml"
        done = self.plan("search", "--model", path, "--cluster",
                         SOURCE / "configs/clusters/h100-80g-x8.yaml", "--gpus", "4", "--seq-len",
                         "64K")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        seconds = answer["prediction"]["step_seconds"] / answer["strategy"]["data_parallel"]
        shares = model.utilisation(model.Model.load(path), 65536, 4, seconds, 989e12)
        self.assertAlmostEqual(shares["mfu_causal"], answer["prediction"]["mfu_causal"], places=12)
        self.assertAlmostEqual(shares["mfu_full"], answer["prediction"]["mfu_full"], places=12)

    def test_whole_seconds(self):
        seconds = {n: 5 + 3 * n for n in (1, 2, 4)}
        slower = {n: 1.5 * seconds[n] for n in (1, 2)}
        found, layer, _ = model.whole_seconds(32, seconds, slower)
        self.assertAlmostEqual(found, 1.5 * (5 + 3 * 32))
        self.assertAlmostEqual(layer, 4.5)
        found, layer, how = model.whole_seconds(32, seconds, {1: slower[1]})
        self.assertAlmostEqual(found, 1.5 * (5 + 3 * 32))
        self.assertAlmostEqual(layer, 4.5)
        self.assertIn("prediction", how)
        found, layer, how = model.whole_seconds(32, seconds, {1: 15, 2: 11})
        self.assertAlmostEqual(found, 5 + 3 * 32)
        self.assertIn("prediction", how)

    def test_hfu(self):
        llama = model.Model.load(SOURCE / "models/llama3-8b.yaml")
        shares = model.utilisation(llama, 1024, 4, 2.0, 1e12, executed=4e12)
        self.assertAlmostEqual(shares["hfu"], 0.5)


class Clusters(unittest.TestCase):
    """fpdt-plan accepts the clusters derived from a measured one, and they have the right
    values."""
    def test_of_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            session = session_in(folder, rehearse=False)
            (session.out / "machine.yaml").write_text(
                (SOURCE / "configs/clusters/h200-141g-x1.yaml").read_text())
            for solo in (False, True):
                path = cluster.of_ranks(session, 4, solo)
                text = path.read_text()
                self.assertIn("devices_per_node: 4", text)
                self.assertIn("host_memory: 524288MiB", text)
                self.assertIn("link: 1.605e+12" if solo else "link: {typical: 360e9", text)
                done = subprocess.run([BUILD / "apps/fpdt-plan", "search", "--model",
                                       SOURCE / "models/llama3-8b.yaml", "--cluster", path,
                                       "--seq-len", "64K"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_source(self):
        """As fpdt-run bench writes it when it was cut off, and as people write it."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "machine.yaml"
            self.assertEqual(cluster.source(path), "nothing")
            path.write_text('name: a\nsource: "b \\"c\\"; unfinished: it measured only d"\n')
            self.assertEqual(cluster.source(path), 'b "c"; unfinished: it measured only d')
            path.write_text("source: b\n")
            self.assertEqual(cluster.source(path), "b")


class Harness(unittest.TestCase):
    """An item always leaves a record, whatever happens to it."""
    def perform(self, function, most=60, **changes):
        with tempfile.TemporaryDirectory() as folder:
            session = session_in(folder, **changes)
            state = session.perform(item(function, most))
            record = json.loads((session.out / "item.json").read_text())
            self.assertEqual(record["state"], state)
            return record

    def test_done(self):
        def work(session, result, text):
            result["answer"] = session.run("echo", '{"a": 1}').json()["a"]

        record = self.perform(work)
        self.assertEqual((record["state"], record["result"]), ("done", {"answer": 1}))
        self.assertEqual(record["commands"][0]["exit_code"], 0)

    def test_failed_command(self):
        def work(session, result, text):
            result["before"] = True
            session.run("sh", "-c", "echo why >&2; exit 7")

        record = self.perform(work)
        self.assertEqual((record["state"], record["result"]), ("failed", {"before": True}))
        self.assertIn("exit code 7", record["reason"])
        self.assertIn("why", record["reason"])

    def test_bug_of_an_item(self):
        record = self.perform(lambda session, result, text: {}["none"])
        self.assertEqual(record["state"], "failed")
        self.assertIn("KeyError", record["reason"])

    def test_time_of_the_item(self):
        begin = time.monotonic()
        record = self.perform(
            lambda session, result, text: session.run("sh", "-c", "echo begun; sleep 60"), most=2)
        self.assertEqual(record["state"], "failed")
        self.assertTrue(record["commands"][0]["stopped"])
        self.assertLess(time.monotonic() - begin, 20)

    def test_wrong_keeps_its_numbers(self):
        def work(session, result, text):
            result["seconds"] = 3
            raise harness.Wrong("too many bytes")

        record = self.perform(work)
        self.assertEqual((record["state"], record["reason"]), ("wrong", "too many bytes"))
        self.assertEqual(record["result"], {"seconds": 3})

    def test_stopped_command_reports(self):
        def work(session, result, text):
            script = "trap 'echo {\\\"steps\\\": 2}; exit 143' TERM; sleep 60 & wait"
            result.update(session.run("sh", "-c", script, codes=(0, 143)).json())

        record = self.perform(work, most=4)
        self.assertEqual((record["state"], record["result"]), ("done", {"steps": 2}))
        self.assertTrue(record["commands"][0]["stopped"])

    def test_attempts_are_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in (1, 2):
                session = session_in(folder)
                session.perform(item(lambda session, result, text: None))
                self.assertEqual(session.load("item")["attempts"], number)

    def test_time_of_the_call(self):
        record = self.perform(lambda session, result, text: session.run("sleep", "60"),
                              time_limit=2)
        self.assertEqual(record["state"], "unfinished")


class Gpu(unittest.TestCase):
    """Items that need a GPU, with scripts in place of its programs. The scripts are in a folder at
    the beginning of PATH."""

    def play(self, function, **scripts):
        """Runs an item with shell scripts, given by program name, and returns its record."""
        with tempfile.TemporaryDirectory() as folder:
            for name, script in scripts.items():
                path = pathlib.Path(folder) / name.replace("_", "-")
                path.write_text("#!/bin/sh\n" + script)
                path.chmod(0o755)
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
                session = session_in(pathlib.Path(folder) / "out", rehearse=False)
                session.backend = "cpu"
                session.test_program = pathlib.Path(folder) / "tests"
                session.perform(item(function))
                return session.load("item")

    LIST = ("case $1 in --gtest_list_tests)\n"
            "printf 'a.\\n  good\\n  other  # GetParam() = 1\\n'; exit;; esac\n")
    GOOD = "echo '[ RUN      ] a.good'; echo '[       OK ] a.good (12 ms)'\n"

    def test_all_pass(self):
        other = "echo '[ RUN      ] a.other'; echo '[       OK ] a.other (7 ms)'\n"
        record = self.play(gtests.tests, tests=self.LIST + self.GOOD + other)
        self.assertEqual(record["state"], "done", record["reason"])
        self.assertEqual(record["result"]["milliseconds"], {"a.good": 12, "a.other": 7})
        self.assertEqual(len(record["commands"]), 2, "one process for the list, one for all tests")

    def test_experiments_are_on_the_page(self):
        said = gtests.experiments("[ RUN      ] a.good\nnoise\n[       OK ] a.good (1 ms)\n"
                                  "[ RUN      ] DqExperiment.Zero\ndq is added to\n"
                                  "[       OK ] DqExperiment.Zero (9 ms)\n[----------] 1 test\n")
        self.assertEqual(said, [("DqExperiment.Zero", "dq is added to")])
        other = ("echo '[ RUN      ] a.other'; echo '[       OK ] a.other (7 ms)'\n"
                 "echo '[ RUN      ] BExperiment.x'; echo two\n"
                 "echo '[       OK ] BExperiment.x (1 ms)'\n")
        record = self.play(gtests.tests, tests=self.LIST + self.GOOD + other)
        self.assertIn("- `BExperiment.x` found: two", record["text"])

    def test_one_fails(self):
        other = ("echo '[ RUN      ] a.other'\n"
                 "case $1 in *=a.other) echo '[       OK ] a.other (7 ms)'; exit 0;; esac\n"
                 "echo '[  FAILED  ] a.other, where GetParam() = 1 (7 ms)'; exit 1\n")
        record = self.play(gtests.tests, tests=self.LIST + self.GOOD + other)
        self.assertEqual((record["state"], record["result"]["failed"]), ("wrong", ["a.other"]))
        self.assertEqual(record["result"]["alone"], {"a.other": True})

    def test_one_ends_the_process(self):
        first = ("case $1 in *=a.good) " + self.GOOD.strip() + "; exit 0;; esac\n"
                 "echo '[ RUN      ] a.other'; kill -SEGV $$\n")
        record = self.play(gtests.tests, tests=self.LIST + first)
        self.assertEqual((record["state"], record["result"]["passed"]), ("wrong", 1))
        self.assertEqual(record["result"]["failed"], ["a.other"])
        self.assertIn("ended the process: `a.other`", "".join(record["text"]))

    def test_one_is_left_out(self):
        other = "echo '[ RUN      ] a.other'; echo '[  SKIPPED ] a.other (0 ms)'\n"
        record = self.play(gtests.tests, tests=self.LIST + self.GOOD + other)
        self.assertEqual((record["state"], record["result"]["left_out"]), ("wrong", ["a.other"]))

    def test_nothing_begins(self):
        record = self.play(gtests.tests, tests=self.LIST + "echo no GPU >&2; exit 3")
        self.assertEqual((record["state"], record["result"]["passed"]), ("failed", 0))

    def test_sanitizer(self):
        clean = ("echo '[       OK ] a.good (9 ms)'; echo '== ERROR SUMMARY: 0 errors'\n"
                 "echo '== RACECHECK SUMMARY: 0 hazards displayed'")
        record = self.play(gtests.sanitizer, compute_sanitizer=clean, tests="")
        self.assertEqual(record["state"], "done", record["reason"])
        self.assertIn("--gtest_filter=AttentionTiles.*", record["commands"][-1]["command"])
        record = self.play(gtests.sanitizer, tests="",
                           compute_sanitizer="echo 'ERROR SUMMARY: 3 errors'; exit 9")
        self.assertEqual(record["state"], "wrong")
        self.assertEqual(record["result"]["memcheck AttentionTiles"]["errors"], 3)
        record = self.play(gtests.sanitizer, tests="",
                           compute_sanitizer="echo 'ERROR SUMMARY: 0 errors'")
        self.assertEqual(record["state"], "wrong", "nothing ran")

    # Output of ncu with --page raw --csv: a header, units, then one wide row per launch.
    NCU = """while [ $# -gt 0 ]; do
  case $1 in --log-file) log=$2;; --metrics) metrics=$2;; esac
  shift
done
[ -n "$metrics" ] && { echo '==ERROR== Failed to find metric' >$log; exit 1; }
cat >$log <<'TEXT'
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","gpu__time_duration.sum","MEMORY"
"","","","nsecond","%"
"0","7","void fpdt::norm<float>(Parameters)","12,345","91.5"
"1","7","sm90_xmma","1000","n/a"
TEXT
""".replace("MEMORY", "dram__throughput.avg.pct_of_peak_sustained_elapsed")

    def test_kernels(self):
        with mock.patch.object(items, "few_layers", lambda session, name, length: (
                model.Model.load(SOURCE / "models/llama-tiny.yaml"), "none", None)):
            record = self.play(ncu.kernels, ncu=self.NCU)
        self.assertEqual(record["state"], "done", record["reason"])
        self.assertEqual(len(record["commands"]), 2, "metrics that are not known are given up")
        first, second = record["result"]["kernels"]
        self.assertEqual(first["kernel"], "void fpdt::norm<float>")
        self.assertEqual(first["gpu__time_duration.sum"], 12345)
        self.assertIsNone(second["dram__throughput.avg.pct_of_peak_sustained_elapsed"])
        self.assertIn("| void fpdt::norm<float> | 12.35 | 91.5 |", "\n".join(record["text"]))


class Clocks(unittest.TestCase):
    """The sampler, with a fake of the driver's library."""

    NVML = """typedef struct { unsigned gpu, memory; } Utilization;
static int device;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** found) {
  *found = &device;
  return index;
}
#define CHECK if (d != &device) return 1
int nvmlDeviceGetClockInfo(void* d, int kind, unsigned* mhz) {
  CHECK;
  *mhz = 1000 * kind;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* d, unsigned* milliwatts) {
  CHECK;
  *milliwatts = 650000;
  return 0;
}
int nvmlDeviceGetTemperature(void* d, int sensor, unsigned* t) { CHECK; *t = 60; return sensor; }
int nvmlDeviceGetUtilizationRates(void* d, Utilization* u) { CHECK; u->gpu = 97; return 0; }
"""

    def test_library(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            library = f"{folder}/libplayed.so"
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, "-x", "c", "-"],
                           input=self.NVML, text=True, check=True)
            one = sampler.Nvml(("libnothing.so", library)).sample()
        self.assertEqual((one.sm_mhz, one.memory_mhz, one.watts), (1000, 2000, 650.0))
        self.assertEqual((one.celsius, one.busy_percent), (60, 97))
        self.assertEqual(one.reasons, 0, "what a library does not know is 0")
        with self.assertRaises(OSError):
            sampler.Nvml(("libnothing.so", ))

    def test_between(self):
        with tempfile.TemporaryDirectory() as folder:
            found = sampler.Sampler(None, pathlib.Path(folder) / "log")
            for at, (mhz, busy, reasons) in enumerate([
                    (345, 0, 0x1), (1980, 100, 0), (1500, 100, 0x4), (1700, 50, 0x4), (345, 0, 0)]):
                one = sampler.Sample(mhz, 2600, 10.0 * at, 40, busy, reasons)
                one.time = at
                found.samples.append(one)
            clocks = found.between(0, 4)
            self.assertEqual(clocks["sm_mhz"], [1500, 1700, 1980], "without idle samples")
            self.assertEqual((clocks["samples"], clocks["held_down_by"]), (3, ["power cap"]))
            self.assertEqual(found.between(3.5, 9)["sm_mhz"], [345, 345, 345])
            self.assertIsNone(found.between(5, 9))
            self.assertIn("1700 MHz (1500 to 1980), 30 W at most, power cap", sampler.words(clocks))


class Archive(unittest.TestCase):
    def test_there_and_back(self):
        with tempfile.TemporaryDirectory() as folder:
            there, back = pathlib.Path(folder) / "there", pathlib.Path(folder) / "back"
            (there / "deep").mkdir(parents=True)
            back.mkdir()
            for name in ("a.json", "a.log", "a.md", "a.yaml", "a.u32", "deep/a.json"):
                (there / name).write_text(name)
            archive.write(there, back / archive.NAME)
            self.assertEqual([path.name for path in back.iterdir()], [archive.NAME])
            self.assertTrue(archive.unpack(back))
            self.assertEqual(sorted(path.name for path in back.iterdir()),
                             ["a.json", "a.log", "a.md", "a.yaml", archive.NAME])
            self.assertFalse(archive.unpack(back), "results that are there stay")

    def test_pictures_are_left_out_of_a_large_one(self):
        few = mock.patch.object(archive, "MOST_BYTES", 1000)
        with tempfile.TemporaryDirectory() as folder, few:
            there = pathlib.Path(folder)
            (there / "a.json").write_text("{}")
            (there / "a.html").write_bytes(os.urandom(2000))
            archive.write(there, there / archive.NAME)
            (there / "a.json").unlink()
            (there / "a.html").unlink()
            archive.unpack(there)
            self.assertEqual([path.name for path in there.glob("a.*")], ["a.json"])


class Memory(unittest.TestCase):
    """Problems that the memory report of a run shows."""

    USE = {"predicted": 12, "arena": 10, "touched": 9, "resident": None, "difference": ""}

    def test_gaps_are_no_difference(self):
        self.assertEqual(items.memory_lines({"device": self.USE, "driver": None})[1], [])

    def test_differences(self):
        lines, wrong = items.memory_lines({
            "device": {**self.USE, "touched": 11}, "host": {**self.USE, "difference": "3 bytes"}})
        self.assertEqual(wrong, ["host: 3 bytes", "device: more was touched than the arena holds"])
        self.assertIn("- **host: 3 bytes**", lines)

    def test_deviations(self):
        """Deviations that fpdt-run reports, and the driver's count, which makes nothing wrong."""
        driver = {"predicted": 20, "before": 1, "highest": 30, "taken_after_warm_up": 0,
                  "as_predicted": False}
        lines, wrong = items.memory_lines({
            "device": {**self.USE, "untouched": {"scratch": 1 << 20, "between": 0}},
            "process": {"resident": 1, "locked": 2, "pinned": 3 << 20}, "driver": driver,
            "deviations": ["1 B of device memory was taken after warm-up"]})
        self.assertEqual(wrong, ["1 B of device memory was taken after warm-up"])
        text = "\n".join(lines)
        self.assertIn("**not as predicted**", text)
        self.assertIn("untouched are 1.0 MiB of scratch and 0.0 MiB between operands", text)
        self.assertIn("3.0 MiB pinned by drivers", text)


class Launch(unittest.TestCase):
    """gpu_check/launch.py starts ranks, kills one, and does not wait for ever."""
    LOSE_3 = "while kill -0 $(cat 3.pid); do sleep 0.01; done"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "steps.log"

    def launch(self, script, *flags):
        done = subprocess.run([sys.executable, SOURCE / "tools/gpu_check/launch.py", "--ranks", "4",
                               "--logs", self.folder / "rank", *flags, "--", "sh", "-c", script],
                              capture_output=True, text=True, check=True,
                              env={**os.environ, "NCCL_COMM_ID": "elsewhere:1"})
        return json.loads(done.stdout)

    def kill(self, script, *flags):
        """Kills rank 3 when all ranks have written their numbers."""
        begin = (f"cd {self.folder}; echo $$ >$RANK.pid; "
                 "for rank in 0 1 2 3; do while [ ! -s $rank.pid ]; do sleep 0.01; done; done; "
                 f"[ $RANK = 0 ] && printf '1\\n2\\n' >{self.log}; ")
        return self.launch(begin + script, "--kill", "3", "--steps-log", self.log, *flags)

    def test_variables(self):
        answer = self.launch('echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR '
                             '$NCCL_HOSTID ${NCCL_COMM_ID-unset}; echo $NCCL_DEBUG >$NCCL_DEBUG_FILE'
                             '; echo lost >&2; exit $RANK', "--hosts", "2", "--share-gpu")
        for rank in range(4):  # a name that the archive takes
            self.assertEqual((self.folder / f"rank-{rank}.nccl.log").read_text(), "INFO\n")
        self.assertEqual([one["out"] for one in answer["ranks"]],
                         [f"{rank}/4 {rank % 2}/2 127.0.0.1 gpu-check-{rank} unset"
                          for rank in range(4)])
        self.assertEqual([one["code"] for one in answer["ranks"]], [0, 1, 2, 3])
        self.assertEqual({one["err"] for one in answer["ranks"]}, {"lost"})
        self.assertIsNone(answer["killed"])

    def test_a_gpu_each(self):
        answer = self.launch('echo $LOCAL_RANK/$LOCAL_WORLD_SIZE ${NCCL_HOSTID-real}')
        self.assertEqual([one["out"] for one in answer["ranks"]],
                         [f"{rank}/4 real" for rank in range(4)])

    def test_terminated(self):
        """Ranks get the signal too, and what they report then is not lost."""
        script = (f"trap 'echo report; exit 143' TERM; echo >>{self.log}; "
                  "while :; do sleep 0.01; done")
        command = [sys.executable, SOURCE / "tools/gpu_check/launch.py", "--ranks", "2", "--logs",
                   self.folder / "rank", "--", "sh", "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launched:
            while not self.log.exists() or self.log.read_text() != "\n\n":
                time.sleep(0.01)
            launched.terminate()
            answer = json.loads(launched.communicate()[0])
        self.assertEqual([(one["code"], one["out"]) for one in answer["ranks"]],
                         2 * [(143, "report")])

    def test_kill(self):
        answer = self.kill(f"{self.LOSE_3}; exit 6")
        self.assertEqual(answer["killed"], 3)
        self.assertEqual([one["code"] for one in answer["ranks"]], [6, 6, 6, -9])

    def test_ranks_that_hang(self):
        answer = self.kill(f"[ $RANK = 2 ] && {{ {self.LOSE_3}; exit 6; }}; exec sleep 60",
                           "--within", "2")
        self.assertEqual([one["code"] for one in answer["ranks"]], [None, None, 6, -9])
        self.assertEqual(answer["ranks"][0]["seconds"], None)

    def test_verdict(self):
        lost = {"code": 6, "seconds": 1.0, "out": "", "err": "warning\nfpdt-run: rank 1: lost"}
        killed = {"code": -9, "seconds": 0.0, "out": "", "err": ""}

        def wrong(**changes):
            return processes.wrong_ends({"killed": 1, "ranks": [{**lost, **changes}, killed, lost]})

        self.assertEqual(wrong(), [])
        self.assertEqual(wrong(code=None), ["rank 0 still ran 15 s after the first had ended"])
        self.assertIn("rank 0 ended with 1:", wrong(code=1)[0])
        self.assertIn("without a message of fpdt-run", wrong(err="")[0])

    def test_verdict_under_mpirun(self):
        """mpirun ends the others, which cannot say anything then."""
        ended = {"code": 137, "seconds": 2.0, "out": "", "err": ""}

        def wrong(**changes):
            return processes.wrong_ends({"killed": 1, "ranks": [{**ended, **changes}, ended]},
                                        jobs.LOST_UNDER_MPIRUN)

        self.assertEqual(wrong(), [])
        self.assertIn("rank 0 ended with 0:", wrong(code=0)[0])
        self.assertIn("rank 0 still ran", wrong(code=None)[0])

    def test_no_mpirun(self):
        with mock.patch.object(shutil, "which", lambda name: None), \
                self.assertRaisesRegex(harness.Skipped, "mpirun, which was not found"):
            jobs.launch(session_in(self.folder, gpus=2), 2, ["true"])


class Classes(unittest.TestCase):
    """The layer classes of a strategy, each as the strategy of a model that has no other layers."""

    def test_two(self):
        head, tail = "mesh:\n  replicas: 1\n", "copies:\n  duplex: true\n"
        one, other = "    recompute: keep_all\n    keep: {kv: device}\n", "    keep: {}\n"
        found = solo.classes(f"{head}layer_classes:\n  - layers: 12\n{one}  - layers: rest\n{other}"
                             f"{tail}", 32)
        self.assertEqual([(each["layers"], each["strategy"]) for each in found],
                         [(20, f"{head}layer_classes:\n  - layers: rest\n{other}{tail}"),
                          (12, f"{head}layer_classes:\n  - layers: rest\n{one}{tail}")])

    def test_none(self):
        self.assertEqual(solo.classes("mesh:\n", 4), [{"layers": 4, "strategy": "mesh:\n"}])


class Machine(unittest.TestCase):
    """What the item `versions` says of a machine, and what needs cuDNN there."""

    def test_system(self):
        found = items.system()
        for key in ("locked_memory_limit", "shared_memory_bytes", "transparent_huge_pages",
                    "huge_pages", "iommu", "ecc.mode.current", "mig.mode.current"):
            self.assertIn(key, found)

    def test_driver(self):
        gpu = {"driver": "12.9", "runtime": "13.0", "cudnn": None}
        for device in ({"gpu": gpu}, {"gpus": [{"gpu": gpu}, {"gpu": gpu}]}):
            self.assertEqual(items.driver_words({"driver_version": "575.57.08"}, device),
                             "driver 575.57.08 supports CUDA 12.9; the programs were built with "
                             "CUDA 13.0")
            session = types.SimpleNamespace(result=lambda _, device=device: {"device": device})
            self.assertFalse(items.has_cudnn(session))
            self.assertEqual(items.tiles(session), "own")
            with self.assertRaisesRegex(harness.Skipped, "without cuDNN it is slow"):
                items.need_cudnn(session, "it is slow")
        self.assertTrue(items.has_cudnn(types.SimpleNamespace(result=lambda _: {})))

    def test_tiles_that_the_library_does_not_take(self):
        session = types.SimpleNamespace(result=lambda _: {})
        items.need_library_tiles(session, harness.Done(0, "", "note: else\n", 1))
        with self.assertRaisesRegex(harness.Skipped, "^attention tiles run on the backend's own"):
            items.need_library_tiles(session, harness.Done(0, "", (
                "note: attention tiles run on the backend's own kernels, because those of cuDNN "
                "support at most 524160 tokens per chunk here, not 524288\n"), 1))


class Node(unittest.TestCase):
    """What items of a node make of strategies and of fpdt-run's words."""

    def test_together(self):
        before = ("mesh:\n  replicas: 4\ntiles:\n  chunk_tokens: 64K\n  ffn_rows: 0\n"
                  "  loss_rows: 32K\n  loss_vocabulary: 32K\ncopies:\n"
                  "  overlap_all_to_all: false\n")
        after = ("mesh:\n  replicas: 1\ntiles:\n  chunk_tokens: 64K\n  ffn_rows: 0\n"
                 "  loss_rows: 8192\n  loss_vocabulary: 32K\ncopies:\n"
                 "  overlap_all_to_all: true\n")
        self.assertEqual(node.together(before, 8), after)
        self.assertEqual(node.together(after, 8), after)

    def test_nccl_bytes(self):
        machine = SOURCE / "configs/clusters/h200-141g-x8.yaml"
        outside = (540 + 128 + 48 + 7 * 384) << 20
        memory = {"driver": {"outside": outside}}
        said = "step 1\nNCCL took 2.50 GiB of device memory\nstep 2\n"
        self.assertEqual(node.nccl_bytes(memory, machine, said), (7 * 384 << 20, 5 << 29))
        self.assertEqual(node.nccl_bytes({"driver": None}, machine, said), (None, None))
        self.assertEqual(node.nccl_bytes(memory, machine, "step 1\n"), (None, None))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
