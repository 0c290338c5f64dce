"""A file that appears under its name only when it is complete and on the disk.

Bytes go to `.<name>.partial` beside the target; commit() syncs, renames and syncs the folder. The partial file is
locked, so two writers of one target cannot mix, and a partial left by a killed run is overwritten by the next one.
A symbolic link is followed: the file that it points to is replaced or made. Only a regular file is ever replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.errors import ToolError

# The page cache takes huge folios for writes of at least 4 MiB; at multiples of 8 MiB they are aligned too.
BUFFER_BYTES = 8 << 20

_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"),
          (stat.S_ISCHR, "a character device"), (stat.S_ISBLK, "a block device"))


def require_replaceable(path: Path) -> None:
    """Nothing may be there, or a regular file: a rename would destroy a FIFO or a device node, not write to it."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ToolError(f"{path}: cannot be written: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
        raise ToolError(f"{path}: is {kind}; name the file to write")


class AtomicFile:
    """Write-only, sequential, buffered. Leaving the context without commit() removes the partial file."""

    def __init__(self, target: Path) -> None:
        self._given = target
        self.target = Path(os.path.realpath(target))
        self.partial = self.target.with_name(f".{self.target.name}.partial")
        self.num_bytes = 0
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._fd = -1

    def __enter__(self) -> Self:
        require_replaceable(self._given)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        while not self._open_and_lock():
            pass
        try:
            os.ftruncate(self._fd, 0)
        except BaseException:
            self._discard()
            raise
        return self

    def _open_and_lock(self) -> bool:
        """False if another writer renamed or removed the file between our open and our lock."""
        require_replaceable(self.partial)
        self._fd = os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._close()
            raise ToolError(f"{self.partial}: another process is writing {self.target.name}") from None
        if self._still_named():
            return True
        self._close()
        return False

    def _still_named(self) -> bool:
        try:
            named = os.stat(self.partial)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._fd))

    def require_space(self, total_bytes: int) -> None:
        """Fails now rather than after an hour of writing."""
        free = os.statvfs(self.target.parent)
        free_bytes = free.f_bavail * free.f_frsize
        if free_bytes < total_bytes:
            raise ToolError(f"{self.target}: needs {total_bytes} bytes, the file system has {free_bytes} free")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self.num_bytes += len(view)
        position = 0
        while position < len(view):
            size = min(len(view) - position, BUFFER_BYTES - self._filled)
            self._buffer[self._filled : self._filled + size] = view[position : position + size]
            self._filled += size
            position += size
            if self._filled == BUFFER_BYTES:
                self._flush()

    def _flush(self) -> None:
        pending = memoryview(self._buffer)[: self._filled]
        while pending:
            with self._naming_the_file():
                pending = pending[os.write(self._fd, pending) :]
        self._filled = 0

    @contextlib.contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        """The system's errors about an open file do not say which."""
        try:
            yield
        except OSError as error:
            raise ToolError(f"{self._given}: writing failed: {error.strerror}") from error

    def commit(self) -> None:
        """Makes the file appear. Only after this returns is it there, and then it is whole."""
        self._flush()
        with self._naming_the_file():
            os.fsync(self._fd)
        os.rename(self.partial, self.target)
        folder = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._close()

    def _close(self) -> None:
        os.close(self._fd)  # also drops the lock
        self._fd = -1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._fd >= 0:
            self._discard()

    def _discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self._close()


def write_file(target: Path, data: bytes) -> None:
    """A small file, whole or not at all."""
    with AtomicFile(target) as file:
        file.write(data)
        file.commit()
