#!/usr/bin/env python3
"""Draws one block of a schedule on its lanes, every op equally long, every edge of the call an arc.

docs/images/forward.py build/tour/out/schedule.json forward > docs/images/forward.svg
"""
import json
import sys

UNIT, TALL, GAP, LEFT, TOP = 27, 84, 26, 104, 64
LANES = {"comm.0": "comm.0", "compute.0": "compute.0", "h2d.0": "h2d.0", "d2h.0": "d2h.0"}
NOTES = {"comm.0": "all-to-all", "compute.0": "kernels", "h2d.0": "host to device", "d2h.0": "device to host"}
COLOURS = ["#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb"]
SHORT = {"layer_input_new": "x", "layer_input": "x", "kv_new": "kv"}


def chunk(name):
    """The chunk that an op works on: the first number of its name."""
    return next(int(part) for part in name.split(".") if part.isdigit())


def label(name):
    """fetch_layer_input.1.1 -> fetch x 1; attn.1.0 stays attn 1.0."""
    for verb in ("fetch_", "spill_"):
        if name.startswith(verb):
            what, *numbers = name[len(verb):].split(".")
            return f"{verb[:-1]} {SHORT.get(what, what)} {numbers[0]}"
    word, *numbers = name.split(".")
    keep = numbers if word == "attn" else numbers[:1]
    return f"{word} {'.'.join(keep)}"


def times(ops):
    """When each op begins, if each takes one unit: after its lane and after what it awaits."""
    begin, free = {}, {lane: 0 for lane in LANES}
    for op in ops:
        awaited = [begin[name] + 1 for name in op.get("after", []) if name in begin]
        begin[op["op"]] = max([free[op["lane"]]] + awaited)
        free[op["lane"]] = begin[op["op"]] + 1
    return begin


def draw(block):
    ops = block["ops"]
    begin = times(ops)
    lane_of = {op["op"]: op["lane"] for op in ops}
    top = {lane: TOP + i * (TALL + GAP) for i, lane in enumerate(LANES)}
    width = LEFT + UNIT * (max(begin.values()) + 1) + 16
    height = TOP + len(LANES) * (TALL + GAP) + 22
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="12" y="26" font-size="17">Forward of one layer in 3 chunks, one rank of 2: '
           f'lanes run by themselves, and wait where an arc ends</text>']
    for i, word in enumerate(("chunk 0", "chunk 1", "chunk 2")):
        x = LEFT + i * 92
        out.append(f'<rect x="{x}" y="38" width="14" height="14" fill="{COLOURS[i]}" stroke="#555"/>')
        out.append(f'<text x="{x + 20}" y="50" font-size="13">{word}</text>')
    for lane, y in top.items():
        out.append(f'<line x1="{LEFT}" x2="{width - 12}" y1="{y + TALL}" y2="{y + TALL}" stroke="#ccc"/>')
        out.append(f'<text x="12" y="{y + TALL / 2}" font-size="14">{LANES[lane]}</text>')
        out.append(f'<text x="12" y="{y + TALL / 2 + 16}" font-size="11" fill="#666">{NOTES[lane]}</text>')
    for op in ops:
        x, y = LEFT + UNIT * begin[op["op"]], top[op["lane"]]
        colour = COLOURS[chunk(op["op"]) % len(COLOURS)]
        out.append(f'<rect x="{x + 1}" y="{y}" width="{UNIT - 2}" height="{TALL}" fill="{colour}" '
                   f'stroke="#555" stroke-width="0.8"/>')
    for op in ops:
        for name in op.get("after", []):
            if name not in begin:
                continue
            x1, x2 = LEFT + UNIT * (begin[name] + 1) - 1, LEFT + UNIT * begin[op["op"]] + 2
            down = top[op["lane"]] > top[lane_of[name]]
            y1 = top[lane_of[name]] + (TALL if down else 0)
            y2 = top[op["lane"]] + (0 if down else TALL)
            bend = (y2 - y1) / 2
            out.append(f'<path d="M{x1} {y1} C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}" fill="none" '
                       f'stroke="#b22" stroke-width="1.3" opacity="0.7"/>')
            out.append(f'<circle cx="{x2}" cy="{y2}" r="2.6" fill="#b22"/>')
    for op in ops:
        x, y = LEFT + UNIT * begin[op["op"]], top[op["lane"]]
        out.append(f'<text transform="translate({x + UNIT / 2 + 4} {y + TALL - 5}) rotate(-90)" '
                   f'font-size="12">{label(op["op"])}</text>')
    out.append(f'<text x="{LEFT}" y="{height - 8}" font-size="12" fill="#666">attn i.j: query chunk i with '
               f'key chunk j. Every op is drawn equally long; waits for earlier blocks are left out.</text>')
    return "\n".join(out + ["</svg>"])


def main():
    path, name = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        schedule = json.load(file)
    print(draw(next(block for block in schedule["blocks"] if block["name"] == name)))


main()
