"""Runs the C++ tests of the seeded-fault build without a fault and with each one, and writes docs/seeded-faults.md.

Exit status 1 if a fault survived, or if a test fails without one. `make faults` builds and calls this. With names of
faults only those run, and the document stays as it is; how a fault is added stands there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.atomic_file import write_file
from tools.command import run_command
from tools.errors import ToolError
from tools.marked_block import replace_block

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "src" / "base" / "seeded_fault.h"
DOCUMENT = ROOT / "docs" / "seeded-faults.md"
BEGIN = "<!-- begin: made by tools/run_seeded_faults.py -->"
END = "<!-- end -->"

# ctest's names of what runs, and the column of the table.
KINDS = ("units", "sessions and steps", "gates")
TESTS = {"gguf_test": KINDS[0], "kv_test": KINDS[0], "ops_test": KINDS[0], "rope_golden_test": KINDS[0],
         "sampling_test": KINDS[0], "engine_test": KINDS[1], "gates_test": KINDS[2], "gates_demo": KINDS[2]}
# Left out, or a run would take an hour: what is slow and shows nothing about numbers, and on the demo those gates that
# gates_test runs on a twin.
GTEST_FILTERS = {"gguf_test": "-Tensors.*", "gates_test": "-Cancel.*"}
LEFT_OUT_FLAGS = {"--phase2", "--placement"}
FIXTURES = ("twin_artifacts", "demo_artifact")
SHOWN_KILLERS = 2  # a column
BASELINE_TIMEOUT_S = 900.0  # without a fault; what has not ended by then hangs
MIN_TIMEOUT_S = 60.0
TIMEOUT_FACTOR = 5.0  # of the time without a fault: a hang is a kill, a busy machine is not
TIMEOUT = "timeout"


@dataclass(frozen=True)
class Fault:
    enumerator: str
    name: str
    what: str


@dataclass(frozen=True)
class Program:
    """One test of ctest."""

    name: str
    command: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class Outcome:
    """Cases of a program that failed; a crash or a hang is part of the name of the case that it ended."""

    failed: frozenset[str]
    num_cases: int
    seconds: float


Result = tuple[Fault, dict[str, list[str]]]  # a fault and its killers of each kind


def known_faults() -> tuple[Fault, ...]:
    text = HEADER.read_text(encoding="utf-8")
    return tuple(Fault(*entry) for entry in re.findall(r'X\((k\w+), "(\w+)", "([^"]+)"\)', text))


def hooks(fault: Fault) -> list[str]:
    """Files of src that plant the fault, as paths from there."""
    call = f"seeded(Fault::{fault.enumerator})"
    sources = sorted([*(ROOT / "src").rglob("*.cc"), *(ROOT / "src").rglob("*.h")])
    return [str(path.relative_to(ROOT / "src")) for path in sources
            if path != HEADER and call in path.read_text(encoding="utf-8")]


def test_programs(build: Path) -> list[Program]:
    cache = build / "CMakeCache.txt"
    if not cache.is_file() or "KIPP_SEEDED_FAULTS:BOOL=ON" not in cache.read_text(encoding="utf-8"):
        raise ToolError(f"{build}: not a seeded-fault build; expected one of the CMake preset faults (make faults)")
    listing = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], stdout=subprocess.PIPE,
                             check=False)
    if listing.returncode != 0:
        raise ToolError(f"{build}: ctest cannot list the tests")
    found = {test["name"]: test for test in json.loads(listing.stdout)["tests"]}
    programs = []
    for name in TESTS:
        if "command" not in found.get(name, {}):
            raise ToolError(f"{build}: test {name} is not built")
        folders = [entry["value"] for entry in found[name]["properties"] if entry["name"] == "WORKING_DIRECTORY"]
        command = tuple(word for word in found[name]["command"] if word not in LEFT_OUT_FLAGS)
        programs.append(Program(name, command, folders[0]))
    return programs


def plain_name(case: str) -> str:
    """A parameterised case without the names of its instance: Backends/RopeTest.Rotates/oracle is RopeTest.Rotates."""
    suite, _, test = case.partition(".")
    return f"{suite.rpartition('/')[2]}.{test.partition('/')[0]}"


def cases_of_report(report: Path) -> tuple[frozenset[str], int]:
    """Failed cases and the number of all, from the XML that gtest writes when it comes to its end."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None]
    return frozenset(plain_name(f"{case.get('classname')}.{case.get('name')}") for case in failed), len(cases)


