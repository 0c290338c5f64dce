"""The program as a whole: help, version, exit codes, and models that cannot be opened."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from kipp_process import FAILURE, MODEL, OK, OUTPUT_CLOSED, USAGE, Kipp

from tools.run_seeded_faults import known_faults

COMMANDS = [
    "run", "chat", "inspect", "checkpoints", "completions", "manual", "tokenize", "detokenize", "render", "ppl",
    "bench", "gates",
]


def start(kipp: Kipp, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(kipp.binary), *arguments], capture_output=True, env=kipp.environment, check=False)


def test_version_names_commit_and_backends(bare: Kipp) -> None:
    done = start(bare, "--version")
    assert done.returncode == OK
    assert re.match(r"kipp \d+\.\d+\.\d+\ncommit: ([0-9a-f]{12}(-dirty)?|unknown)\nbuild: .+\n", done.stdout.decode())
    assert re.search(r"^backends: .*\boracle\b", done.stdout.decode(), re.MULTILINE)


def test_the_binary_has_no_seeded_faults(binary: Path) -> None:
    data = binary.read_bytes()
    found = [fault.name for fault in known_faults() if fault.name.encode() in data]
    assert not found and b"KIPP_SEEDED_FAULT" not in data


def test_help_lists_every_command(bare: Kipp) -> None:
    done = start(bare, "--help")
    assert done.returncode == OK and not done.stderr
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.stdout.decode(), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_and_exit_codes(bare: Kipp, command: str) -> None:
    done = start(bare, command, "--help")
    text = done.stdout.decode()
    assert done.returncode == OK and not done.stderr
    assert re.search(rf"kipp {command}\b", text.split("Examples:")[1])
    for code in ("0", "1", "2", "3", "130", "141"):
        assert re.search(rf"^  {code} ", text.split("Exit codes:")[1], re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage"),
        (["frobnicate"], "frobnicate"),
        (["run", "--frobnicate", "x"], "--frobnicate"),
        (["run"], "PROMPT"),
        (["run", "--jsonl", "Hi"], "PROMPT"),
        (["run", "one", "two"], "two"),
        (["run", "--decode", "-1", "Hi"], "--decode"),
        (["run", "--decode", "3x", "Hi"], "--decode"),
        (["run", "--decode", "99999999999", "Hi"], "--decode"),
        (["run", "--decode", "0x10", "Hi"], "from 0 to 2147483647, found \"0x10\""),
        (["run", "--decode", "", "Hi"], "--decode"),
        (["run", "--top", "0", "Hi"], "--top"),
        (["run", "--temperature", "-1", "Hi"], "temperature"),
        (["run", "--temperature", "nan", "Hi"], 'expected a decimal number, found "nan"'),
        (["run", "--temperature", "0x1p-1", "Hi"], '--temperature: expected a decimal number, found "0x1p-1"'),
        (["run", "--top-p", " 0.5", "Hi"], 'found " 0.5"'),
        (["run", "--min-p", "", "Hi"], 'found ""'),
        (["run", "--repetition-penalty", "1,5", "Hi"], "--repetition-penalty: expected a decimal number"),
        (["run", "--presence-penalty", "1e999", "Hi"], "--presence-penalty: expected a decimal number"),
        (["run", "--frequency-penalty", "inf", "Hi"], "--frequency-penalty: expected a decimal number"),
        (["run", "--top-p", "1.5", "Hi"], "top_p"),
        (["run", "--min-p", "-0.1", "Hi"], "min_p"),
        (["run", "--presence-penalty", "3", "Hi"], "presence_penalty"),
        (["run", "--seed", "-1", "Hi"], "--seed"),
        (["run", "--seed", "18446744073709551616", "Hi"], "from 0 to 18446744073709551615"),
        (["run", "--context=-1", "Hi"], "--context"),
        (["run", "--temperature=", "Hi"], "--temperature needs a value"),
        (["run", "--chat", "--tools", "", "Hi"], "--tools"),
        (["tokenize", "++"], "must follow --"),
        (["run", "--top-p", "+1", "Hi"], 'expected a decimal number, found "+1"'),
        (["run", "--temperature", " 1", "Hi"], 'expected a decimal number, found " 1"'),
        (["run", "--temperature", "", "Hi"], 'expected a decimal number, found ""'),
        (["run", "--decode", "+1", "Hi"], 'found "+1"'),
        (["run", "-m=models/x.gguf", "Hi"], 'a short flag takes no "=": -m models/x.gguf'),
        (["run", "-q=false", "Hi"], "-q takes no value"),
        (["--model", "x", "run", "Hi"], "--model belongs behind the command: kipp COMMAND --model"),
        (["--frobnicate", "run"], "unknown flag --frobnicate"),
        (["run", "--system", "x", "++"], "must follow --"),
        (["ppl", "--window", "10", "--stride", "10"], "--stride: expected 1 to 9"),
        (["run", "--logit-bias", "5", "Hi"], "ID=BIAS"),
        (["run", "--logit-bias", "5=x", "Hi"], "ID=BIAS"),
        (["run", "--logit-bias", "5=101", "Hi"], "logit_bias"),
        (["run", "--logit-bias", "151800=1", "Hi"], "151800"),
        (["run", "--system", "x", "Hi"], "--chat"),
        (["run", "--chat", "--thinking", "maybe", "Hi"], "--thinking"),
        (["run", "--chat", "--plain", "Hi"], "--plain"),
        (["tokenize", "--jsonl", "Hi"], "--jsonl"),
        (["detokenize"], "ID"),
        (["detokenize", "x"], "ID"),
        (["detokenize", ""], "ID"),
        (["render", "--variant", "", "Hi"], "--variant"),
        (["render"], "PROMPT"),
        (["render", "--variant", "chatgpt", "Hi"], "chatgpt"),
        (["ppl", "--window", "1"], "--window"),
        (["bench", "--batch", "1,65"], "--batch"),
    ],
)
def test_wrong_command_lines(bare: Kipp, arguments: list[str], message: str) -> None:
    done = start(bare, *arguments)
    assert done.returncode == USAGE
    assert message in done.stderr.decode()
    assert not done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["run", "Hi"], ["tokenize", "Hi"], ["detokenize", "1"], ["render", "Hi"], ["ppl"], ["bench"],
     ["gates", "--vectors", "."]],
)
def test_no_model(bare: Kipp, arguments: list[str]) -> None:
    done = bare(*arguments)
    assert done.returncode == MODEL
    assert "--model" in done.stderr.decode() and "KIPP_MODEL" in done.stderr.decode()


@pytest.mark.parametrize("command", ["run", "tokenize"])
def test_models_that_cannot_be_opened(bare: Kipp, twin_path: Path, tmp_path: Path, command: str) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(twin_path.read_bytes()[:100_000])
    prose = tmp_path / "prose.gguf"
    prose.write_text("This is not a model.\n" * 10)
    for path in (tmp_path / "absent.gguf", tmp_path, cut, prose):
        done = bare(command, "--allow-synthetic", "--model", path, "Hi")
        assert done.returncode == MODEL, path
        assert done.stderr.startswith(b"kipp: error: ") and done.stderr.count(b"\n") == 1


def test_a_twin_needs_the_flag(bare: Kipp, twin_path: Path) -> None:
    done = bare("run", "--model", twin_path, "Hi")
    assert done.returncode == MODEL
    assert "synthetic" in done.stderr.decode()


def test_unknown_backend_and_too_large_context(twin: Kipp) -> None:
    done = twin("run", "--backend", "abacus", "Hi")
    assert done.returncode == MODEL and "abacus" in done.stderr.decode() and "oracle" in done.stderr.decode()
    done = twin("run", "--context", "1000000", "Hi")
    assert done.returncode == MODEL and "1000000" in done.stderr.decode() and "2048" in done.stderr.decode()


def test_flag_wins_over_the_environment(twin: Kipp) -> None:
    assert twin("tokenize", "--model", "/nonexistent.gguf", "Hi").returncode == MODEL


@pytest.mark.parametrize("arguments", [["tokenize", "Hi"], ["render", "Hi"], ["run", "--decode", "1", "Hi"]])
def test_full_disk(twin: Kipp, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = twin(*arguments, stdout=full)
    assert done.returncode == FAILURE
    assert "No space left" in done.stderr.decode()


OUTPUTS = [["tokenize", "Hi"], ["--help"], ["run", "-q", "--decode", "4", "Hi"]]


@pytest.mark.parametrize("arguments", OUTPUTS)
def test_output_closed_before_the_start(twin: Kipp, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = twin.popen(*arguments, stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(write)
    _, message = process.communicate(timeout=60)
    assert (process.returncode, message) == (OUTPUT_CLOSED, b"")


@pytest.mark.parametrize("arguments", OUTPUTS)
def test_no_standard_output_at_all(twin: Kipp, arguments: list[str]) -> None:
    """`kipp … >&-`: the descriptor is closed, and whatever kipp opens first may get its number."""
    process = twin.popen(*arguments, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=lambda: os.close(1))
    _, message = process.communicate(timeout=60)
    assert process.returncode == FAILURE
    assert message.startswith(b"kipp: error: ") and b"standard output" in message


def test_values_of_flags_are_text(twin: Kipp) -> None:
    for arguments in (["--stop", "++"], ["--chat", "--system", "--x="], ["--chat", "--system", "-m=x"]):
        assert twin("run", "--decode", "1", *arguments, "Hi").returncode == OK


def test_a_stop_string_that_is_not_utf8(twin: Kipp) -> None:
    done = twin("run", "--stop", b"a\xff", "Hi")
    assert done.returncode == USAGE and b"stop[0]: expected UTF-8" in done.stderr
    assert "UTF-8" in twin.lines("run", [b'{"prompt": "Hi", "stop": "\xff"}'], code=FAILURE)[0]["error"]["message"]


def test_input_without_an_end(twin: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    done = twin("run", "--file", path)
    assert done.returncode == FAILURE
    assert f"{path}: input: expected {1 << 30} bytes at most, found {(1 << 30) + 1}" in done.stderr.decode()


def test_memory_that_runs_out_is_said(twin: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(900 << 20)
    command = ["prlimit", f"--as={1 << 30}", *twin.command("tokenize")]
    with path.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, env=twin.environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (FAILURE, b"kipp: error: out of memory\n")


def test_checkpoints_without_a_folder(bare: Kipp, tmp_path: Path) -> None:
    done = bare("checkpoints", "--models", tmp_path / "none")
    assert done.returncode == OK and b"qwen3-0.6b" in done.stdout
    assert f"there is no models folder {tmp_path / 'none'}" in done.stderr.decode()
