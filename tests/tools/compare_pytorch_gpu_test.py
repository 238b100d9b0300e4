"""tools/compare-pytorch-gpu in rehearsal: every setup trains, and all of them train alike.

  compare_pytorch_gpu_test.py SOURCE_DIR BUILD_DIR      needs a Python with torch
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])


class Comparison(unittest.TestCase):
    def test_rehearsal(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = pathlib.Path(folder) / "machine.yaml"
            subprocess.run([BUILD / "apps/fpdt-run", "bench", "--quick", "--out", machine],
                           check=True, capture_output=True)
            done = subprocess.run([sys.executable, SOURCE / "tools/compare-pytorch-gpu",
                                   "--rehearse", "--programs", BUILD / "apps", "--machine", machine,
                                   "--backend", "cpu", "--fitting", "8", "--steps", "3", "--json"],
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertTrue(result["fpdt"]["fits"], result["fpdt"])
        self.assertLess(result["pytorch"]["attention"]["error"], 0.02)
        setups = result["pytorch"]["setups"]
        self.assertEqual(len(setups), 8)
        first = setups[0]
        for one in setups:
            self.assertTrue(one["fits"], one)
            self.assertEqual(one["offloaded_bytes"] > 0, "offload" in one["setup"])
            # The same sums but for the order within products, whose results bf16 rounds.
            for mine, other in zip(one["losses"], first["losses"]):
                self.assertAlmostEqual(mine, other, delta=2 ** -8)
        # Both begin as one that knows nothing, and learn.
        self.assertAlmostEqual(result["fpdt"]["losses"][0], first["losses"][0], delta=0.2)
        self.assertLess(first["losses"][-1], first["losses"][0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
