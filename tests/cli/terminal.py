"""A pseudo-terminal with kipp at its other end: type, wait for text, resize, and see what is left when it is over."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def plain(text: str) -> str:
    """Text as it is read: without control sequences and carriage returns."""
    return CONTROL.sub("", text).replace("\r", "")


class Terminal:
    def __init__(
        self, command: Sequence[object], environment: dict[str, str], columns: int = 120, rows: int = 24
    ) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=slave, stdout=slave, stderr=slave, env=environment,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.raw = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns: int, rows: int = 24) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Takes what comes meanwhile, or a long text would fill both directions."""
        data = text.encode()
        while data:
            readable, writable, _ = select.select([self.master], [self.master], [], 20)
            if readable:
                self.read(0)
            if writable:
                data = data[os.write(self.master, data[:256]) :]

    def read(self, seconds: float) -> bool:
        """Takes what is there within so many seconds; False if nothing came."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def wait_for(self, text: str, seconds: float = 40) -> str:
        """Waits until text was shown since the last wait; returns what was shown up to its end, as it is read."""
        deadline = time.monotonic() + seconds
        while text not in plain(self.raw):
            if time.monotonic() > deadline or (self.process.poll() is not None and not self.read(0)):
                raise AssertionError(f"waited for {text!r}, saw {plain(self.raw)!r}")
            self.read(0.1)
        shown = plain(self.raw)
        end = shown.index(text) + len(text)
        self.raw = shown[end:]
        return shown[:end]

    def ask(self, line: str, until: str = "tok/s]") -> str:
        self.type(line + "\n")
        return self.wait_for(until)

    def end(self, seconds: float = 20) -> int:
        """Exit status of a process that ends by itself; the rest of its output is in raw."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        while self.read(0.1):
            pass
        return self.process.wait(timeout=1)

    def modes_are_as_before(self) -> bool:
        now = termios.tcgetattr(self.slave)
        return now[:4] == self.modes[:4]

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)
