"""Coverage of the parsers: the report is read right, the list is complete, and the document is what the tool wrote."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_snapshots import REPOSITORY

from tools import parser_coverage as coverage
from tools.errors import ToolError

LISTED = {path for paths in coverage.PARSERS.values() for path in paths}

# Calls that bring bytes in, and who makes them without being a parser.
READS = re.compile(r"parse_json\(|MappedFile::open|SafetensorsFile::open|std::ifstream|[^:\w]::read\(|LineReader\b")
NO_PARSERS = {
    "src/base/json_values.cc": "writes only",
    "src/base/machine.cc": "reads what the kernel says about the machine",
    "src/backend/cuda/limit_probe.cc": "reads what the driver says about itself",
    "src/gates/record.cc": "reads what the kernel says about the machine",
    "src/gates/snapshot.cc": "compares a file's bytes with those that it made",
    "src/cli/chat.cc": "hands each line to the chat commands or to the model",
    "src/cli/line_editor.cc": "keys at a terminal; libedit reads them",
    "src/cli/process_memory.cc": "reads what the kernel says about the process",
    "src/tokenizer/unicode_tables.cc": "data",
}


def files(*patterns: str) -> set[str]:
    return {path.relative_to(REPOSITORY).as_posix() for pattern in patterns for path in REPOSITORY.glob(pattern)}


def test_no_file_is_listed_twice_and_each_is_there() -> None:
    paths = [path for paths in coverage.PARSERS.values() for path in paths]
    assert len(paths) == len(set(paths))
    assert [path for path in paths if not (REPOSITORY / path).is_file()] == []


def test_the_folders_of_the_parsers_are_listed_whole() -> None:
    assert files("src/gguf/*.cc", "src/tokenizer/*.cc", "src/base/json*.cc") <= LISTED | NO_PARSERS.keys()


def test_whoever_reads_is_listed() -> None:
    readers = {path for path in files("src/**/*.cc") if READS.search((REPOSITORY / path).read_text(encoding="utf-8"))}
    assert len(readers) >= 10
    assert readers - LISTED == NO_PARSERS.keys() & readers


def test_what_a_fuzzer_compiles_is_listed_or_only_writes() -> None:
    text = (REPOSITORY / "tests" / "fuzz" / "CMakeLists.txt").read_text(encoding="utf-8")
    compiled = {f"src/cli/{name}" for name in re.findall(r"\$\{cli\}/(\w+\.cc)", text)}
    compiled |= set(re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(src/\w+/\w+\.cc)", text))
    assert compiled - LISTED == {"src/cli/interrupt.cc", "src/cli/output.cc"}


def test_reasons_are_for_lines_that_are_there() -> None:
    for path, reasons in coverage.REASONS.items():
        assert path in LISTED
        lines = {line.strip() for line in (REPOSITORY / path).read_text(encoding="utf-8").splitlines()}
        assert [line for line in reasons if line not in lines] == []


def test_the_document_has_every_parser_at_the_bound_and_every_reason() -> None:
    text = coverage.DOCUMENT.read_text(encoding="utf-8").partition(coverage.BEGIN)[2].partition(coverage.END)[0]
    tables = [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]
              for table in text.strip().split("\n\n")]
    parsers = {row[0]: (float(row[2]), tuple(re.findall(r"`([^`]+)`", row[3]))) for row in tables[0]}
    assert {name: paths for name, (_, paths) in parsers.items()} == coverage.PARSERS, "stale; run make coverage"
    assert min(share for share, _ in parsers.values()) >= coverage.BOUND
    explained = {(row[0].strip("`"), row[2]) for row in tables[1]}
    reasons = {(path, why) for path, reasons in coverage.REASONS.items() for why in reasons.values()
               if why is not coverage.TIMED}
    assert reasons <= explained, "stale; run make coverage"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.cc").write_text("f() {\n  one;\n\n  two;\n}\ng() {\n  three || four;\n}\n", encoding="utf-8")
    monkeypatch.setattr(coverage, "PARSERS", {"a": ("a.cc",)})
    monkeypatch.setattr(coverage, "REASONS", {})
    return tmp_path


def export(repository: Path, *times: int) -> str:
    """Lines 1, 2, 4, 5, … of a.cc ran so many times; line 3 has no code."""
    lines = [f"DA:{number},{count}" for number, count in zip((1, 2, 4, 5, 6, 7, 8), times, strict=True)]
    return "\n".join(["SF:/usr/include/other.h", "DA:1,0", "end_of_record", f"SF:{repository}/a.cc", "FN:1,f", *lines,
                      "LF:7", "end_of_record"])


def test_lines_of_the_repository_are_counted_and_no_others(repository: Path) -> None:
    counts = coverage.read_counts(export(repository, 1, 2, 3, 4, 0, 0, 0), repository)
    assert counts == {"a.cc": {1: 1, 2: 2, 4: 3, 5: 4, 6: 0, 7: 0, 8: 0}}


def test_a_file_that_is_reported_twice_is_counted_once(repository: Path) -> None:
    twice = export(repository, 1, 0, 0, 1, 1, 1, 1) + "\n" + export(repository, 0, 0, 5, 0, 0, 0, 0)
    assert coverage.read_counts(twice, repository)["a.cc"] == {1: 1, 2: 0, 4: 5, 5: 1, 6: 1, 7: 1, 8: 1}


def test_below_the_bound_is_a_problem_and_names_the_gap(repository: Path) -> None:
    counts = coverage.read_counts(export(repository, 1, 1, 1, 1, 0, 0, 0), repository)
    tables, problems = coverage.report(counts, repository)
    assert "| a | 7 | 57.1 | `a.cc` 57.1 |" in tables
    assert "| `a.cc` | `g() {` and 2 more | ? |" in tables
    assert problems[0] == "a: 57.1 % of its lines ran, expected at least 95 %"
    assert problems[1].startswith("a.cc:6: g() { and 2 more: did not run; add a test")


def test_gaps_end_where_a_line_ran(repository: Path) -> None:
    gaps = coverage.gaps_of("a.cc", {1: 1, 2: 0, 4: 0, 5: 1, 6: 1, 7: 0, 8: 1}, repository)
    assert [(gap.first_line, gap.code) for gap in gaps] == [(2, ("one;", "two;")), (7, ("three || four;",))]


def test_a_reason_excuses_a_gap_but_not_the_bound(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = coverage.read_counts(export(repository, 1, 1, 1, 1, 1, 0, 1), repository)
    monkeypatch.setattr(coverage, "REASONS", {"a.cc": {"three || four;": "nobody calls it"}})
    tables, problems = coverage.report(counts, repository)
    assert "| `a.cc` | `three \\|\\| four;` | nobody calls it |" in tables
    assert problems == ["a: 85.7 % of its lines ran, expected at least 95 %"]
    monkeypatch.setattr(coverage, "BOUND", 85.0)
    assert coverage.report(counts, repository)[1] == []


def test_a_reason_for_what_runs_is_a_problem(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = coverage.read_counts(export(repository, 1, 1, 1, 1, 1, 1, 0), repository)
    monkeypatch.setattr(coverage, "REASONS", {"a.cc": {"three || four;": "nobody calls it"}})
    monkeypatch.setattr(coverage, "BOUND", 85.0)
    tables, problems = coverage.report(counts, repository)
    assert "the end of a block that has returned" in tables  # the brace alone
    assert len(problems) == 1 and "remove its reason" in problems[0]


def test_all_means_all(repository: Path) -> None:
    assert coverage.shown(coverage.percent([1] * 2999 + [0])) == "99.9"
    assert coverage.shown(coverage.percent([1] * 7)) == "100.0"


def test_a_file_that_nobody_measured_is_an_error(repository: Path) -> None:
    with pytest.raises(ToolError, match=r"a: the report lacks a\.cc"):
        coverage.report({}, repository)


def test_status_and_document(repository: Path) -> None:
    """As a program on a report without the parsers: status 1, one line, and the document stays."""
    before = coverage.DOCUMENT.read_bytes()
    report = repository / "coverage.lcov"
    report.write_text(export(repository, 1, 1, 1, 1, 1, 1, 1), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "tools.parser_coverage", str(report), "--write"], cwd=REPOSITORY,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "the report lacks" in done.stderr
    assert coverage.DOCUMENT.read_bytes() == before
