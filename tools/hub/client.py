"""HTTP as downloads need it: redirects followed by hand, so that the token stays home; stalls noticed; tries counted.

Transient errors are retried by the callers through Attempts; everything else is a ToolError at once.
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from types import TracebackType
from typing import Self

from tools.errors import ToolError
from tools.hub.endpoint import Endpoint, origin, redirect_target, without_query

PIECE_BYTES = 1 << 20
MAX_REDIRECTS = 10
REDIRECTS = (301, 302, 303, 307, 308)
BUSY = (408, 429, 500, 502, 503, 504)  # worth another try
MIN_WINDOW_BYTES = 1024  # a connection that brings fewer than these within the time limit counts as stalled
PROGRESS_BYTES = 1 << 20  # after so many new bytes the tries are counted anew


@dataclasses.dataclass(frozen=True)
class Policy:
    """How patient a client is. Tests replace sleep."""

    timeout_s: float = 30.0
    tries: int = 6
    first_wait_s: float = 1.0
    max_wait_s: float = 30.0
    max_server_wait_s: float = 600.0  # a server that asks for more is told to the user instead
    sleep: Callable[[float], None] = time.sleep


class TransientError(Exception):
    """A failure that may pass. wait_s: what the server asked for, or 0 for at once."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Attempts:
    """Failures since the last progress: waits between tries, and says when it is enough."""

    def __init__(self, policy: Policy, report: Callable[[str], None]) -> None:
        self._policy = policy
        self._report = report
        self._failures = 0
        self._best = 0

    def failed(self, error: TransientError, position: int = 0) -> None:
        """Waits for the next try, or raises. A server that begins again and again makes no progress."""
        if position >= self._best + PROGRESS_BYTES:
            self._failures = 0
        self._best = max(self._best, position)
        self._failures += 1
        if self._failures >= self._policy.tries:
            raise ToolError(f"{error}; gave up after {self._failures} tries. What arrived is kept: the same command "
                            "goes on from there") from error
        wait = error.wait_s
        if wait is None:
            wait = min(self._policy.max_wait_s, self._policy.first_wait_s * 2 ** (self._failures - 1))
        if wait > self._policy.max_server_wait_s:
            raise ToolError(f"{error}; the server asks to come back in {wait:.0f} s. What arrived is kept: the same "
                            "command goes on from there") from error
        self._report(f"{error}; next try {f'in {wait:.0f} s' if wait else 'now'}")
        self._policy.sleep(wait)


class Reply:
    """An answer whose body is still to be read. A context manager."""

    def __init__(self, url: str, response: http.client.HTTPResponse, timeout_s: float) -> None:
        self.url = url
        self.status: int = response.status
        self.headers: Message = response.headers
        self._response = response
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._response.close()

    @property
    def place(self) -> str:
        return without_query(self.url)

    def content_length(self) -> int | None:
        text = self.headers.get("Content-Length", "").strip()
        return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None

    def pieces(self, num_bytes: int | None) -> Iterator[bytes]:
        """The body's first num_bytes, or all of it; TransientError if it ends early or stalls."""
        received = 0
        window_start, window_bytes = time.monotonic(), 0
        while num_bytes is None or received < num_bytes:
            wanted = PIECE_BYTES if num_bytes is None else min(PIECE_BYTES, num_bytes - received)
            try:
                piece = self._response.read1(wanted)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise TransientError(f"{self.place}: {_words(error)} after {received} bytes") from error
            if not piece:
                if num_bytes is None:
                    return
                raise TransientError(f"{self.place}: connection closed after {received} of {num_bytes} bytes")
            received += len(piece)
            window_bytes += len(piece)
            yield piece
            elapsed = time.monotonic() - window_start
            if elapsed >= self._timeout_s:
                if window_bytes < MIN_WINDOW_BYTES:
                    raise TransientError(f"{self.place}: stalled, {window_bytes} bytes in {elapsed:.1f} s")
                window_start, window_bytes = time.monotonic(), 0


class HubClient:
    """Requests to one endpoint, and to wherever it redirects."""

    def __init__(self, endpoint: Endpoint, policy: Policy, report: Callable[[str], None]) -> None:
        self.endpoint = endpoint
        self.policy = policy
        self.report = report
        # Only these handlers: no redirects, no files, no exceptions for a status. HTTPS checks certificates by default.
        self._opener = urllib.request.OpenerDirector()
        for handler in (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
            self._opener.add_handler(handler())

    def attempts(self) -> Attempts:
        return Attempts(self.policy, self.report)

    def open(self, url: str, what: str, headers: dict[str, str] | None = None, *,
             accept: tuple[int, ...] = (200,)) -> Reply:
        """The answer after all redirects; a status that is not accepted is an error that says what was asked for."""
        for _ in range(MAX_REDIRECTS + 1):
            reply = self._send(url, headers or {})
            if reply.status in accept:
                return reply
            with reply:
                if reply.status not in REDIRECTS:
                    self._refuse(reply, what)
                url = redirect_target(url, reply.headers.get("Location"))
        raise ToolError(f"{what}: more than {MAX_REDIRECTS} redirects, the last to {without_query(url)}")

    def get_bytes(self, url: str, what: str, max_bytes: int) -> bytes:
        """A small body, with retries."""
        attempts = self.attempts()
        while True:
            try:
                return self._get_once(url, what, max_bytes)
            except TransientError as error:
                attempts.failed(error)

    def _get_once(self, url: str, what: str, max_bytes: int) -> bytes:
        body = bytearray()
        with self.open(url, what) as reply:
            for piece in reply.pieces(reply.content_length()):
                body += piece
                if len(body) > max_bytes:
                    raise ToolError(f"{reply.place}: expected at most {max_bytes} bytes, found more")
        return bytes(body)

    def _send(self, url: str, headers: dict[str, str]) -> Reply:
        request = urllib.request.Request(url, headers={
            "User-Agent": "kipp-download", "Accept-Encoding": "identity", **headers,
            **self.endpoint.authorization(url)})
        try:
            response = self._opener.open(request, timeout=self.policy.timeout_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            message = f"{without_query(url)}: {_words(reason)}"
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise ToolError(f"{message}; its certificate is not trusted here") from error
            raise TransientError(message) from error
        return Reply(url, response, self.policy.timeout_s)

    def _refuse(self, reply: Reply, what: str) -> None:
        status, ours = reply.status, origin(reply.url) == origin(self.endpoint.url)
        if status in BUSY:
            raise TransientError(f"{reply.place}: HTTP status {status}", retry_after(status, reply.headers))
        if ours and status in (401, 403):
            if self.endpoint.token is None:
                raise ToolError(f"{what}: {reply.place} answers {status}: a token is needed (set HF_TOKEN), or there "
                                "is no such repository")
            raise ToolError(f"{what}: {reply.place} answers {status}: the token in HF_TOKEN was refused")
        if ours and status == 404:
            raise ToolError(f"{what}: {self.endpoint.url} does not have it (HTTP status 404)")
        raise ToolError(f"{what}: {reply.place} answers with HTTP status {status}")


def _words(error: object) -> str:
    """A network error in a few words, without line feeds."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


def retry_after(status: int, headers: Message) -> float | None:
    """Seconds that the server asks for: Retry-After as a number or a date, else the reset time in a 429's RateLimit."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    if text:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        now = datetime.datetime.now(datetime.UTC)
        return max(0.0, (date.replace(tzinfo=date.tzinfo or datetime.UTC) - now).total_seconds())
    limit = re.search(r";\s*t=([0-9]{1,9})\b", headers.get("RateLimit", ""))
    return float(limit.group(1)) if limit and status == 429 else None
