"""One file from the hub to its folder: resumed where that is safe, hashed on the way, named only when it is right.

Bytes go to `.<name>.partial`; `.<name>.partial.json` says which file and which ETag they belong to. A transfer goes on
only with status 206, the same ETag and the right range; everything else begins anew. The caller holds the folder's
lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.errors import ToolError, mismatch
from tools.hub.client import PIECE_BYTES, HubClient, Reply, TransientError
from tools.hub.listing import HubFile
from tools.hub.manifest import FileRecord
from tools.strict_json import parse_json_object

STRONG_ETAG = re.compile(r'"[!#-~]{0,500}"')  # a weak one (W/…) does not promise equal bytes


class PartialFile:
    """The bytes that have arrived, their hash, and the ETag that they were sent under. A context manager."""

    def __init__(self, folder: Path, file: HubFile, advance: Callable[[int], None]) -> None:
        self.file = file
        self.target = folder / file.name
        self.path = folder / f".{file.name}.partial"
        self.state_path = folder / f".{file.name}.partial.json"
        self.etag: str | None = None
        self.num_bytes = 0
        self._advance = advance
        self._digest = file.digest()
        self._fd = -1

    def __enter__(self) -> Self:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            self._take_up()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._close()  # the bytes stay: the next run goes on with them

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_up(self) -> None:
        """Hashes what an earlier run left, if it belongs to this very file."""
        length = os.fstat(self._fd).st_size
        self.etag = self._stored_etag()
        if self.etag is None or length > self.file.num_bytes:
            self.restart(None)
            return
        while piece := os.read(self._fd, PIECE_BYTES):
            self._count(piece)

    def _stored_etag(self) -> str | None:
        try:
            state = parse_json_object(self.state_path.read_bytes(), self.state_path)
        except (ToolError, OSError):
            return None
        etag = state.get("etag")
        same_file = state.get("identity") == self.file.identity
        return etag if same_file and isinstance(etag, str) and STRONG_ETAG.fullmatch(etag) else None

    def restart(self, etag: str | None) -> None:
        """Forgets the bytes; those to come belong to this ETag."""
        os.ftruncate(self._fd, 0)  # first, so that old bytes never stand beside a new ETag
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._advance(-self.num_bytes)
        self.num_bytes, self.etag, self._digest = 0, etag, self.file.digest()
        try:  # a torn write is no JSON, and then nothing is resumed
            self.state_path.write_text(json.dumps({"identity": self.file.identity, "etag": etag}))
        except OSError as error:
            raise ToolError(f"{self.state_path}: writing failed: {error.strerror}") from error

    def append(self, data: bytes) -> None:
        pending = memoryview(data)
        while pending:
            try:
                written = os.write(self._fd, pending)
            except OSError as error:
                raise ToolError(f"{self.path}: writing failed: {error.strerror}. What arrived is kept: the same "
                                "command goes on from there") from error
            self._count(pending[:written])
            pending = pending[written:]

    def _count(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self.num_bytes += len(data)
        self._advance(len(data))

    def commit(self) -> FileRecord:
        """Gives the file its name if its bytes are right; deletes it if they are not."""
        found = self._digest.identity
        if found != self.file.identity:
            self.path.unlink()
            self.state_path.unlink(missing_ok=True)
            wrong = mismatch(self.target, self.file.identity_kind, self.file.identity, found)
            raise ToolError(f"{wrong}; the download was deleted, the same command tries it anew")
        os.fsync(self._fd)
        os.rename(self.path, self.target)
        self.state_path.unlink(missing_ok=True)
        return FileRecord(self.file.name, self.num_bytes, self._digest.sha256, self.etag)


def fetch(client: HubClient, url: str, what: str, partial: PartialFile) -> FileRecord:
    """The whole file, through as many requests as it takes."""
    attempts = client.attempts()
    while partial.num_bytes < partial.file.num_bytes:
        try:
            _request_rest(client, url, what, partial)
        except TransientError as error:
            attempts.failed(error, partial.num_bytes)
    return partial.commit()


def _request_rest(client: HubClient, url: str, what: str, partial: PartialFile) -> None:
    headers, accept = {}, (200,)
    if partial.num_bytes > 0:
        headers = {"Range": f"bytes={partial.num_bytes}-", "If-Range": partial.etag or ""}
        accept = (200, 206, 416)
    with client.open(url, what, headers, accept=accept) as reply:
        etag = _strong_etag(reply)
        if reply.status == 200:
            _require_body(reply, partial.file.num_bytes)  # before old bytes go: it may be a captive portal's page
            partial.restart(etag)  # the server ignored the range, or says that the file is another one
        else:
            fault = _range_fault(reply, etag, partial)
            if fault is not None:
                partial.restart(None)
                raise TransientError(f"{reply.place}: {fault}; begins anew", wait_s=0)
            _require_body(reply, partial.file.num_bytes - partial.num_bytes)
        with contextlib.closing(reply.pieces(partial.file.num_bytes - partial.num_bytes)) as pieces:
            for piece in pieces:
                partial.append(piece)


def _require_body(reply: Reply, num_bytes: int) -> None:
    announced = reply.content_length()
    if announced not in (None, num_bytes):
        raise TransientError(f"{reply.place}: expected {num_bytes} bytes, the server announces {announced}")
    if reply.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise TransientError(f"{reply.place}: expected plain bytes, the server compresses them")


def _strong_etag(reply: Reply) -> str | None:
    etag = reply.headers.get("ETag", "").strip()
    return etag if STRONG_ETAG.fullmatch(etag) else None


def _range_fault(reply: Reply, etag: str | None, partial: PartialFile) -> str | None:
    """Why this answer to a Range request must not be appended."""
    if reply.status == 416:
        return "the server refuses the range (HTTP status 416)"
    if etag is None or etag != partial.etag:
        return "the file's ETag changed"
    last = partial.file.num_bytes - 1
    expected = f"bytes {partial.num_bytes}-{last}/"
    found = reply.headers.get("Content-Range", "").strip()
    if found not in (f"{expected}{last + 1}", f"{expected}*"):
        return f"expected the range {expected}{last + 1}, found {found[:100] or 'none'}"
    return None
