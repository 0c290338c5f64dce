"""Standard output that cannot be written is one line and status 1, in every tool that prints."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_snapshots import REPOSITORY

COMMANDS = (("checkpoints",), ("checkpoints", "--json"), ("checkpoints", "--help"), ("convert_to_gguf", "--help"),
            ("make_synthetic_checkpoint", "--help"), ("models_table", "--help"), ("gate_summary", "--help"),
            ("generate_rope_vectors", "--help"),
            ("terminal_picture", "--help"), ("demo.unpack", "--help"), ("demo.heldout", "--help"),
            ("demo.evaluate", "--help"), ("demo.report", "--help"))
LARGE = "from tools.command import run_command; import sys; sys.exit(run_command(lambda: print('x' * 100_000) or 0))"


def run_into_closed_pipe(*arguments: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run([sys.executable, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True,
                              cwd=REPOSITORY, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    finally:
        os.close(writer)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_closed_pipe_is_one_line(command: tuple[str, ...]) -> None:
    unbuffered = "1" if command == COMMANDS[-1] else ""
    result = run_into_closed_pipe("-m", f"tools.{command[0]}", *command[1:], unbuffered=unbuffered)
    assert (result.stderr, result.returncode) == ("error: standard output: Broken pipe\n", 1)


def test_output_larger_than_the_buffer_fails_in_print() -> None:
    result = run_into_closed_pipe("-c", LARGE)
    assert (result.stderr, result.returncode) == ("error: standard output: Broken pipe\n", 1)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """As with a full disk: the kernel refuses the bytes, here for a limit on the file's size."""
    limit = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); {LARGE}".replace(
        "sys.exit", "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); sys.exit")
    with open(tmp_path / "out", "wb") as output:
        result = subprocess.run([sys.executable, "-c", limit], stdout=output, stderr=subprocess.PIPE, text=True,
                                cwd=REPOSITORY)
    expected = f"error: standard output: {os.strerror(errno.EFBIG)}\n"
    assert (result.stderr, result.returncode) == (expected, 1)


def test_a_wrong_command_line_keeps_its_status() -> None:
    result = subprocess.run([sys.executable, "-m", "tools.checkpoints", "--wrong"], capture_output=True, text=True,
                            cwd=REPOSITORY)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: ")
