"""Starts a server by a command line with {port} in it, waits until it answers, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import load_clients as clients
from load_clients import Target

END_SECONDS = 60


class Server(NamedTuple):
    process: subprocess.Popen[bytes]
    target: Target
    log: Path

    def check(self) -> None:
        """Ends the script if the server has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"the server has ended with code {self.process.returncode}:\n{last_lines(self.log)}")


def last_lines(log: Path, count: int = 20) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def words_of(command: str) -> list[str]:
    words = shlex.split(command)
    if not any("{port}" in word for word in words):
        raise SystemExit(f"no {{port}} in the server's command: {command}")
    return words


def without_folders(words: list[str]) -> list[str]:
    """For a record: what lies where on this machine is of no interest."""
    return [re.sub(r"(^|=)[^\s=]*/", r"\1", word) for word in words]


async def is_ready(target: Target) -> bool:
    with contextlib.suppress(OSError, EOFError, ValueError, KeyError, IndexError, TimeoutError):
        async with asyncio.timeout(5):
            return (await clients.ask(target, "/health")).status == 200
    return False


async def wait_until_ready(server: Server, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await is_ready(server.target):
        server.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"the server is not ready after {seconds:g} s:\n{last_lines(server.log)}")
        await asyncio.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended by itself after SIGTERM."""
    process.terminate()
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


@contextlib.contextmanager
def serving(words: list[str], ready_seconds: float, *, must_end: bool = False) -> Iterator[Server]:
    """The words of a command line; "{port}" in them is replaced by a free one of this machine.

    must_end: a server that has to be killed afterwards is an error; else it is only killed.
    """
    port = free_port()
    with tempfile.NamedTemporaryFile(prefix="server-", suffix=".log") as log:
        server = Server(start([word.replace("{port}", str(port)) for word in words], log), Target("127.0.0.1", port),
                        Path(log.name))
        try:
            asyncio.run(wait_until_ready(server, ready_seconds))
            yield server
        finally:
            by_itself = end(server.process)
        if must_end and not by_itself:
            raise SystemExit(f"the server did not end within {END_SECONDS} s of SIGTERM:\n{last_lines(server.log)}")


def start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    except OSError as error:
        raise SystemExit(f"{command[0]}: cannot be started: {error}") from error
