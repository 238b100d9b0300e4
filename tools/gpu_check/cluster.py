"""Cluster files: the one that `fpdt-run bench` measured, and those derived from it."""
import json
import re

# One GPU cannot measure the links and the host memory of a node of such GPUs, which a whole model
# needs. The sources are in configs/clusters/h100-80g-x8.yaml.
LINK = "{typical: 360e9, low: 300e9, high: 400e9}"
COLLECTIVE_SECONDS = "{typical: 4e-6, low: 2e-6, high: 10e-6}"
NODE_HOST_MEMORY = "1945GiB"


def bare(session, name, **keys):
    """A cluster without rates, for planning bytes."""
    path = session.path(f"{name}.yaml")
    keys = {"name": name, "nodes": 1, **keys, "source": "tools/gpu-check"}
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    return path


def machine(session):
    """The cluster of this GPU alone, or of all in the session, and whether its rates were measured
    here. Until then it has published rates."""
    path = session.path("machine.yaml")
    if path.exists():
        return path, True
    several = session.gpus > 1
    card = "h100-80g" if session.gpu and "H100" in session.gpu else "h200-141g"
    name = "cpu-local" if session.rehearse else f"{card}-x{8 if several else 1}"
    published = session.root / f"configs/clusters/{name}.yaml"
    if several:
        return changed(session, published, "published", devices_per_node=session.gpus), False
    return published, False


def changed(session, source, name, **keys):
    """A copy of a cluster file with some top-level keys changed."""
    text = source.read_text()
    for key, value in {"name": name, **keys}.items():
        text, found = re.subn(rf"^{key}:.*$", f"{key}: {value}", text, flags=re.M)
        if not found:
            text = f"{key}: {value}\n{text}"
    path = session.path(f"{name}.yaml")
    path.write_text(text)
    return path


def _typical(text, key):
    found = re.search(rf"^ *{key}: (?:\{{typical: )?([0-9.e+]+)", text, re.M)
    return float(found[1]) if found else None


def _bytes(text, key):
    number, unit = re.search(rf"^ *{key}: ([0-9.]+)([KMGT]?)", text, re.M).groups()
    return float(number) * 1024 ** " KMGT".index(unit or " ")


def source(path):
    """The `source` of a file, without the quotes that YAML needs around a colon, or "nothing"."""
    found = re.search(r"^source: (.*)$", path.read_text(), re.M) if path.exists() else None
    if not found:
        return "nothing"
    return json.loads(found[1]) if found[1].startswith('"') else found[1]


def peak_flops(path):
    return _typical(path.read_text(), "peak_flops")


def rates(path, keys):
    """Typical rates, by key, of those that the file has."""
    found = {key: _typical(path.read_text(), key) for key in keys}
    return {key: rate for key, rate in found.items() if rate is not None}


def outside_bytes(path):
    """Bytes outside of the arena of a rank that has a GPU, but for those of NCCL."""
    text = path.read_text()
    return sum(_bytes(text, key) for key in ("context", "libraries", "workspace"))


def of_ranks(session, ranks, solo):
    """A cluster of `ranks` GPUs like this one in a node, each with this machine's host memory. With
    `solo` each link gets the rate of a rank alone: a copy on its own device, which reads and writes
    its own part too."""
    source, _ = machine(session)
    text = source.read_text()
    link = LINK
    if solo:
        link = f"{_typical(text, 'device_bandwidth') / 2 * (ranks - 1) / ranks:.4g}"
    host = int(_bytes(text, "host_memory") * ranks / 2**20)
    path = changed(session, source, f"machine-{'solo' if solo else 'node'}-{ranks}",
                   devices_per_node=ranks, host_memory=f"{host}MiB")
    text = re.sub(r"^  (link|collective_seconds):.*\n", "", path.read_text(), flags=re.M)
    added = f"rates:\n  link: {link}\n  collective_seconds: {COLLECTIVE_SECONDS}\n"
    path.write_text(re.sub(r"^rates:\n", added, text, flags=re.M))
    return path
