"""A `kipp serve` of its own for a test, and the client's side of HTTP from the standard library."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

from kipp_process import Kipp

TIMEOUT_SECONDS = 60


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.json) == {"error"}
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events; it must end with [DONE]."""
        assert self.headers["content-type"] == "text/event-stream"
        lines = [line for line in self.body.decode().split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


class Served:
    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process = process
        host, port = address.removeprefix("http://").split(":")
        self.host, self.port = host, int(port)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECONDS)

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = self.connect()
        with contextlib.closing(connection):
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, raw, headers or {})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.request("POST", path, body, headers)

    def complete(self, prompt: Any, **fields: Any) -> Any:
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert answer.status == 200, answer.body
        return answer.json

    def chat(self, content: str, **fields: Any) -> Any:
        answer = self.post("/v1/chat/completions", chat_body(content, **fields))
        assert answer.status == 200, answer.body
        return answer.json

    def begin_and_leave(self, completion: Any) -> None:
        """A client that closes its connection when a streamed answer has begun."""
        connection = self.connect()
        connection.request("POST", "/v1/completions", json.dumps(completion).encode())
        response = connection.getresponse()
        response.read1(10)
        connection.close()
        response.close()

    def end(self) -> tuple[int, str]:
        """Exit code and what was said, after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode, errors.decode()


def chat_body(content: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


@contextlib.contextmanager
def serving(kipp: Kipp, *flags: str) -> Iterator[Served]:
    process = kipp.popen("serve", "--port", "0", *flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        if not address:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read().decode())
        yield Served(process, address)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
