"""The curl commands of docs/server.md, run as they stand there against a server on the demo."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_commands import fenced_lines
from examples import ROOT
from kipp_process import OK, Kipp
from served import serving

ADDRESS = "http://127.0.0.1:8080"
COMMANDS = [line for line in fenced_lines(Path(ROOT, "docs/server.md").read_text(encoding="utf-8"))
            if line.startswith("curl ")]


@pytest.fixture(scope="module")
def address(demo: Kipp) -> Iterator[str]:
    with serving(demo) as served:
        yield f"http://{served.host}:{served.port}"
        assert served.end()[0] == OK


def test_there_are_some() -> None:
    assert len(COMMANDS) >= 6
    assert all(ADDRESS in command for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_it_answers(address: str, command: str) -> None:
    """But for the port, which another server may have."""
    environment = os.environ | {"no_proxy": "127.0.0.1"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, address)], env=environment,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    if '"stream": true' in command:
        assert done.stdout.endswith("data: [DONE]\n\n")
        assert '"error"' not in done.stdout
    else:
        assert "error" not in json.loads(done.stdout), done.stdout
