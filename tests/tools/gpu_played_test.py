"""tools/gpu-check as on a GPU, but on a machine without one: plans have their true size, and
scripts replace nvidia-smi, fpdt-run, the tests, ncu and compute-sanitizer.

gpu_played_test.py SOURCE_DIR BUILD_DIR [unittest's arguments]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = {
    "nvidia-smi": """for gpu in $(seq ${GPUS-1}); do case "$1" in
*name,compute_cap*) echo "NVIDIA H200, 9.0";; *) echo NVIDIA H200;; esac; done""",
    "ncu": """while [ $# -gt 0 ]; do [ "$1" = --log-file ] && log=$2; shift; done
{ echo '"ID","Kernel Name","gpu__time_duration.sum"'; echo '"","","nsecond"'
  echo '"0","norm","1000"'; } >"$log" """,
    "compute-sanitizer": "echo '[       OK ] a.good (9 ms)'; echo 'ERROR SUMMARY: 0 errors'\n"
                         "echo 'RACECHECK SUMMARY: 0 hazards'",
}
TESTS = """case $1 in --gtest_list_tests) printf 'a.\\n  good\\n';; *)
echo '[ RUN      ] a.good'; echo '[       OK ] a.good (12 ms)';; esac"""
CEILING = {"matmul": 800e12, "attention_forward": 700e12, "attention_backward": 600e12}


class Played(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        self.out.mkdir()
        self.host_memory = "115GiB"
        self.rates = SOURCE / "configs/clusters/h200-141g-x1.yaml"
        (self.folder / "bin").mkdir()
        self.scripts = {**SCRIPTS, "cuda_gpu_test": TESTS,
                        "fpdt-plan": f'exec {BUILD}/apps/fpdt-plan "$@"',
                        "fpdt-run": f'exec {sys.executable} {HERE}/played_fpdt_run.py "$@"'}
        for name, script in self.scripts.items():
            path = self.folder / "bin" / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        (self.folder / "torch.py").write_text("raise ImportError('left out')\n")

    def check(self, *flags, **played):
        environment = {**os.environ, **played, "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                       "PYTHONPATH": str(self.folder), "FPDT_PLAN": f"{BUILD}/apps/fpdt-plan",
                       "RATES": str(self.rates)}
        return subprocess.run([SOURCE / "tools/gpu-check", "--out", self.out, "--programs",
                               self.folder / "bin", "--host-memory", self.host_memory, *flags],
                              capture_output=True, text=True, env=environment)

    def record(self, item):
        return json.loads((self.out / f"{item}.json").read_text())

    def test_first_call(self):
        ceiling = {"item": "ceiling", "state": "done", "reason": "", "text": [],
                   "gpu": "NVIDIA H200", "result": {"best": CEILING}}
        (self.out / "ceiling.json").write_text(json.dumps(ceiling))
        done = self.check("--items", "versions,tests,bench,solo-1m,solo-1m-2,kernels,curves,memory,"
                          "deterministic,sanitizer")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("tests", "bench", "solo-1m", "solo-1m-2", "kernels", "memory", "sanitizer"):
            self.assertEqual(self.record(name)["state"], "done")
        bench = self.record("bench")["commands"][-1]["command"]
        for word in ("--backend cuda", "--short", "--declared", "--host-memory 115GiB",
                     "--peak-flops 9890000"):
            self.assertIn(word, bench)
        self.check_headline()

    def check_headline(self):
        """If a step of one layer at 1M tokens is 5 % slower than simulated, so is the whole
        model."""
        whole = self.record("solo-1m")["result"]["whole"]
        self.assertAlmostEqual(whole["seconds"], 1.05 * whole["predicted_seconds"], delta=0.5)
        self.assertAlmostEqual(whole["predicted_seconds"] / whole["seconds"], 1 / 1.05, places=3)
        ratio = whole["share_of_other_libraries"] / whole["share_of_ceiling"]
        # The bench reaches 700 of the other libraries' 800 for products, 650 of 700 and 550 of 600
        # for tiles.
        self.assertGreater(ratio, 700 / 800)
        self.assertLess(ratio, 650 / 700)
        self.check_classes()
        self.assertIn("--deterministic", self.record("deterministic")["commands"][-1]["command"])
        page = (self.out / "summary.md").read_text()
        self.assertIn(f"**1M tokens: mfu_causal {100 * whole['mfu_causal']:.1f} %**", page)
        self.assertIn("goal mfu_causal 50 %", page)
        self.assertIn("Clocks: unknown.", page)

    def check_classes(self):
        """What ran is the plan of the whole model, class by class, and nothing else."""
        record = self.record("solo-1m")
        result, commands = record["result"], [one["command"] for one in record["commands"]]
        classes = result["classes"]
        self.assertEqual(sum(one["layers"] for one in classes), 32)
        self.assertEqual(len(classes), 2)
        self.assertIn(f"{classes[0]['layers']} layers", result["plan_of_whole"]["strategy"]["words"])
        self.assertEqual(sum(" search " in command for command in commands), 1)
        trained = [command for command in commands if "--steps " in command]
        self.assertEqual(len(trained), len(classes))
        for one, command, steps in zip(classes, trained, (3, 2)):
            self.assertIn(f"llama3-8b-1-class{one['number']}/schedule.json", command)
            for word in ("--communicator solo", f"--steps {steps}", "--host-memory 115GiB"):
                self.assertIn(word, command)
        # The offload path is exercised: gibibytes of a layer are in pinned memory.
        pinned = re.findall(r"^host_pinned +([0-9.]+) GiB", (self.out / "solo-1m.log").read_text(),
                            re.M)
        self.assertEqual(len(pinned), 2 * len(classes))
        self.assertGreater(min(map(float, pinned)), 4)
        planned = result["plan_of_whole"]["prediction"]["step_seconds"]
        self.assertAlmostEqual(result["whole"]["predicted_seconds"] / planned, 1, delta=0.01)

    def test_without_cudnn(self):
        """What needs it is skipped, with the reason, and the rest runs."""
        done = self.check("--items", "versions,curves,solo-1m,deterministic,two-gpus", GPUS="2",
                          WITHOUT_CUDNN="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        states = {name: self.record(name)["state"] for name in (
            "versions", "curves", "solo-1m", "deterministic", "two-gpus")}
        self.assertEqual({name for name, state in states.items() if state != "done"}, {"solo-1m"})
        self.assertEqual(self.record("solo-1m")["reason"], "without cuDNN such steps take minutes")
        self.assertIn("attention: own", (self.out / "two-gpus.yaml").read_text())
        self.assertIn("driver of unknown version supports CUDA 13.0; the programs were built with",
                      (self.out / "summary.md").read_text())

    def test_two_gpus(self):
        def two_gpus(**played):
            done = self.check("--items", "two-gpus", **played)
            record = self.record("two-gpus")
            self.assertEqual(done.returncode, record["state"] == "wrong", done.stdout + done.stderr)
            return record

        one = two_gpus()
        self.assertEqual((one["state"], one["reason"]),
                         ("skipped", "it needs two GPUs, and fpdt-run device lists one"))
        two = two_gpus(GPUS="2")
        self.assertEqual(two["state"], "done", two["reason"])
        ends = [one["command"].partition("--backend ")[2] for one in two["commands"]
                if " train " in one["command"]]
        self.assertEqual(ends, ["cuda --device 0 --deterministic",
                                "cuda --device 0,1 --deterministic", "cpu", "cuda --device 0,1"])
        self.assertIn("the same bits", two["text"][0])
        self.assertEqual(two["result"]["largest_relative_difference"], 0)
        apart = two_gpus(GPUS="2", APART="0.001")
        self.assertEqual(apart["reason"], "two ranks give other bits on two GPUs than on one")
        self.assertEqual((apart["state"], len(apart["text"])), ("wrong", 3))
        refused = two_gpus(GPUS="2", REFUSED="1")
        self.assertEqual((refused["state"], refused["reason"]),
                         ("skipped", "fpdt-run: GPU 0 cannot read the memory of GPU 1"))

    def test_processes(self):
        def processes(**played):
            self.check("--items", "processes", **played)
            return self.record("processes")

        good = processes()
        self.assertEqual(good["state"], "done", good["reason"])
        jobs = [one["command"] for one in good["commands"] if "launch.py" in one["command"]]
        self.assertEqual([re.findall(r"--(?:ranks|hosts|kill|communicator) (\w+)", job)
                          for job in jobs],
                         [["2", "1", "nccl"], *2 * [["4", "2", "nccl"]], ["4", "2", "3", "nccl"]])
        self.assertIn("zero_groups: hierarchical", (
            self.out / "processes-4-by-node-strategy.yaml").read_text())
        for job in jobs:
            self.assertIn("--backend cuda --device 0 --deterministic", job)
        ends = good["result"]["kill"]["ranks"]
        self.assertEqual([one["code"] for one in ends], [6, 6, 6, -9])
        self.assertEqual(len(good["text"]), 3 + 3)
        self.assertIn("the same losses and checkpoint", good["text"][1])
        self.assertIn("4 processes with ZeRO by node on 2 hosts", good["text"][2])
        apart = processes(PROCESSES="apart")
        self.assertEqual(apart["state"], "wrong")
        for what in ("4 processes give other losses", "save another checkpoint",
                     "took 1 bytes of device memory after the first step",
                     "count other bytes than the schedule sends",
                     "after a kill rank 2 ended with 1"):
            self.assertIn(what, apart["reason"])
        refused = processes(PROCESSES="refused")
        self.assertEqual(refused["state"], "skipped")
        self.assertIn("this build has no NCCL", refused["reason"])

    def test_node(self):
        """Processes with a GPU each: what they are started with, and what is wrong with them."""
        rates = self.folder / "rates.yaml"
        rates.write_text(re.sub("devices_per_node: 8", "devices_per_node: 2", (
            SOURCE / "configs/clusters/h200-141g-x8.yaml").read_text()))
        self.rates = rates

        def node(items, **played):
            self.check("--gpus", "2", "--items", items, GPUS="2", **played)
            return self.record(items.rpartition(",")[2])

        good = node("processes,node-bench,node-128k")
        self.assertEqual(good["state"], "done", good["reason"])
        self.assertEqual(good["gpu"], "2 x NVIDIA H200")
        for name, verb in (("processes", "train"), ("node-bench", "bench"), ("node-128k", "train")):
            record = self.record(name)
            self.assertEqual(record["state"], "done", record["reason"])
            job = [one["command"] for one in record["commands"] if "launch.py" in one["command"]][0]
            self.assertRegex(job, f"--ranks 2 .* {verb} .*--communicator nccl$")
            self.assertNotIn("--share-gpu", job)
        self.assertEqual(good["result"]["measured"]["nccl"],
                         {"predicted": 400 << 20, "measured": 384 << 20})
        plan = (self.out / "node-128k-strategy.yaml").read_text()
        self.assertIn("overlap_all_to_all: true", plan)
        page = (self.out / "summary.md").read_text()
        for words in ("- link: 360 GB/s", "131072 tokens, 2 ranks", "connected by NCCL",
                      "NCCL: predicted 400.0 MiB, took 384.0 MiB"):
            self.assertIn(words, page)
        apart = node("node-128k", PROCESSES="apart")
        self.assertEqual((apart["state"], apart["reason"]), (
            "wrong", "fpdt-run: measured and predicted memory disagree: rank 1: 1 B over; ranks "
            "count other bytes than the schedule sends"))
        self.assertIn("took 484.0 MiB: **more than predicted**", "\n".join(apart["text"]))
        # Too little for a layer at 2M.
        rates.write_text(re.sub("device_memory: [0-9]+GiB", "device_memory: 24GiB",
                                rates.read_text()))
        self.host_memory = "6GiB"
        none = node("node-bench,node-2m")
        self.assertEqual(none["state"], "skipped", none["reason"])
        self.assertRegex(none["reason"], "^2097152 tokens do not fit: host, needs [0-9.]+ GiB$")
        few = self.check("--gpus", "4", GPUS="2")
        self.assertEqual(few.returncode, 2)
        self.assertIn("--gpus 4: nvidia-smi lists 2", few.stderr)

    def test_eight(self):
        """A node of eight with a process for each GPU, under torchrun's variables. The archive has
        what NCCL told of each rank."""
        self.rates = SOURCE / "configs/clusters/h200-141g-x8.yaml"
        names = ("torchrun", "processes", "node-kill")
        done = self.check("--gpus", "8", "--items", ",".join(names), GPUS="8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("took a step: loss 11.0000", self.record("torchrun")["text"][0])
        kill = self.record("node-kill")
        self.assertEqual([one["code"] for one in kill["result"]["ranks"]], 7 * [6] + [-9])
        command = [one["command"] for one in kill["commands"] if "launch.py" in one["command"]][0]
        for words in ("--kill 7", "--after 1", "--within 50", "--deadline 30", "node-kill/schedule"):
            self.assertIn(words, command)
        with tarfile.open(self.out / "results.tar.gz") as archive:
            held = set(archive.getnames())
        self.assertLessEqual({f"{name}.json" for name in names} | {"summary.md"} | {
            f"node-kill-8-{rank}.nccl.log" for rank in range(8)}, held)

    def test_no_programs(self):
        """If prebuilt programs do not run, it builds them; if that fails too, it reports both."""
        (self.folder / "bin/fpdt-run").write_text("#!/bin/sh\necho no such library >&2; exit 127\n")
        (self.folder / "bin/cmake").write_text("#!/bin/sh\necho cannot build >&2; exit 1\n")
        (self.folder / "bin/cmake").chmod(0o755)
        done = self.check()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        programs = self.record("programs")
        self.assertEqual(programs["state"], "failed")
        self.assertIn("no such library", "\n".join(programs["text"]))
        self.assertIn("cannot build", programs["reason"])
        self.assertIn("-DFPDT_CUDA_ARCHITECTURES=90a-real", programs["commands"][-1]["command"])
        self.assertTrue((self.out / "results.tar.gz").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
