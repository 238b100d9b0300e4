"""One page from the records of all items."""
import os

# Subjects of the first lines. The second item replaces the first once it has run.
HEADLINES = (("solo-1m", "solo-1m-2"), ("solo-128k", "solo-128k-2"), ("solo-512k",), ("solo-2m",))
NODE_HEADLINES = ("node-1m", "node-128k", "node-2m")


def _headlines(records):
    for items in HEADLINES:
        found = [records[item]["result"]["whole"] for item in items
                 if records.get(item, {}).get("result", {}).get("whole")]
        if found:
            whole = found[-1]
            yield (f"- **{items[0][5:].upper()} tokens: mfu_causal {100 * whole['mfu_causal']:.1f} "
                   f"%**, {whole['tokens_per_second_per_gpu']:.4g} tokens/s per GPU, "
                   f"{whole['layer_seconds']:.4g} s per layer, predicted "
                   f"{100 * (whole['predicted_seconds'] / whole['seconds'] - 1):+.1f} %; scaled "
                   f"{whole['how']}")
    for item in NODE_HEADLINES:
        one = records.get(item, {}).get("result", {})
        if one.get("measured"):
            yield (f"- **{one['tokens']} tokens, {one['ranks']} ranks, layers: {one['layers']}: "
                   f"{one['measured']['seconds']:.4g} s per step, mfu_causal "
                   f"{100 * one['mfu_causal']:.1f} %**, {one['tokens_per_second_per_gpu']:.4g} "
                   f"tokens/s per GPU, predicted {100 * one['measured']['error']:+.1f} %; bytes "
                   f"{'**not as predicted**' if one['wrong'] else 'as predicted'}")


def page(session, items):
    records = {item.name: session.load(item.name) for item in items}
    versions = records.get("versions", {}).get("result", {})
    title = ("Rehearsal without a GPU: no number here says anything about one"
             if session.rehearse else session.gpu)
    lines = [f"# gpu-check: {title}", ""]
    if versions:
        lines += [f"Commit {versions.get('commit') or 'unknown'}; "
                  f"{versions.get('nvcc') or 'no nvcc'}; torch {versions.get('torch') or 'none'}.",
                  ""]
    headlines = list(_headlines(records))
    lines += headlines + [""] if headlines else []
    lines += ["| item | state | seconds | estimate | |", "|---|---|---|---|---|"]
    for item in items:
        record = records[item.name]
        state = record.get("state", "not tried")
        reason = (record.get("reason") or "").partition("\n")[0][:100]
        seconds = "" if record.get("seconds") is None else record["seconds"]
        lines.append(f"| {item.name} | {state} | {seconds} | {item.napkin} | {reason} |")
    for name, record in records.items():
        if not record or not (record["text"] or record["reason"]):
            continue
        lines += ["", f"## {name}", ""]
        if record["state"] == "skipped":
            lines += [f"Skipped: {record['reason']}.", ""]
        elif record["reason"]:
            lines += [f"{record['state']}:", "```", record["reason"], "```", ""]
        lines += record["text"]
    return "\n".join(lines) + "\n"


def write(session, items):
    """Writes DIR/summary.md and returns it."""
    text = page(session, items)
    beside = session.path("summary.part")
    beside.write_text(text)
    os.replace(beside, session.path("summary.md"))
    return text
