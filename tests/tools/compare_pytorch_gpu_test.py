"""tools/compare-pytorch-gpu in rehearsal: every setup trains, and all of them train alike.

  compare_pytorch_gpu_test.py SOURCE_DIR BUILD_DIR      needs a Python with torch
"""
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

sys.dont_write_bytecode = True
SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tools"))

from gpu_check import llama_torch  # noqa: E402


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
            # The sums are the same except for the order within products, whose results bf16 rounds.
            for mine, other in zip(one["losses"], first["losses"]):
                self.assertAlmostEqual(mine, other, delta=2 ** -8)
        # Both start with the loss of random guesses, and learn.
        self.assertAlmostEqual(result["fpdt"]["losses"][0], first["losses"][0], delta=0.2)
        self.assertLess(first["losses"][-1], first["losses"][0])

    def test_ceiling(self):
        done = subprocess.run([sys.executable, SOURCE / "tools/compare-pytorch-gpu", "--rehearse",
                               "--ceiling", "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        best = json.loads(done.stdout)["best"]
        self.assertEqual(set(best), {"matmul", "attention_forward", "attention_backward", "copy",
                                     "h2d", "d2h"})
        self.assertGreater(min(best.values()), 0)


class Parts(unittest.TestCase):
    SIZES = {"heads": 4, "kv_heads": 2, "head_dim": 8, "hidden": 32, "feed_forward": 64}

    def test_groups_of_heads(self):
        """Splitting large queries into two groups of heads gives the same results."""
        torch.manual_seed(1)
        q, k, v = (torch.randn(1, heads, 16, 8) for heads in (4, 2, 2))
        whole = llama_torch.attend(q, k, v, "any")
        with mock.patch.object(llama_torch, "MOST_ELEMENTS", q.numel()):
            torch.testing.assert_close(llama_torch.attend(q, k, v, "any"), whole, rtol=0, atol=1e-6)

    def pieces(self):
        # Dynamo counts the same without a compiler behind it.
        eager = functools.partial(torch.compile, backend="eager")
        patch = mock.patch.object(torch, "compile", eager)
        patch.start()
        self.addCleanup(patch.stop)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        pieces = llama_torch.Pieces(self.SIZES, torch.device("cpu"))
        self.assertEqual(pieces.eager_because(), "not tried on a CPU")
        return pieces

    def run_all(self, pieces):
        make = {"dtype": torch.bfloat16}
        rows, size, heads = 16, 8, 4
        x, weight = torch.randn(rows, 32, **make), torch.ones(32, **make)
        angle = torch.randn(rows, 1, size // 2)
        pieces.before(x, weight, torch.randn(8 * size, 32, **make), angle.cos(), angle.sin())
        pieces.after(x, torch.randn(1, heads, rows, size, **make), torch.randn(32, 32, **make))
        pieces.mlp(x, weight, torch.randn(128, 32, **make), torch.randn(32, 64, **make))
        pieces.loss(torch.randn(rows, 50, **make), torch.arange(rows), 1.0)

    def test_compiled_is_what_dynamo_counted(self):
        pieces = self.pieces()
        pieces._compile(self.SIZES, torch.device("cpu"))
        self.assertIn("of 1 frames into 1 graphs", pieces.eager_because())
        self.run_all(pieces)
        self.assertEqual(pieces.eager_because(), "")

    def test_a_piece_that_breaks_is_told(self):
        pieces = self.pieces()
        plain = pieces.mlp

        def broken(*arguments):
            torch._dynamo.graph_break()
            return plain(*arguments)

        pieces.mlp = broken
        pieces._compile(self.SIZES, torch.device("cpu"))
        self.run_all(pieces)
        self.assertIn("1 breaks", pieces.eager_because())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
