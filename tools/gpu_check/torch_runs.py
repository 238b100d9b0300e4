"""PyTorch's side of a comparison. Each function runs in its own process: it finds the fastest
correct attention kernel, trains a few steps of one setup, or times products and attention alone.
The results are JSON values."""
import math
import time

import torch

from gpu_check.llama_torch import SETUPS, Llama, Optimizer, Setup, attend

PROBE_ROWS = 32 << 10
KERNELS = ("cudnn", "flash", "cudnn repeated", "flash repeated")
# Share of the largest number in the checked rows: roundings of bf16 values and probabilities.
KERNEL_TOLERANCE = 0.02
REHEARSED_MLP_ROWS = 128


def _seconds(work, repeats=1):
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - begin) / repeats


def _random_heads(sizes, rows, device):
    """q, k and v of [1, heads, rows, size]; in memory rows come before heads, as projections write
    them."""
    def heads(count):
        shape = (1, rows, count, sizes["head_dim"])
        return torch.randn(shape, dtype=torch.bfloat16, device=device).transpose(1, 2)
    return [heads(sizes[name]).requires_grad_() for name in ("heads", "kv_heads", "kv_heads")]


def _last_rows_error(q, k, v, o, rows=4):
    """Largest error of the last rows of some heads against the definition in f32, relative to their
    largest number."""
    group, error = q.shape[1] // k.shape[1], 0.0
    columns = torch.arange(k.shape[2], device=q.device)
    for head in range(0, q.shape[1], max(1, q.shape[1] // 4)):
        keys, values = k[0, head // group].float(), v[0, head // group].float()
        scores = q[0, head, -rows:].float() @ keys.t() / math.sqrt(q.shape[-1])
        future = columns > columns[-rows:, None]
        right = scores.masked_fill(future, float("-inf")).softmax(-1) @ values
        wrong = (right - o[0, head, -rows:].float()).abs().max() / right.abs().max()
        error = max(error, wrong.item())
    return error


def probe(sizes, tokens, device):
    """The fastest attention kernel, forward and backward, among those that are right at the true
    length. Also returns the times of all kernels, and why some were refused."""
    times, refused = {}, {}
    for kernel in KERNELS if device.type == "cuda" else ("any", "any repeated"):
        try:
            q, k, v = _random_heads(sizes, min(tokens, PROBE_ROWS), device)

            def work():
                torch.autograd.grad(attend(q, k, v, kernel).sum(), (q, k, v))

            work()
            times[kernel] = _seconds(work, 3)
        except RuntimeError as error:
            refused[kernel] = str(error).splitlines()[0]
    result = {"kernel": "any", "rows": min(tokens, PROBE_ROWS), "seconds": times,
              "refused": refused, "memory": None}
    if device.type == "cuda":
        result["memory"] = torch.cuda.mem_get_info()[1]
    for kernel in sorted(times, key=times.get):
        try:
            with torch.no_grad():
                q, k, v = _random_heads(sizes, tokens, device)
                error = _last_rows_error(q, k, v, attend(q, k, v, kernel))
            if error < KERNEL_TOLERANCE:
                return {**result, "kernel": kernel, "error": error}
            refused[kernel] = f"wrong at {tokens} rows: {error:.3g}"
        except RuntimeError as error:
            refused[kernel] = str(error).splitlines()[0]
    return result


def train(name, sizes, tokens, theta, kernel, steps, device):
    """Steps of a setup; `fits` is false when the device has too little memory."""
    torch.manual_seed(1)
    setup, cuda = SETUPS[name], device.type == "cuda"
    if setup.mlp_rows and not cuda:
        setup = Setup(setup.attention, REHEARSED_MLP_ROWS, setup.offload)
    losses, norms, seconds = [], [], []
    try:
        model = Llama(sizes, tokens, theta, setup, kernel, device)
        optimizer = Optimizer(model)
        data = torch.randint(sizes["vocabulary"], (tokens + 1,)).to(device)

        def step():
            loss = model(data[:-1], data[1:])
            loss.backward()
            norms.append(optimizer.step().item())
            losses.append(loss.item())

        for _ in range(steps):
            seconds.append(_seconds(step))
    except torch.OutOfMemoryError as error:
        return {"setup": name, "fits": False, "reason": str(error).splitlines()[0]}
    if not all(math.isfinite(number) for number in losses + norms):
        return {"setup": name, "fits": False, "reason": "loss or gradient is not finite"}
    eager_because = model.pieces.eager_because()
    result = {"setup": name, "fits": True, "seconds": seconds, "losses": losses, "norms": norms,
              "compiled": not eager_because, "eager_because": eager_because,
              "offloaded_bytes": model.offload.bytes if model.offload else 0}
    if cuda:
        free, total = torch.cuda.mem_get_info()
        result.update(allocated_bytes=torch.cuda.max_memory_allocated(),
                      reserved_bytes=torch.cuda.max_memory_reserved(), driver_bytes=total - free)
    return result


def _rate(amount, work, least):
    """Flops or bytes per second, measured for at least this many seconds, so that clocks have
    settled."""
    _seconds(work)
    repeats = max(3, math.ceil(least / max(_seconds(work, 3), 1e-6)))
    return amount / _seconds(work, repeats)


def _tile_rates(sizes, rows, device, least):
    """{op: {kernel: flop/s}} of a tile without a mask, for a rank's quarter of the heads: 4 flops
    per pair and dimension forward, 10 backward. Instead of a number there may be the reason why
    there is none."""
    sizes = {**sizes, "heads": sizes["heads"] // 4, "kv_heads": max(1, sizes["kv_heads"] // 4)}
    pairs = sizes["heads"] * sizes["head_dim"] * rows * rows
    found = {"attention_forward": {}, "attention_backward": {}}
    for kernel in KERNELS if device.type == "cuda" else ("any", ):
        try:
            q, k, v = _random_heads(sizes, rows, device)
            o = attend(q, k, v, kernel, causal=False)
            outer = torch.randn_like(o)

            def forward():
                with torch.no_grad():
                    attend(q, k, v, kernel, causal=False)

            def backward():
                torch.autograd.grad(o, (q, k, v), outer, retain_graph=True)

            found["attention_forward"][kernel] = _rate(4 * pairs, forward, least)
            found["attention_backward"][kernel] = _rate(10 * pairs, backward, least)
        except RuntimeError as error:
            found["attention_forward"][kernel] = str(error).splitlines()[0]
    return found


def _copy_rates(device, least):
    """Bytes a second of copies: on the device, read and written; from and to pinned memory."""
    cuda = device.type == "cuda"
    size = 1 << (30 if cuda else 16)
    here, there = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=cuda)
    return {"copy": _rate(2 * size, lambda: there.copy_(here), least),
            "h2d": _rate(size, lambda: here.copy_(pinned, non_blocking=True), least),
            "d2h": _rate(size, lambda: pinned.copy_(here, non_blocking=True), least)}


def ceiling(sizes, device):
    """The rates of PyTorch's libraries for the ops of a step; `best` uses the bench's names."""
    cuda = device.type == "cuda"
    least = 1.0 if cuda else 0.01
    products, rows = {}, PROBE_ROWS if cuda else 256
    for side in (4096, 8192, 16384) if cuda else (256, ):
        a, b = (torch.randn(side, side, dtype=torch.bfloat16, device=device) for _ in range(2))
        products[f"{side}^3"] = _rate(2 * side**3, lambda: a @ b, least)
        del a, b
    rates = {"matmul": products, **_tile_rates(sizes, rows, device, least)}
    copies = _copy_rates(device, least / 4)
    best, text = dict(copies), []
    for op, ways in rates.items():
        numbers = [rate for rate in ways.values() if not isinstance(rate, str)]
        if numbers:
            best[op] = max(numbers)
        for way, rate in ways.items():
            said = rate if isinstance(rate, str) else f"{rate / 1e12:.4g} TFLOP/s"
            text.append(f"- PyTorch, {op}, {way}: {said}")
    text += [f"- PyTorch, {op}: {rate / 1e12:.4g} TB/s" for op, rate in copies.items()]
    return {"rates": rates, "best": best, "rows": rows, "text": text}
