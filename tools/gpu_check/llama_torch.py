"""A Llama's training step in PyTorch, as fast as PyTorch allows within the memory.

Weights and activations are bf16, master weights and moments f32. torch.compile fuses the pieces
between attention, which is scaled_dot_product_attention without repeated heads. Feed-forward and
loss run in tiles, so that neither a layer's hidden rows nor the logits fill the memory. A setup
says which values are kept for backward, and where they wait.
"""
import contextlib
import dataclasses
import functools
import weakref

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
import torch.nn.functional as F
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,
                                    create_selective_checkpoint_contexts)

LOSS_ROWS = 4096
# The ops of attention. A selective checkpoint keeps their outputs.
ATTENTION_OPS = {getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default for name in (
    "cudnn_attention", "flash_attention", "efficient_attention", "flash_attention_for_cpu")}


@dataclasses.dataclass(frozen=True)
class Setup:
    """What is kept for backward. `attention`: kept (all of its part), output (its output) or
    repeated. `mlp_rows`: rows of the feed-forward tiles that are repeated; 0 keeps everything. With
    `offload` large saved tensors wait in pinned host memory."""

    attention: str
    mlp_rows: int
    offload: bool


MLP_ROWS = 16384
# From the setup that repeats least to the one that repeats most.
SETUPS = {
    "all kept": Setup("kept", 0, False), "all kept, offload": Setup(
        "kept", 0, True), "feed-forward repeated": Setup("kept", MLP_ROWS, False),
    "feed-forward repeated, offload": Setup("kept", MLP_ROWS, True), "attention output kept": Setup(
        "output", MLP_ROWS, False), "attention output kept, offload": Setup(
            "output", MLP_ROWS, True), "all repeated": Setup("repeated", MLP_ROWS,
                                                             False), "all repeated, offload": Setup(
                                                                 "repeated", MLP_ROWS, True)
}


def least_bytes(setup, sizes, tokens):
    """A lower bound of a setup's device memory: weights with gradients, masters and moments, plus
    what is saved for backward, or the feed-forward of one layer with its gradients."""
    hidden, inner, size = sizes["hidden"], sizes["feed_forward"], sizes["head_dim"]
    q, kv = sizes["heads"] * size, 2 * sizes["kv_heads"] * size
    attention = hidden + {"kept": 2 * q + kv, "output": q, "repeated": 0}[setup.attention]
    mlp = hidden + (0 if setup.mlp_rows else 3 * inner)
    saved = 0 if setup.offload else 2 * tokens * sizes["layers"] * (attention + mlp)
    working = 0 if setup.mlp_rows else 2 * tokens * 5 * inner
    return 16 * sizes["parameters"] + max(saved, working)


BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


# cuDNN's kernel refuses a tensor of at least this many elements, and a slower one takes its place.
MOST_ELEMENTS = 1 << 31


def attend(q, k, v, kernel, causal=True):
    """Attention of [1, heads, rows, size] tensors. `kernel`: a backend, plus `repeated` if it needs
    as many key heads as query heads; `any`: PyTorch's own choice. Queries that are too large for it
    go in two groups of heads."""
    if q.numel() >= MOST_ELEMENTS and k.shape[1] % 2 == 0:
        halves = zip(*(one.chunk(2, dim=1) for one in (q, k, v)))
        return torch.cat([attend(*half, kernel, causal) for half in halves], dim=1)
    name, _, repeated = kernel.partition(" ")
    if repeated:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    grouped = {} if repeated or q.shape[1] == k.shape[1] else {"enable_gqa": True}
    if name == "any":
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)
    with sdpa_kernel(BACKENDS[name]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)


PIECES = ("before", "after", "mlp", "loss", "norm")


