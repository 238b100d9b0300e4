"""All results as one file to take away. It is rewritten after each item. A folder that holds
nothing else is restored from it."""
import io
import os
import tarfile

NAME = "results.tar.gz"
KEPT = ("*.json", "*.log", "*.md", "*.yaml", "*.html")
MOST_BYTES = 12 << 20  # a larger archive goes without pictures


def _packed(paths):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in sorted(paths):
            archive.add(path, arcname=path.name)
    return file.getvalue()


def write(folder, target):
    """Writes the whole archive or nothing."""
    kept = {path for pattern in KEPT for path in folder.glob(pattern)}
    content = _packed(kept)
    if len(content) > MOST_BYTES:
        content = _packed(path for path in kept if path.suffix != ".html")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.part")
    beside.write_bytes(content)
    os.replace(beside, target)


def unpack(folder):
    """Returns whether there was an archive to continue from."""
    source = folder / NAME
    if not source.exists() or any(folder.glob("*.json")):
        return False
    with tarfile.open(source) as archive:
        for member in archive:
            if member.isfile() and "/" not in member.name:
                (folder / member.name).write_bytes(archive.extractfile(member).read())
    return True
