"""Seeded faults: the list, its hooks and the document agree, and a run judges what test programs do."""

from __future__ import annotations

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_snapshots import REPOSITORY

from tools import run_seeded_faults as faults
from tools.errors import ToolError

CASE = '<testcase classname="{}" name="{}">{}</testcase>'


def rows() -> dict[str, list[str]]:
    """Cells of the document's table by the fault's name."""
    text = faults.DOCUMENT.read_text(encoding="utf-8").partition(faults.BEGIN)[2].partition(faults.END)[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row for row in cells}


def cases_of_the_tests() -> set[str]:
    """Every Suite.Case that a test program defines."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("tests/**/*.cc"))
    found = re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", sources, re.MULTILINE)
    return {f"{suite}.{case}" for suite, case in found}


def test_the_table_says_what_it_was_made_from() -> None:
    text = faults.DOCUMENT.read_text(encoding="utf-8").partition(faults.BEGIN)[2]
    pattern = r"\nCommit [0-9a-f]{12}(-dirty)?, \d{4}-\d\d-\d\d:\n\n\| fault "
    assert re.match(pattern, text)
    assert re.match(pattern, f"\n{faults.source_line()}\n\n{faults.table([])}")


def test_the_cases_in_the_table_exist() -> None:
    named = {re.sub(r" \(.*\)", "", case) for row in rows().values() for cell in row[4:] for case in cell.split("<br>")}
    cases = {name for name in named if "." in name}
    assert len(cases) >= 30
    assert cases <= cases_of_the_tests(), "renamed or gone; run make faults"
    assert {name for name in named - cases if not name.startswith(("and ", "–"))} <= {
        "gates_demo", *(f"gates_demo {gate}" for gate in ("phase0", "phase1", "snapshot"))
    }


def test_a_name_is_its_enumerator() -> None:
    known = faults.known_faults()
    assert len(known) >= 20
    assert len({fault.name for fault in known}) == len(known)
    for fault in known:
        assert fault.enumerator == "k" + fault.name.title().replace("_", "")


def test_every_line_of_the_list_is_read() -> None:
    listed = re.findall(r"^  X\(", faults.HEADER.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(faults.known_faults()) == len(listed)


def test_every_fault_is_planted_and_the_document_says_where_and_that_it_is_killed() -> None:
    table = rows()
    assert list(table) == [fault.name for fault in faults.known_faults()], "stale; run make faults"
    for fault in faults.known_faults():
        where = faults.hooks(fault)
        assert where, f"{fault.name} is planted nowhere"
        assert table[fault.name][1:3] == [fault.what, "<br>".join(where)], "stale; run make faults"
        assert int(table[fault.name][3]) > 0


def test_the_tests_that_run_are_known_to_cmake() -> None:
    scripts = "".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("tests/*/CMakeLists.txt"))
    for name in (*faults.TESTS, *faults.FIXTURES):
        assert re.search(rf"(?:kipp_add_test\(|add_test\(NAME ){name}\b", scripts)


def program(tmp_path: Path, script: str, name: str = "engine_test") -> faults.Program:
    path = tmp_path / name
    path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\nfault = os.environ.get('KIPP_SEEDED_FAULT')\n"
                    f"def report(text):\n    open(os.environ['GTEST_OUTPUT'][4:], 'w').write(text)\n{script}\n")
    path.chmod(0o755)
    return faults.Program(name, (str(path),), str(tmp_path))


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path("/proc", str(pid), "status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


def failed_cases(tested: faults.Program, timeout_s: float = 60.0) -> set[str]:
    return set(faults.run_program(tested, "stale_prefix", timeout_s).failed)


def test_cases_come_from_the_report(tmp_path: Path) -> None:
    cases = [CASE.format("A", "Passes", ""), CASE.format("A", "Fails", "<failure/>"),
             CASE.format("Backends/RopeTest", "Rotates/oracle", "<failure/>")]
    text = f"<testsuites>{''.join(cases)}</testsuites>"
    outcome = faults.run_program(program(tmp_path, f"report({text!r}); sys.exit(1)"), "stale_prefix", 60.0)
    assert outcome.failed == {"A.Fails", "RopeTest.Rotates"}
    assert outcome.num_cases == 3


def test_a_crash_is_named_with_its_case(tmp_path: Path) -> None:
    script = ("print('[ RUN      ] A.Fails\\n[  FAILED  ] A.Fails (3 ms)')\n"
              "print('[ RUN      ] A.Crashes', flush=True)\nos.kill(os.getpid(), signal.SIGABRT)")
    assert failed_cases(program(tmp_path, script)) == {"A.Fails", "A.Crashes (crash: SIGABRT)"}


def test_a_hang_is_named_with_its_case_and_ended_with_its_children(tmp_path: Path) -> None:
    script = ("child = os.fork()\nif child:\n    open('child', 'w').write(str(child))\n"
              "    print('[ RUN      ] A.Hangs', flush=True)\ntime.sleep(600)")
    assert failed_cases(program(tmp_path, script), 1.0) == {"A.Hangs (timeout)"}
    end = time.monotonic() + 30.0
    while is_running(int((tmp_path / "child").read_text())):  # killed, but perhaps not yet gone
        assert time.monotonic() < end
        time.sleep(0.01)


def test_gates_are_cases(tmp_path: Path) -> None:
    script = "print('phase1     FAILED     0.2 s\\n  reason\\nphase2     passed     0.1 s'); sys.exit(1)"
    assert failed_cases(program(tmp_path, script, "gates_demo")) == {"gates_demo phase1"}
    assert failed_cases(program(tmp_path, "sys.exit(3)", "gates_demo")) == {"gates_demo (exit 3)"}


def test_a_program_that_passes_kills_nothing(tmp_path: Path) -> None:
    report = f"<testsuites>{CASE.format('A', 'Passes', '')}</testsuites>"
    assert not failed_cases(program(tmp_path, f"report({report!r})"))
    assert not failed_cases(program(tmp_path, "pass", "gates_demo"))


def test_the_fault_reaches_the_program_and_its_kind(tmp_path: Path) -> None:
    fault = faults.known_faults()[0]
    tested = program(tmp_path, f"sys.exit(int(fault == {fault.name!r}))", "kv_test")
    baseline = {"kv_test": faults.run_program(tested, None, 60.0)}
    assert not baseline["kv_test"].failed
    with ThreadPoolExecutor(2) as pool:
        futures = faults.start_fault(fault, [tested], baseline, pool)
    killers = faults.killers_of({name: future.result() for name, future in futures.items()})
    assert killers == {"units": ["kv_test (exit 1)"], "sessions and steps": [], "gates": []}


def test_a_kill_by_timeouts_alone_is_tried_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the fault the program hangs once, as on a busy machine, and passes when it is run again."""
    monkeypatch.setattr(faults, "MIN_TIMEOUT_S", 1.0)
    monkeypatch.setattr(faults, "TIMEOUT_FACTOR", 0.0)
    script = "if fault and not os.path.exists('hung'):\n    open('hung', 'w').close()\n    time.sleep(600)"
    fault = faults.known_faults()[0]
    with ThreadPoolExecutor(1) as pool:
        results = faults.run_faults([fault], [program(tmp_path, script, "kv_test")], pool)
    assert results == [(fault, {kind: [] for kind in faults.KINDS})]
    assert f"{fault.name}, alone: killed by 0" in capsys.readouterr().out


