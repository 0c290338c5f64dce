"""One bar over all bytes, on standard error and only on a terminal; notes are lines of their own in either case."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from tqdm import tqdm


def note(text: str) -> None:
    """A line on standard error that does not tear a bar apart."""
    tqdm.write(text, file=sys.stderr)


def size_text(num_bytes: int) -> str:
    """1.50 GB, as disks and networks are sold."""
    size = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{num_bytes} B" if unit == "B" else f"{size:.2f} {unit}"


class Progress:
    """Bytes that are there and hashed. A context manager."""

    def __init__(self, total_bytes: int) -> None:
        self._bar = tqdm(total=total_bytes, unit="B", unit_scale=True, disable=None, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._bar.close()

    def name(self, name: str) -> None:
        self._bar.set_description(name)

    def advance(self, num_bytes: int) -> None:
        """Negative when a file begins anew."""
        self._bar.update(num_bytes)