class Pieces:
    """The pieces between attention and products, compiled if torch.compile works here."""
    def __init__(self, sizes, device, epsilon=1e-5):
        heads, kv, size = sizes["heads"], sizes["kv_heads"], sizes["head_dim"]

        def norm(x, weight):
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(
                x.dtype) * weight

        def rotate(x, cos, sin):
            a, b = x.float().chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

        def before(x, weight, qkv, cos, sin):
            rows = F.linear(norm(x, weight), qkv).view(x.shape[0], heads + 2 * kv, size)
            q, k, v = rows.split([heads, kv, kv], dim=1)
            rotated = rotate(q, cos, sin), rotate(k, cos, sin), v
            return tuple(one.transpose(0, 1)[None] for one in rotated)

        def after(x, o, out):
            return x + F.linear(o[0].transpose(0, 1).reshape(x.shape[0], heads * size), out)

        def mlp(h, weight, up, down):
            gate, wide = F.linear(norm(h, weight), up).chunk(2, dim=-1)
            return h + F.linear(F.silu(gate) * wide, down)

        def loss(logits, labels, scale):
            wide = logits.float()
            total = torch.logsumexp(wide, dim=-1, keepdim=True)
            hit = torch.arange(wide.shape[1], device=wide.device) == labels[:, None]
            gradient = (torch.exp(wide - total) - hit.float()) * scale
            sum_of_rows = (total - wide.gather(1, labels[:, None])).sum()
            return sum_of_rows, gradient.to(logits.dtype)

        self.before, self.after, self.mlp, self.loss, self.norm = before, after, mlp, loss, norm
        self.why = "not tried on a CPU"
        if device.type == "cuda":
            self._compile(sizes, device)

    def _compile(self, sizes, device):
        plain = {name: getattr(self, name) for name in PIECES}
        for name, function in plain.items():
            setattr(self, name, torch.compile(function, dynamic=False))
        try:
            hidden = torch.zeros(256, sizes["hidden"], dtype=torch.bfloat16, device=device)
            self.norm(hidden, hidden[0])
            # If another piece fails to compile it runs eagerly; `eager_because` finds it.
            torch._dynamo.config.suppress_errors = True
            self.why = ""
        except Exception as error:  # whatever a compiler lacks here: fall back to eager
            self.why = f"{type(error).__name__}: {error}".splitlines()[0]
            for name, function in plain.items():
                setattr(self, name, function)


    def eager_because(self):
        """Call after a step. Returns why some piece did not run compiled, "" when all did. A frame
        that dynamo began and did not end, a graph that broke, and a piece without a graph run
        eagerly."""
        if self.why:
            return self.why
        counters = torch._dynamo.utils.counters
        frames, broken = counters["frames"], sum(counters["graph_break"].values())
        graphs = counters["stats"]["unique_graphs"]
        if frames["ok"] == frames["total"] and not broken and graphs >= len(PIECES):
            return ""
        return (f"dynamo compiled {frames['ok']} of {frames['total']} frames into {graphs} graphs, "
                f"{broken} breaks")


class TiledLoss(torch.autograd.Function):
    """Mean cross-entropy of a head. Forward computes the gradients too, tile by tile, so that
    logits are computed once."""

    @staticmethod
    def forward(ctx, x, head, labels, piece):
        rows = x.shape[0]
        dx, dhead, total = torch.empty_like(x), torch.zeros_like(head), 0.0
        for begin in range(0, rows, LOSS_ROWS):
            part = slice(begin, begin + LOSS_ROWS)
            tile = x[part]
            loss, gradient = piece(F.linear(tile, head), labels[part], 1.0 / rows)
            total = total + loss
            torch.mm(gradient, head, out=dx[part])
            dhead.addmm_(gradient.t(), tile)
        ctx.save_for_backward(dx, dhead)
        return total / rows

    @staticmethod
    def backward(ctx, outer):
        dx, dhead = ctx.saved_tensors
        return dx.mul_(outer), dhead.mul_(outer), None, None


class Llama(nn.Module):
    """A model with fpdt's parameters; forward returns the mean loss of one sequence."""
    def __init__(self, sizes, tokens, theta, setup, kernel, device):
        super().__init__()
        self.setup, self.kernel = setup, kernel
        self.pieces = Pieces(sizes, device)
        self.offload = Offload(self, device) if setup.offload else None
        hidden, size, inner = sizes["hidden"], sizes["head_dim"], sizes["feed_forward"]
        q, kv = sizes["heads"] * size, sizes["kv_heads"] * size
        shapes = {"weight1": (hidden,), "qkv": (q + 2 * kv, hidden), "out": (hidden, q),
                  "weight2": (hidden,), "up": (2 * inner, hidden), "down": (hidden, inner)}
        make = {"dtype": torch.bfloat16, "device": device}

        def parameter(shape):
            if len(shape) == 1:
                return nn.Parameter(torch.ones(shape, **make))
            return nn.Parameter(torch.empty(shape, **make).normal_(0, 0.02))

        self.embedding = parameter((sizes["vocabulary"], hidden))
        self.layers = nn.ModuleList(
            nn.ParameterDict({name: parameter(shape) for name, shape in shapes.items()})
            for _ in range(sizes["layers"]))
        self.weight, self.head = parameter((hidden,)), parameter((sizes["vocabulary"], hidden))
        frequency = theta ** (-torch.arange(0, size, 2, device=device).float() / size)
        angle = torch.outer(torch.arange(tokens, device=device).float(), frequency)
        self.cos, self.sin = angle.cos()[:, None], angle.sin()[:, None]

    # Weights are not passed as arguments to repeated functions. So only rows are saved, and saving
    # does not change the type of a weight, which torch.compile would notice.

    def _attention(self, x, layer):
        def part(x):
            q, k, v = self.pieces.before(x, layer["weight1"], layer["qkv"], self.cos, self.sin)
            return self.pieces.after(x, attend(q, k, v, self.kernel), layer["out"])

        if self.setup.attention == "kept":
            return part(x)
        selective = {}
        if self.setup.attention == "output":
            def policy(context, op, *_, **__):
                kept = op in ATTENTION_OPS
                return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

            selective["context_fn"] = functools.partial(create_selective_checkpoint_contexts,
                                                        policy)
        return checkpoint(part, x, use_reentrant=False, preserve_rng_state=False, **selective)

    def _mlp(self, h, layer):
        def part(tile):
            return self.pieces.mlp(tile, layer["weight2"], layer["up"], layer["down"])

        if self.setup.mlp_rows == 0:
            return part(h)
        return torch.cat([checkpoint(part, tile, use_reentrant=False, preserve_rng_state=False)
                          for tile in h.split(self.setup.mlp_rows)])

    def forward(self, tokens, labels):
        x = F.embedding(tokens, self.embedding)
        with self.offload or contextlib.nullcontext():
            for layer in self.layers:
                x = self._mlp(self._attention(x, layer), layer)
        return TiledLoss.apply(self.pieces.norm(x, self.weight), self.head, labels,
                               self.pieces.loss)


