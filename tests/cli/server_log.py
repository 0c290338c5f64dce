"""The log of a `kipp serve`, read while it is written."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import IO, Any

TIMEOUT_SECONDS = 30


class ServerLog:
    """Takes over a process's standard error; the lines must be JSON."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._queue.put(line.decode())

    def next(self, event: str, **fields: Any) -> dict[str, Any]:
        """The next line of that event with these fields; those before it are passed over, and stay in `lines`."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event} {fields} in:\n{''.join(self.lines)}") from None
            self.lines.append(line)
            entry = json.loads(line)
            if entry["event"] == event and all(entry.get(key) == value for key, value in fields.items()):
                return entry

    def rest(self) -> list[dict[str, Any]]:
        """What comes up to the end of the process."""
        self._thread.join(TIMEOUT_SECONDS)
        while not self._queue.empty():
            self.lines.append(self._queue.get())
        return [json.loads(line) for line in self.lines]