def test_one_real_failure_needs_no_second_run() -> None:
    def outcomes(*cases: str) -> dict[str, faults.Outcome]:
        return {"kv_test": faults.Outcome(frozenset(cases), 1, 1.0)}

    assert faults.is_doubtful(outcomes("A.A (timeout)", "B.B (timeout)"))
    assert not faults.is_doubtful(outcomes("A.A (timeout)", "B.B (crash: SIGSEGV)"))
    assert not faults.is_doubtful(outcomes("A.A"))
    assert not faults.is_doubtful(outcomes())


def test_the_table_counts_and_shortens() -> None:
    fault = faults.known_faults()[0]
    killers = {"units": ["A.A", "A.B", "A.C"], "sessions and steps": ["B.A"], "gates": []}
    lines = faults.table([(fault, killers), (fault, {kind: [] for kind in killers})]).splitlines()
    assert lines[2].endswith("| 4 | A.A<br>A.B<br>and 1 more | B.A | – |")
    assert lines[3].endswith("| **survives** | – | – | – |")


def test_only_a_build_with_faults_is_run(tmp_path: Path) -> None:
    (tmp_path / "CMakeCache.txt").write_text("KIPP_SEEDED_FAULTS:BOOL=OFF\n")
    for build in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ToolError, match="not a seeded-fault build"):
            faults.test_programs(build)


def test_faults_are_chosen_by_name() -> None:
    assert faults.chosen([]) == list(faults.known_faults())
    assert [fault.name for fault in faults.chosen(["stale_reset", "stale_prefix"])] == ["stale_reset", "stale_prefix"]
    with pytest.raises(ToolError, match="no fault no_such_fault; known are block_read_off_by_one, "):
        faults.chosen(["no_such_fault"])
