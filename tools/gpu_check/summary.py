"""One page from the records of all items."""


def write(session, names):
    """Writes DIR/summary.md and returns it."""
    records = {name: session.load(name) for name in names}
    versions = records.get("versions", {}).get("result", {})
    title = ("Rehearsal without a GPU: no number here says anything about one"
             if session.rehearse else session.gpu)
    lines = [f"# gpu-check: {title}", ""]
    if versions:
        lines += [f"Commit {versions.get('commit') or 'unknown'}; "
                  f"{versions.get('nvcc') or 'no nvcc'}; torch {versions.get('torch') or 'none'}.",
                  ""]
    lines += ["| item | state | seconds | |", "|---|---|---|---|"]
    for name, record in records.items():
        if not record:
            lines.append(f"| {name} | not tried | | |")
            continue
        reason = record["reason"].splitlines()[0][:100] if record["reason"] else ""
        lines.append(f"| {name} | {record['state']} | {record['seconds'] or ''} | {reason} |")
    for name, record in records.items():
        if not record or not (record["text"] or record["reason"]):
            continue
        lines += ["", f"## {name}", ""]
        if record["state"] == "skipped":
            lines += [f"Skipped: {record['reason']}.", ""]
        elif record["reason"]:
            lines += [f"{record['state']}:", "```", record["reason"], "```", ""]
        lines += record["text"]
    page = "\n".join(lines) + "\n"
    session.path("summary.md").write_text(page)
    return page
