"""tools/gpu-check without a GPU: its arithmetic, its harness, and the whole script in rehearsal.

gpu_check_test.py SOURCE_DIR BUILD_DIR [unittest's arguments]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.dont_write_bytecode = True
SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tools"))

from gpu_check import cluster, harness, items, model  # noqa: E402


def session_in(folder, **changes):
    arguments = {
        "out": folder, "build": BUILD, "rehearse": True, "peak_flops": 1e12, "time_limit": 100,
        **changes
    }
    return harness.Session(types.SimpleNamespace(**arguments), SOURCE)


def item(function, most=60):
    return types.SimpleNamespace(name="item", function=function, least=0, most=most)


class Arithmetic(unittest.TestCase):
    """Flops and parameters are those of fpdt-plan, and what is linear is scaled exactly."""

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
                # It was read, whether it fits or not.
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
    """What follows from a measured cluster is accepted by fpdt-plan, and says what it should."""
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
                self.assertIn("link: 1.538e+12" if solo else "link: {typical: 360e9", text)
                done = subprocess.run([BUILD / "apps/fpdt-plan", "search", "--model",
                                       SOURCE / "models/llama3-8b.yaml", "--cluster", path,
                                       "--seq-len", "64K"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)


class Harness(unittest.TestCase):
    """The record is there whatever happens to an item."""
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
        self.assertIsNone(record["commands"][0]["exit_code"])
        self.assertLess(time.monotonic() - begin, 20)

    def test_time_of_the_call(self):
        record = self.perform(lambda session, result, text: session.run("sleep", "60"),
                              time_limit=2)
        self.assertEqual(record["state"], "unfinished")


class Gpu(unittest.TestCase):
    """The items that need a GPU, with a project of two tests and programs that play the tools."""

    PROJECT = """cmake_minimum_required(VERSION 3.25)
project(played LANGUAGES NONE)
enable_testing()
add_test(NAME good COMMAND %s/program --gtest_filter=a.good)
add_test(NAME other COMMAND %s/program --gtest_filter=a.other)
set_tests_properties(good other PROPERTIES LABELS "gpu;small"
  SKIP_RETURN_CODE 77)
add_test(NAME elsewhere COMMAND false)
"""

    def play(self, folder, program, sanitizer):
        build = pathlib.Path(folder) / "build"
        (pathlib.Path(folder) / "CMakeLists.txt").write_text(self.PROJECT % (folder, folder))
        for name, text in (("program", program), ("compute-sanitizer", sanitizer)):
            path = pathlib.Path(folder) / name
            path.write_text("#!/bin/sh\n" + text)
            path.chmod(0o755)
        subprocess.run(["cmake", "-S", folder, "-B", build], check=True, capture_output=True)
        return session_in(pathlib.Path(folder) / "out", build=build, rehearse=False)

    def records(self, program, sanitizer):
        path = os.environ["PATH"]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PATH"] = f"{folder}:{path}"
            try:
                session = self.play(folder, program, sanitizer)
                for function in (items.tests, items.sanitizer):
                    session.perform(item(function))
                    yield session.load("item")
            finally:
                os.environ["PATH"] = path

    def test_good(self):
        clean = "echo '== ERROR SUMMARY: 0 errors'; echo '== RACECHECK SUMMARY: 0 hazards displayed'"
        tests, sanitizer = self.records("exit 0", clean)
        self.assertEqual((tests["state"], tests["result"]["passed"], tests["result"]["tests"]),
                         ("done", 2, 2))
        self.assertEqual(sanitizer["state"], "done")
        self.assertEqual(sanitizer["result"]["memcheck a"],
                         {"tests": 2, "exit_code": 0, "errors": 0})
        self.assertIn("--gtest_filter=a.good:a.other", sanitizer["commands"][-1]["command"])

    def test_bad(self):
        tests, sanitizer = self.records("case $1 in *other) exit 1;; esac",
                                        "echo 'ERROR SUMMARY: 3 errors'; exit 9")
        self.assertEqual((tests["state"], tests["result"]["failed"]), ("failed", ["other"]))
        self.assertEqual(sanitizer["state"], "failed")
        self.assertEqual(sanitizer["result"]["memcheck a"]["errors"], 3)

    def test_left_out(self):
        tests, _ = self.records("case $1 in *other) exit 77;; esac", "exit 0")
        self.assertEqual((tests["state"], tests["result"]["skipped"]), ("failed", ["other"]))
        self.assertIn("1 of 2 tests were left out", tests["reason"])


class Rehearsal(unittest.TestCase):
    """The whole script, on a CPU with tiny sizes; PyTorch has a test of its own."""

    def check(self, folder, *flags):
        absent = pathlib.Path(folder) / "absent"
        absent.mkdir(exist_ok=True)
        (absent / "torch.py").write_text("raise ImportError('left out')\n")
        return subprocess.run([SOURCE / "tools/gpu-check", "--rehearse", "--build", BUILD, "--out",
                               pathlib.Path(folder) / "out", *flags], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": str(absent)})

    def test_all(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            first = self.check(folder, "--items", "versions,bench")
            self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
            bench = (out / "bench.json").read_text()
            second = self.check(folder)
            self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
            self.assertEqual((out / "bench.json").read_text(), bench,
                             "a finished item was repeated")
            whole = json.loads((out / "solo-2m.json").read_text())["result"]["whole"]
            for key in ("mfu_causal", "mfu_full", "hfu", "share_of_ceiling", "layer_seconds"):
                self.assertGreater(whole[key], 0)
            curves = json.loads((out / "curves.json").read_text())["result"]
            self.assertEqual({one["largest_relative_difference"] for one in curves.values()}, {0.0})
            states = {
                path.stem: json.loads(path.read_text())["state"]
                for path in out.glob("*.json")
            }
            skipped = {name for name, state in states.items() if state == "skipped"}
            self.assertEqual(skipped,
                             {"tests", "sanitizer", "pytorch-128k", "pytorch-512k", "ceiling"})
            summary = (out / "summary.md").read_text()
            self.assertIn("Rehearsal without a GPU", summary)
            for name in states:
                self.assertIn(f"## {name}", summary)
            third = self.check(folder)
            self.assertEqual(third.returncode, 0)
            self.assertNotIn("bench ...", third.stdout)

    def test_time_is_up(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.check(folder, "--time-limit", "5", "--items", "sanitizer,bench")
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            self.assertIn("the same command goes on", done.stdout)

    def test_wrong_usage(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.check(folder, "--items", "nothing")
            self.assertEqual(done.returncode, 2)
            self.assertIn("no item begins with 'nothing'", done.stderr)
            out = pathlib.Path(folder) / "out"
            (out / "bench.json").write_text('{"gpu": "another", "state": "done"}')
            done = self.check(folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("holds results of another", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