class Optimizer:
    """fpdt's AdamW: clipping, f32 masters and moments, bf16 weights from the masters, decay of
    matrices."""

    def __init__(self, model, rate=1e-3, decay=0.1):
        self.weights = list(model.parameters())
        self.masters = [weight.detach().float() for weight in self.weights]
        matrices = [m for m in self.masters if m.dim() > 1]
        vectors = [m for m in self.masters if m.dim() == 1]
        fused = {"fused": True} if self.weights[0].is_cuda else {}
        self.adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": decay},
                                        {"params": vectors, "weight_decay": 0.0}],
                                       lr=rate, betas=(0.9, 0.95), **fused)

    def step(self):
        """Returns the norm of the gradients before clipping."""
        norm = nn.utils.clip_grad_norm_(self.weights, 1.0)
        for weight, master in zip(self.weights, self.masters):
            master.grad = weight.grad.float()
            weight.grad = None
        self.adamw.step()
        for master in self.masters:
            master.grad = None
        torch._foreach_copy_([weight.detach() for weight in self.weights], self.masters)
        return norm


class Offload:
    """Large saved tensors wait in pinned host memory. They are copied there on a separate stream
    while forward goes on, and back one tensor ahead of backward. Copies on one stream are in order,
    so a host buffer can be used again as soon as its copy back was issued."""

    def __init__(self, model, device):
        self.cuda = device.type == "cuda"
        self.least = 32 << 20 if self.cuda else 1 << 12
        self.side = torch.cuda.Stream() if self.cuda else None
        self.model, self.free, self.entries, self.bytes = weakref.ref(model), {}, [], 0

    def __enter__(self):
        self.entries = []
        # Weights, their views and the tables of angles are saved too, but stay on the device.
        model = self.model()
        self.stay = {one.untyped_storage().data_ptr()
                     for one in (*model.parameters(), model.cos, model.sin)}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error):
        self.hooks.__exit__(*error)

    @staticmethod
    def _dense(tensor):
        expected = 1
        for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True

    def _on_side(self, copy):
        if not self.cuda:
            copy()
            return None
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            copy()
        return self.side.record_event()

    def _pack(self, tensor):
        size = tensor.numel() * tensor.element_size()
        stays = tensor.untyped_storage().data_ptr() in self.stay
        if size < self.least or stays or not self._dense(tensor):
            return tensor
        key = (tensor.numel(), tensor.dtype)
        buffers = self.free.setdefault(key, [])
        if not buffers:
            buffers.append(torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=self.cuda))
            self.bytes += size
        entry = {"host": buffers.pop().as_strided(tensor.shape, tensor.stride()), "key": key,
                 "device": tensor.device}
        self._on_side(lambda: entry["host"].copy_(tensor, non_blocking=True))
        if self.cuda:
            tensor.record_stream(self.side)
        self.entries.append(entry)
        return len(self.entries) - 1

    def _fetch(self, index):
        entry = self.entries[index]
        host = entry["host"]
        if host is None:
            return
        back = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype,
                                   device=entry["device"])
        ready = self._on_side(lambda: back.copy_(host, non_blocking=True))
        entry.update(host=None, back=back, ready=ready)
        self.free[entry["key"]].append(host.as_strided((host.numel(),), (1,)))

    def _unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        self._fetch(packed)
        entry = self.entries[packed]
        if entry["ready"] is not None:
            torch.cuda.current_stream().wait_event(entry["ready"])
        if packed > 0:
            self._fetch(packed - 1)
        return entry.pop("back")
