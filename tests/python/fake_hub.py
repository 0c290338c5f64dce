"""A hub on loopback that can be told to misbehave: API and small files on one server, large files on a CDN."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

LARGE_BYTES = 4096  # files from this size on lie on the CDN and have a sha256


def git_blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclasses.dataclass
class Request:
    """What a server received: server is "hub" or "cdn"."""

    server: str
    path: str
    headers: Message


@dataclasses.dataclass
class Fault:
    """What an answer does wrong, or differently. Each is used up by one request."""

    status: int | None = None  # instead of the file
    headers: dict[str, str | None] = dataclasses.field(default_factory=dict)  # None: left out
    body: bytes | None = None
    cut: float | None = None  # the fraction of the body after which the connection is closed, or pauses
    ignore_range: bool = False
    stall_s: float = 0.0  # before the rest of a cut body
    trickle_s: float = 0.0  # between single bytes
    before: Callable[[], None] | None = None


class FakeHub:
    """Serves one repository. A context manager. `faults` maps a file's name, or "api", to the faults of its answers."""

    def __init__(self, repository: str, revision: str, files: dict[str, bytes]) -> None:
        self.repository, self.revision, self.files = repository, revision, dict(files)
        self.etags = {name: f'"{hashlib.md5(data).hexdigest()}"' for name, data in files.items()}
        self.hub_faults: dict[str, list[Fault]] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[Request] = []
        self.listing: Callable[[dict], object] = lambda document: document
        self._servers = [_Server(self, "hub"), _Server(self, "cdn")]

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn_url(self) -> str:
        return f"http://localhost:{self._servers[1].server_port}"

    def paths(self, server: str = "") -> list[str]:
        """The last part of each path asked for, in order."""
        return [request.path.rsplit("/", 1)[-1] for request in self.requests if server in ("", request.server)]

    def ranges(self, name: str) -> list[str | None]:
        """The Range header of every request that should have brought the file's bytes."""
        server = "cdn" if len(self.files[name]) >= LARGE_BYTES else "hub"
        return [request.headers["Range"] for request in self.requests
                if request.server == server and request.path.endswith(f"/{name}")]

    def document(self) -> dict:
        siblings = []
        for name, data in self.files.items():
            entry: dict = {"rfilename": name, "size": len(data), "blobId": git_blob_id(data)}
            if len(data) >= LARGE_BYTES:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {"id": self.repository, "sha": self.revision, "private": False, "siblings": siblings}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: FakeHub, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub, self.name = hub, name

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is part of some tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes
    server: _Server

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.server.hub
        path = self.path.split("?", 1)[0]
        hub.requests.append(Request(self.server.name, path, self.headers))
        self.close_connection = True
        name = path.rsplit("/", 1)[-1]
        if path == f"/api/models/{hub.repository}/revision/{hub.revision}":
            self._answer("api", self._listing())
        elif path == f"/{hub.repository}/resolve/{hub.revision}/{name}" and name in hub.files:
            if self.server.name == "hub" and len(hub.files[name]) >= LARGE_BYTES:
                self._redirect_to_cdn(name, path)
            else:
                self._answer(name, hub.files[name])
        else:
            self._send(404, {}, b"Entry not found")

    def _listing(self) -> bytes:
        document = self.server.hub.listing(self.server.hub.document())
        return document if isinstance(document, bytes) else json.dumps(document).encode()

    def _redirect_to_cdn(self, name: str, path: str) -> None:
        fault = _next(self.server.hub.hub_faults, name)
        headers = {"Location": f"{self.server.hub.cdn_url}{path}?signature=secret"} | fault.headers
        self._send(fault.status or 302, headers, fault.body or b"")

    def _answer(self, name: str, data: bytes) -> None:
        hub, fault = self.server.hub, _next(self.server.hub.faults, name)
        if fault.before is not None:
            fault.before()
        headers: dict[str, str | None] = {}
        status, etag = 200, fault.headers.get("ETag", hub.etags.get(name))
        if etag is not None:
            headers["ETag"] = etag
        data = data if fault.body is None else fault.body
        total = len(data)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and not fault.ignore_range and self.headers.get("If-Range", etag) == etag:
            status, first = 206, int(wanted.group(1))
            headers["Content-Range"] = f"bytes {first}-{total - 1}/{total}"
            data = data[first:]
        self._send(fault.status or status, headers | fault.headers, data, fault)

    def _send(self, status: int, headers: dict[str, str | None], data: bytes, fault: Fault | None = None) -> None:
        fault = fault or Fault()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data)), "Connection": "close"} | headers).items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        for piece in _pieces(data, fault):
            self.wfile.write(piece)
            self.wfile.flush()


def _next(faults: dict[str, list[Fault]], name: str) -> Fault:
    queue = faults.get(name)
    return queue.pop(0) if queue else Fault()


def _pieces(data: bytes, fault: Fault) -> Iterator[bytes]:
    if fault.trickle_s:
        for position in range(int(len(data) * (fault.cut or 1))):
            yield data[position : position + 1]
            time.sleep(fault.trickle_s)
    elif fault.cut is not None:
        length = int(len(data) * fault.cut)
        yield data[:length]
        if fault.stall_s:
            time.sleep(fault.stall_s)
            yield data[length:]
    else:
        yield data
