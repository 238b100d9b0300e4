"""A model with fewer layers, its flops, and a whole model's step time from the steps of a few
layers.

Flops are those of lib/fpdt/plan/throughput.h: 6 per parameter and token without look-ups, plus 12 L
H D S per token for attention, or half of that with the causal discount.
"""
import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Model:
    """The sizes in a model file; its other keys stay as they are."""

    text: str
    sizes: dict

    @classmethod
    def load(cls, path):
        text = pathlib.Path(path).read_text()
        sizes = {key: int(value) for key, value in re.findall(r"^(\w+): (\d+)$", text, re.M)}
        sizes.setdefault("kv_heads", sizes["heads"])
        sizes.setdefault("head_dim", sizes["hidden"] // sizes["heads"])
        sizes["tied"] = bool(re.search(r"^tied_embeddings: true$", text, re.M))
        sizes["norm_biases"] = bool(re.search(r"^norm: layer$", text, re.M))
        return cls(text, sizes)

    @property
    def name(self):
        return re.search(r"^name: (.*)$", self.text, re.M)[1]

    @property
    def layers(self):
        return self.sizes["layers"]

    def lookups(self):
        """The number of parameters that take part in no matrix product."""
        table = self.sizes["vocabulary"] * self.sizes["hidden"]
        positions = self.sizes.get("learned_positions", 0) * self.sizes["hidden"]
        return positions + (0 if self.sizes["tied"] else table)

    def layer_parameters(self):
        head = self.sizes["vocabulary"] * self.sizes["hidden"]
        norm = self.sizes["hidden"] * (2 if self.sizes["norm_biases"] else 1)
        in_layers = self.sizes["parameters"] - self.lookups() - head - norm
        assert in_layers % self.layers == 0, "the file's parameters are not of equal layers"
        return in_layers // self.layers

    def with_layers(self, layers):
        """The same model with another number of layers."""
        parameters = self.sizes["parameters"] + (layers - self.layers) * self.layer_parameters()
        text = re.sub(r"^layers: .*$", f"layers: {layers}", self.text, flags=re.M)
        text = re.sub(r"^parameters: .*$", f"parameters: {parameters}", text, flags=re.M)
        text = re.sub(r"^name: (.*)$", rf"name: \g<1>-{layers}-layers", text, flags=re.M)
        return Model(text, {**self.sizes, "layers": layers, "parameters": parameters})

    def flops(self, tokens):
        """Flops of a training step on one sequence, over all ranks: (causal, full square)."""
        products = 6 * (self.sizes["parameters"] - self.lookups())
        attention = 6 * self.layers * self.sizes["heads"] * self.sizes["head_dim"] * tokens
        return tokens * (products + attention), tokens * (products + 2 * attention)


def line(x0, y0, x1, y1, x):
    """The value at x of the line through two points."""
    return y0 + (y1 - y0) / (x1 - x0) * (x - x0)


def whole_seconds(layers, predicted, measured):
    """Seconds of a step of `layers` layers, from {layers: seconds} of predicted and of measured
    steps of fewer layers. Two measured steps give the time of a layer and the rest. With one step,
    or when noise hides a layer, the rest has the predicted ratio to a layer. Returns (seconds,
    seconds of a layer, how it was done)."""
    few, most = min(measured), max(measured)
    if measured[most] > measured[few]:
        layer = (measured[most] - measured[few]) / (most - few)
        how = f"from measured steps of {few} and {most} layers"
    else:
        ends = min(predicted), max(predicted)
        layer = (predicted[ends[1]] - predicted[ends[0]]) / (ends[1] - ends[0])
        layer *= measured[most] / predicted[most]
        how = (f"from a measured step with {most} of them, what is outside of layers in proportion "
               "to its prediction")
    return measured[most] + layer * (layers - most), layer, how


def utilisation(model, tokens, ranks, seconds, peak_flops, executed=None):
    """Shares of the peak over all ranks: model flops with and without the causal discount, and
    executed flops."""
    causal, full = model.flops(tokens)
    total = peak_flops * ranks * seconds
    shares = {"mfu_causal": causal / total, "mfu_full": full / total}
    if executed is not None:
        shares["hfu"] = executed / total
    return shares
