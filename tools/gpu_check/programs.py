"""The programs that items run: those of tools/bundle-deps if they run here, else built here.

python3 programs.py ROOT prints the digest of the sources of the programs. It tells whether a bundle
was built from these sources.
"""
import hashlib
import os
import pathlib
import subprocess
import sys

NAMES = ("fpdt-plan", "fpdt-run")
TESTS = "cuda_gpu_test"
SOURCES = ("CMakeLists.txt", "cmake", "lib", "runtime", "apps", "tests/cuda", "tests/cpu",
           "tests/train")


def digest(root):
    """The digest of all files that the programs are built from."""
    paths = [root / name for name in SOURCES]
    files = sorted(path for folder in paths for path in [folder, *folder.rglob("*")]
                   if path.is_file())
    hashed = hashlib.sha256()
    for path in files:
        hashed.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def cuda_folders():
    """Folders that may hold CUDA's libraries: PyTorch's wheels first, so that both use the same
    libraries, then the folder beside nvcc."""
    wheels, folders = "import nvidia; print('\\n'.join(nvidia.__path__))", []
    try:
        done = subprocess.run(["python3", "-c", wheels], capture_output=True, text=True, timeout=60)
        folders = [folder for root in done.stdout.split()
                   for folder in sorted(pathlib.Path(root).glob("*/lib"))]
    except (OSError, subprocess.TimeoutExpired):
        pass
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders += [pathlib.Path(root) / name for root in roots if root for name in ("lib64", "lib")]
    return [folder for folder in folders if folder.is_dir()]


def _run_here(session, folder, text):
    """Whether the programs of a folder run on this machine, with CUDA's libraries from
    `cuda_folders` or from where the programs themselves look."""
    if not all((folder / name).exists() for name in NAMES):
        return False
    session.programs = folder
    beside = [path for path in [folder.parent / "lib"] if path.is_dir()]
    for more in (cuda_folders(), []):
        session.library_path = beside + more
        done = [session.run(session.program("fpdt-plan"), "--version", codes=None, limit=20)]
        run = ["--help"] if session.rehearse else ["device", "--json"]
        done.append(session.run(session.program("fpdt-run"), *run, codes=None, limit=60))
        if all(one.code == 0 for one in done):
            return True
    last = next(one for one in reversed(done) if one.code != 0)
    text.append(f"Programs in {folder} do not run here ({last.how()}): "
                f"{last.tail().splitlines()[-1:]}.")
    return False


def _check_sources(session, folder, result, text):
    """Notes on the page that the programs were built from other sources than these, if they
    were."""
    label = folder.parent / "SOURCES"
    if not label.exists():
        return
    result["sources"] = label.read_text().split()
    if result["sources"][0] != digest(session.root):
        text.append("**The prebuilt programs were built from other sources than these**: "
                    f"{' '.join(result['sources'])}.")


def _build(session, result, text, capability):
    options = ["-DCMAKE_BUILD_TYPE=Release"]
    if not session.rehearse:
        options += ["-DFPDT_CUDA=ON"]
        if capability:
            exact = "a" if capability == "90" else ""
            options.append(f"-DFPDT_CUDA_ARCHITECTURES={capability}{exact}-real")
    if (session.root / ".deps").is_dir():
        options.append(f"-DCMAKE_PREFIX_PATH={session.root / '.deps'}")
    session.library_path = []
    session.programs = session.build / "apps"
    session.run("cmake", "-S", session.root, "-B", session.build, "-G", "Ninja", *options)
    make = ["cmake", "--build", session.build, "-j", os.cpu_count(), "--target"]
    session.run(*make, *NAMES)
    if not session.rehearse and session.run(*make, TESTS, codes=None).code != 0:
        text.append("**The tests of the GPU do not build**: see programs.log.")
    result["built"] = options
    text.append("Built with " + " ".join(options) + ".")


def find(session, given, capability):
    """An item that every call runs first."""
    def item(session, result, text):
        prebuilt = [pathlib.Path(given).resolve()] if given else [session.root / ".deps/bin"]
        if session.rehearse and not given:
            prebuilt = [session.build / "apps"]
        for folder in prebuilt:
            if _run_here(session, folder, text):
                _check_sources(session, folder, result, text)
                text.append(f"Those in {folder}.")
                break
        else:
            _build(session, result, text, capability)
        # A rehearsal has no GPU, so it runs only the tests that it is given.
        built = [] if session.rehearse else [session.build / "tests/cuda" / TESTS]
        tests = [session.programs / TESTS, *built]
        session.test_program = next((path for path in tests if path.exists()), None)
        result.update(programs=str(session.programs), tests=str(session.test_program),
                      library_path=[str(path) for path in session.library_path])

    return item


if __name__ == "__main__":
    print(digest(pathlib.Path(sys.argv[1]).resolve()))