def cases_of_output(name: str, output: str, ending: str) -> frozenset[str]:
    """What a program without a report said: gates that failed, gtest cases that did, and the case that it ended in."""
    gates = {f"{name} {phase}" for phase in re.findall(r"^(\w+) +FAILED +[\d.]+ s", output, re.MULTILINE)}
    failed = {plain_name(case) for case in re.findall(r"^\[  FAILED  \] (\S+\.\S+?),? \(", output, re.MULTILINE)}
    started = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    if started:
        return frozenset(failed | {f"{plain_name(started[-1])} ({ending})"})
    return frozenset(gates or {f"{name} ({ending})"})


def stop(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)  # a group of its own: the children of death tests too
    process.wait()


def run_program(program: Program, fault: str | None, timeout_s: float) -> Outcome:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("KIPP_", "GTEST_"))}
    if fault is not None:
        environment["KIPP_SEEDED_FAULT"] = fault
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kipp-faults-") as folder:
        report, output = Path(folder) / "report.xml", Path(folder) / "output"
        environment |= {"GTEST_OUTPUT": f"xml:{report}", "GTEST_COLOR": "no", "TMPDIR": folder,
                        "GTEST_FILTER": GTEST_FILTERS.get(program.name, "*")}
        with output.open("wb") as stream:
            process = subprocess.Popen(program.command, cwd=program.folder, env=environment, process_group=0,
                                       stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
            try:
                status = process.wait(timeout_s)
                ending = f"crash: {signal.Signals(-status).name}" if status < 0 else f"exit {status}"
            except subprocess.TimeoutExpired:
                stop(process)
                status, ending = -1, TIMEOUT
            except BaseException:
                stop(process)
                raise
        failed, num_cases = cases_of_report(report) if status >= 0 and report.exists() else (frozenset(), 1)
        if status != 0 and not failed:
            failed = cases_of_output(program.name, output.read_text(encoding="utf-8", errors="replace"), ending)
    return Outcome(failed, num_cases, time.monotonic() - start)


def make_artifacts(build: Path) -> None:
    names = "|".join(FIXTURES)
    done = subprocess.run(["ctest", "--test-dir", str(build), "-R", f"^({names})$", "--output-on-failure"], check=False)
    if done.returncode != 0:
        raise ToolError("the artifacts of the tests cannot be made")


def run_without_fault(programs: list[Program], pool: ThreadPoolExecutor) -> dict[str, Outcome]:
    found = pool.map(lambda program: run_program(program, None, BASELINE_TIMEOUT_S), programs)
    outcomes = {program.name: outcome for program, outcome in zip(programs, found, strict=True)}
    failed = sorted(case for outcome in outcomes.values() for case in outcome.failed)
    if failed:
        raise ToolError(f"without a fault {len(failed)} test cases fail, the first is {failed[0]}")
    return outcomes


def time_limit(baseline: Outcome) -> float:
    return max(MIN_TIMEOUT_S, TIMEOUT_FACTOR * baseline.seconds)


def start_fault(
    fault: Fault, programs: list[Program], baseline: dict[str, Outcome], pool: ThreadPoolExecutor
) -> dict[str, Future[Outcome]]:
    """Outcomes to come, by the program's name."""
    return {program.name: pool.submit(run_program, program, fault.name, time_limit(baseline[program.name]))
            for program in programs}


def is_doubtful(outcomes: dict[str, Outcome]) -> bool:
    """Whether nothing but timeouts speaks against the fault, which a machine that is busy enough brings about, too."""
    failed = [case for outcome in outcomes.values() for case in outcome.failed]
    return bool(failed) and all(case.endswith(f"({TIMEOUT})") for case in failed)


def run_alone(fault: Fault, programs: list[Program], baseline: dict[str, Outcome]) -> dict[str, Outcome]:
    return {program.name: run_program(program, fault.name, time_limit(baseline[program.name])) for program in programs}


def killers_of(outcomes: dict[str, Outcome]) -> dict[str, list[str]]:
    """Killers of each kind, sorted."""
    killers: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for name, outcome in outcomes.items():
        killers[TESTS[name]] |= outcome.failed
    return {kind: sorted(cases) for kind, cases in killers.items()}


def run_faults(faults: list[Fault], programs: list[Program], pool: ThreadPoolExecutor) -> list[Result]:
    start = time.monotonic()
    baseline = run_without_fault(programs, pool)
    num_cases = sum(outcome.num_cases for outcome in baseline.values())
    print(f"no fault: {num_cases} test cases pass, {time.monotonic() - start:.0f} s", flush=True)
    started = [start_fault(fault, programs, baseline, pool) for fault in faults]
    found = []
    for fault, futures in zip(faults, started, strict=True):
        found.append({name: future.result() for name, future in futures.items()})
        counts = ", ".join(f"{len(cases)} {kind}" for kind, cases in killers_of(found[-1]).items())
        print(f"{fault.name}: killed by {counts}; {time.monotonic() - start:.0f} s", flush=True)
    results = []
    for fault, outcomes in zip(faults, found, strict=True):
        if is_doubtful(outcomes):  # now that nothing else runs
            outcomes = run_alone(fault, programs, baseline)
            print(f"{fault.name}, alone: killed by {sum(len(one.failed) for one in outcomes.values())}", flush=True)
        results.append((fault, killers_of(outcomes)))
    return results


def killers_cell(cases: list[str]) -> str:
    shown = cases[:SHOWN_KILLERS]
    hidden = len(cases) - len(shown)
    return "<br>".join([*shown, *([f"and {hidden} more"] if hidden else [])]) or "–"


def table(results: list[Result]) -> str:
    lines = [f"| fault | what goes wrong | where (`src/`) | killed by | {' | '.join(KINDS)} |",
             "|---|---|---|---:|" + "---|" * len(KINDS)]
    for fault, killers in results:
        count = sum(map(len, killers.values()))
        cells = [f"`{fault.name}`", fault.what, "<br>".join(hooks(fault)), str(count) if count else "**survives**"]
        lines.append("| " + " | ".join([*cells, *(killers_cell(killers[kind]) for kind in KINDS)]) + " |")
    return "\n".join(lines)


def source_line() -> str:
    """What the table was made from, and when."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return f"Commit {commit}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}:"


def updated(document: str, content: str) -> str:
    try:
        return replace_block(document, BEGIN, END, content)
    except ToolError as error:
        raise ToolError(f"{DOCUMENT}: {error}") from None


def chosen(names: list[str]) -> list[Fault]:
    known = {fault.name: fault for fault in known_faults()}
    for name in names:
        if name not in known:
            raise ToolError(f"there is no fault {name}; known are {', '.join(known)}")
    return [known[name] for name in names] or list(known.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="only these, and leave the document as it is")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "faults", help="build folder of the preset")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="test programs at a time")
    args = parser.parse_args()
    faults = chosen(args.faults)
    programs = test_programs(args.build)
    make_artifacts(args.build)
    pool = ThreadPoolExecutor(args.jobs)
    try:
        results = run_faults(faults, programs, pool)
    finally:  # after Ctrl-C, what runs comes to its end and nothing else begins
        pool.shutdown(cancel_futures=True)
    survivors = [fault.name for fault, killers in results if not any(killers.values())]
    if not args.faults:
        content = f"{source_line()}\n\n{table(results)}"
        write_file(DOCUMENT, updated(DOCUMENT.read_text(encoding="utf-8"), content).encode())
    print(f"{len(faults) - len(survivors)} of {len(faults)} faults killed", *(f"{name} survives" for name in survivors),
          sep="; ")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(run_command(main))
