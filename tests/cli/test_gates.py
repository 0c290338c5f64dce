"""`kipp gates`: where the record goes, what is seen when it cannot be written, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from kipp_process import FAILURE, INTERRUPTED, MODEL, OK, USAGE, Kipp

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "kipp-demo"


def test_a_record_beside_the_summary(demo: Kipp, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text("an older one")
    done = demo("gates", "--vectors", VECTORS, "--phase0", "--json", record)
    assert done.returncode == OK, done.stderr.decode()
    assert done.stdout.endswith(b"gates: passed\n")
    assert json.loads(record.read_bytes())["verdict"] == "passed"
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]
    assert stat.S_IMODE(record.stat().st_mode) == 0o644


def test_the_record_goes_behind_the_summary_where_both_go_to_one_file(demo: Kipp, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for target in (Path("/dev/stdout"), log):
        with log.open("wb") as stream:
            stream.write(b"before\n")
            stream.flush()
            done = demo("gates", "--vectors", VECTORS, "--phase0", "--json", target, stdout=stream)
        assert done.returncode == OK, done.stderr.decode()
        first, *summary, record = log.read_text().splitlines()
        assert first == "before" and "gates: passed" in summary
        assert json.loads(record)["verdict"] == "passed"


@pytest.mark.parametrize("flag", ["--json", "--write-snapshot"])
def test_a_path_that_cannot_be_written_is_known_before_any_gate(demo: Kipp, tmp_path: Path, flag: str) -> None:
    for path in (tmp_path / "none" / "file", tmp_path):
        done = demo("gates", "--vectors", VECTORS, "--phase0", flag, path)
        assert done.returncode == FAILURE and not done.stdout
        assert str(path) in done.stderr.decode()
        assert b"phase0" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_verdict_is_seen_when_the_record_fails(demo: Kipp) -> None:
    done = demo("gates", "--vectors", VECTORS, "--phase0", "--json", "/dev/full")
    assert done.returncode == FAILURE
    assert done.stdout.endswith(b"gates: passed\n")
    assert b"/dev/full" in done.stderr


def test_the_record_is_written_when_nobody_reads_the_summary(demo: Kipp, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = demo("gates", "--vectors", VECTORS, "--phase0", "--json", tmp_path / "record.json", stdout=full)
    assert done.returncode == FAILURE
    assert json.loads((tmp_path / "record.json").read_bytes())["verdict"] == "passed"


@pytest.mark.parametrize(("gate", "finished"), [("phase1", "phase0 passed"), ("placement", "phase0 passed")])
def test_interrupt(demo: Kipp, tmp_path: Path, gate: str, finished: str) -> None:
    process = demo.popen("gates", "--vectors", VECTORS, f"--{gate}", "--json", tmp_path / "record.json",
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None and process.stdout is not None
    seen = b""
    while f"{gate} …\n".encode() not in seen:
        chunk = os.read(process.stderr.fileno(), 1 << 16)
        assert chunk, seen.decode()
        seen += chunk
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == INTERRUPTED
    assert process.stdout.read() == b""
    message = process.stderr.read().decode()
    assert f"kipp: interrupted in {gate}; finished before it: {finished}; no record was written\n" in message
    assert not list(tmp_path.iterdir())


def test_a_backend_that_does_not_exist_has_no_record(demo: Kipp, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    done = demo("gates", "--vectors", VECTORS, "--phase0", "--backend", "frobnicate", "--json", record)
    assert done.returncode == MODEL and b"frobnicate" in done.stderr
    assert not record.exists()


@pytest.mark.parametrize("flag", ["--json", "--snapshot", "--write-snapshot"])
def test_an_empty_path_is_refused(demo: Kipp, flag: str) -> None:
    done = demo("gates", "--vectors", VECTORS, "--phase0", flag, "")
    assert done.returncode == USAGE and flag.encode() in done.stderr
