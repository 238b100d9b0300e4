"""The tests of the GPU. One process runs them all; if a test ends that process, another one runs
the rest. compute-sanitizer runs a few suites."""
import re
import shutil

from gpu_check.harness import Failed, Skipped, Wrong

LINE = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?\.[^\s,]+)(?:,.*?)?(?: \((\d+) ms\))?$",
                  re.M)
ALONE = 6  # failed tests that run again, each in its own process
DEATHS = 8  # deaths of the process with all tests, before giving up
# Each with the pattern that counts its findings. API errors are not reported, because tests make
# calls that must fail. Only our kernels are searched for races; the libraries' would take too long.
SANITIZERS = (
    ("memcheck", "AttentionTiles", ["--report-api-errors", "no"], r"ERROR SUMMARY: (\d+) error"),
    ("racecheck", "AttentionTiles", ["--kernel-name", "kernel_substring=fpdt"],
     r"RACECHECK SUMMARY: (\d+) hazard"),
)


def outcomes(output):
    """{test: (word, milliseconds)} from the output of a Google Test program. The word RUN marks a
    test that began and did not end."""
    found = {}
    for word, name, milliseconds in LINE.findall(output):
        if milliseconds or word == "RUN":
            found[name] = word, int(milliseconds or 0)
    return found


def experiments(output):
    """[(test, line)]: the lines that tests of suites named ...Experiment print."""
    found, name = [], None
    for line in output.splitlines():
        mark = LINE.match(line)
        if mark:
            name = mark[2] if mark[1] == "RUN" else None
        elif name and name.partition(".")[0].endswith("Experiment") and line.strip():
            found.append((name, line.strip()))
    return found


def names_of(listing):
    """Full names of tests from --gtest_list_tests."""
    names, suite = [], ""
    for line in listing.splitlines():
        words = line.split()
        if words and line.startswith("  "):
            names.append(suite + words[0])
        elif words and words[0].endswith("."):
            suite = words[0]
    return names


def _program(session):
    if session.test_program is None:
        if session.rehearse:
            raise Skipped("needs a GPU")
        raise Failed("there is no program of tests")
    return session.test_program


def _run_all(session, program, names, found, said):
    """Runs every test once; if a process dies, another one runs the rest. Returns the error to
    raise if some tests were not reached."""
    for _ in range(DEATHS):
        rest = [name for name in names if name not in found]
        if not rest:
            return None
        chosen = "*" if len(rest) == len(names) else ":".join(rest)
        done = session.run(program, f"--gtest_filter={chosen}", codes=None)
        new = outcomes(done.out)
        found.update(new)
        said += experiments(done.out)
        if done.stopped:
            return done.failure("time was up before the last test")
        if not new:
            return Failed(f"no test began ({done.how()})\n{done.tail()}")
    return Failed(f"the process of all tests ended early {DEATHS} times")


def tests(session, result, text):
    """Passes when every test ran and passed."""
    program = _program(session)
    names = names_of(session.run(program, "--gtest_list_tests", limit=60).out)
    found, said = {}, []
    early = _run_all(session, program, names, found, said)
    failed = [name for name, (word, _) in found.items() if word in ("FAILED", "RUN")]
    alone = {}
    for name in failed[:ALONE] if early is None else []:
        done = session.run(program, f"--gtest_filter={name}", limit=30, codes=None)
        alone[name] = done.code == 0
    passed = [name for name, (word, _) in found.items() if word == "OK"]
    left = [name for name in names if name not in found or found[name][0] == "SKIPPED"]
    slowest = sorted(found, key=lambda name: -found[name][1])[:5]
    result.update(tests=len(names), passed=len(passed), failed=failed, left_out=left, alone=alone,
                  milliseconds={name: found[name][1] for name in found}, experiments=said)
    text.append(f"{len(passed)} of {len(names)} passed.")
    for name in failed:
        how = "" if name not in alone else f", alone it {'passes' if alone[name] else 'fails too'}"
        text.append(f"- {'failed' if found[name][0] == 'FAILED' else 'ended the process'}: "
                    f"`{name}`{how}")
    text += [f"- not run: `{name}`" for name in left]
    text += [f"- `{name}` found: {line}" for name, line in said]
    text.append("- slowest: " + ", ".join(f"`{name}` {found[name][1] / 1000:.1f} s"
                                          for name in slowest))
    if early:
        raise early
    if failed:
        raise Wrong(f"{len(failed)} of {len(names)} tests failed")
    if left:
        raise Wrong(f"{len(left)} of {len(names)} tests did not run")


def sanitizer(session, result, text):
    """Runs compute-sanitizer one suite at a time, so that earlier results stand when time is up."""
    program = _program(session)
    if shutil.which("compute-sanitizer") is None:
        raise Skipped("compute-sanitizer was not found")
    dirty, cut = 0, None
    for tool, suite, flags, summary in SANITIZERS:
        done = session.run("compute-sanitizer", "--tool", tool, *flags, "--error-exitcode", "9",
                           program, f"--gtest_filter={suite}.*", codes=None)
        counts = [int(count) for count in re.findall(summary, done.out + done.err)]
        ran = sum(word == "OK" for word, _ in outcomes(done.out).values())
        clean = done.code == 0 and ran > 0 and bool(counts) and counts[-1] == 0
        cut = done.failure("time was up before the last test") if done.stopped else cut
        dirty += not clean and not done.stopped
        result[f"{tool} {suite}"] = {"tests": ran, "exit_code": done.code,
                                     "errors": counts[-1] if counts else None}
        verdict = "clean" if clean else "time was up" if done.stopped else "**not clean**"
        text.append(f"- {tool} {suite}: {verdict} ({ran} tests passed, {done.how()})")
    if dirty:
        raise Wrong(f"{dirty} of {len(result)} runs were not clean")
    if cut:
        raise cut
