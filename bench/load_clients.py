"""Clients of a server under load, well-behaved and not, on raw sockets: a coroutine a kind, which says what came."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple


class Target(NamedTuple):
    host: str
    port: int


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Kind = Callable[[Target, random.Random], Awaitable[str]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

WORDS = ["time", "lantern", "river", "gentle", "under", "baker", "stone", "music", "quiet", "forest", "coin", "apple",
         "window", "never", "story", "light"]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]


def story(number: int) -> str:
    return f"Once upon a time number {number} of"


def request(path: str, body: bytes | None, method: str = "POST", headers: str = "") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{length}{headers}\r\n".encode() + (body or b"")


@contextlib.asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(*target)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = (line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split(" ")[1]), {name.lower(): value for name, value in fields}


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    size = int(await reader.readuntil(b"\r\n"), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def read_answer(reader: asyncio.StreamReader, pause: float = 0.0) -> Answer:
    status, headers = await read_head(reader)
    if headers.get("transfer-encoding") != "chunked":
        return Answer(status, headers, await reader.readexactly(int(headers["content-length"])))
    body = b""
    while piece := await read_chunk(reader):
        body += piece
        if pause > 0:
            await asyncio.sleep(pause)
    return Answer(status, headers, body)


async def ask(target: Target, path: str, body: Any = None) -> Answer:
    async with connected(target) as (reader, writer):
        raw = None if body is None else json.dumps(body).encode()
        writer.write(request(path, raw, "GET" if body is None else "POST"))
        return await read_answer(reader)


class Stream(NamedTuple):
    """A streamed answer as it came, unread: whoever keeps time does not parse meanwhile."""

    begun: float  # before connecting, by time.perf_counter()
    status: int  # 0: no answer has begun
    pieces: list[tuple[float, bytes]]  # each chunk, and when it was there; one, where the answer is no stream
    fault: str  # "", or what cut it


async def read_pieces(reader: asyncio.StreamReader, headers: dict[str, str], pieces: list[tuple[float, bytes]]) -> None:
    if headers.get("transfer-encoding") != "chunked":
        body = await reader.readexactly(int(headers["content-length"]))
        pieces.append((time.perf_counter(), body))
        return
    while piece := await read_chunk(reader):
        pieces.append((time.perf_counter(), piece))


async def streamed(target: Target, body: dict[str, Any], patience: float) -> Stream:
    """A request for a streamed completion. Never raises for what the server does: that is in the fault."""
    begun, status, fault = time.perf_counter(), 0, ""
    pieces: list[tuple[float, bytes]] = []
    try:
        async with asyncio.timeout(patience), connected(target) as (reader, writer):
            writer.write(request("/v1/completions", json.dumps(body | {"stream": True}).encode()))
            status, headers = await read_head(reader)
            await read_pieces(reader, headers, pieces)
    except TimeoutError:
        fault = "not complete in time"
    except asyncio.IncompleteReadError:
        fault = "the connection ended within the answer"
    except (OSError, ValueError, KeyError, IndexError, asyncio.LimitOverrunError) as error:
        fault = f"{type(error).__name__}: {error}"
    return Stream(begun, status, pieces, fault)


class Timed(NamedTuple):
    first: float  # seconds to the first token
    gaps: list[float]  # between the others


async def timed_stream(target: Target, prompt: str | list[int], num_tokens: int) -> Timed:
    body = {"prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    async with connected(target) as (reader, writer):
        begin = time.perf_counter()
        writer.write(request("/v1/completions", json.dumps(body).encode()))
        status, headers = await read_head(reader)
        assert status == 200
        pieces: list[tuple[float, bytes]] = []
        await read_pieces(reader, headers, pieces)
    times = [when for when, _ in pieces]
    return Timed(times[0] - begin, [later - before for before, later in itertools.pairwise(times)])


# Bodies.


def words(draw: random.Random, most: int) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def limits(draw: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"max_tokens": draw.choice([0, 1, 2, 4, 8, 16, 24]), "temperature": draw.choice([0, 1])}
    options = {"n": draw.randint(1, 4), "stop": [draw.choice(WORDS)], "logprobs": None, "seed": draw.randint(0, 99),
               "priority": draw.randint(-1, 0),  # strict, so few may be ahead of the rest: it must be served in time
               "top_k": 20, "presence_penalty": 0.5, "cache_salt": draw.choice("ab"),
               "logit_bias": {str(draw.randint(0, 1000)): -100}, "min_tokens": 2, "ignore_eos": True}
    for name in draw.sample(sorted(options), k=draw.randint(0, 4)):
        fields[name] = options[name]
    if fields.get("min_tokens", 0) > fields["max_tokens"]:
        del fields["min_tokens"]
    return fields


def completion_body(draw: random.Random, stream: bool) -> dict[str, Any]:
    prompt: Any = words(draw, 80)
    if draw.random() < 0.2:
        prompt = [words(draw, 20) for _ in range(draw.randint(1, 4))]
    body = {"prompt": prompt, "stream": stream} | limits(draw)
    if draw.random() < 0.2:
        body |= {"echo": True, "logprobs": 2}
    return body


def chat_body(draw: random.Random, stream: bool) -> dict[str, Any]:
    messages = [{"role": "system", "content": "word " * 150}] if draw.random() < 0.5 else []
    body = {"messages": [*messages, {"role": "user", "content": words(draw, 40)}], "stream": stream} | limits(draw)
    if draw.random() < 0.3:
        body["tools"] = TOOLS
    body.pop("logprobs", None)
    return body


def any_request(draw: random.Random, stream: bool) -> bytes:
    if draw.random() < 0.5:
        return request("/v1/completions", json.dumps(completion_body(draw, stream)).encode())
    return request("/v1/chat/completions", json.dumps(chat_body(draw, stream)).encode())


BAD_BODIES = [
    b'{"prompt":"Hi"', b'{"prompt":"A"} x', b'{"prompt":"A","prompt":"B"}', b'{"prompt":"A","stop":"a","stop":"b"}',
    b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}', b'{"prompt":"A\x00"}', b'{"prompt":1e400}', b"[1,2]", b"", b"null",
    b'{"prompt":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"prompt":[1,999999]}', b'{"prompt":""}', b'{"prompt":[]}',
    b'{"prompt":"Hi","temperature":"hot"}', b'{"prompt":"Hi","nonsense":1}', b'{"prompt":"Hi","n":1000}',
    b'{"prompt":"' + b"long " * 9000 + b'"}', b'{"prompt":"Hi","logit_bias":{"151800":5}}',
]  # fmt: skip


# Kinds.


def verdict(answer: Answer) -> str:
    """What became of a good request."""
    if answer.status != 200:
        return f"fault: status {answer.status}: {answer.body[:120]!r}"
    if answer.headers["content-type"] != "text/event-stream":
        return "whole" if answer.json["choices"] else "fault: no choices"
    events = answer.body.decode().split("\n\n")
    if events[-1] != "" or events[-2] != "data: [DONE]":
        return f"fault: a stream ends with {events[-2:]}"
    for event in events[:-2]:
        if "error" in json.loads(event.removeprefix("data: ")):
            return f"fault: {event}"
    return "streamed"


async def well_behaved(target: Target, draw: random.Random) -> str:
    async with connected(target) as (reader, writer):
        for _ in range(draw.randint(1, 2)):  # keep-alive
            writer.write(any_request(draw, draw.random() < 0.5))
            found = verdict(await read_answer(reader))
    return found


async def pipelined(target: Target, draw: random.Random) -> str:
    async with connected(target) as (reader, writer):
        writer.write(any_request(draw, False) + any_request(draw, True))
        return f"{verdict(await read_answer(reader))}, {verdict(await read_answer(reader))}"


async def with_a_bad_body(target: Target, draw: random.Random) -> str:
    async with connected(target) as (reader, writer):
        writer.write(request("/v1/completions", draw.choice(BAD_BODIES)))
        answer = await read_answer(reader)
    named = answer.status == 400 and set(answer.json["error"]) == {"message", "type", "param", "code"}
    return "400" if named else f"fault: status {answer.status}"


async def leaves_before_the_end_of_its_request(target: Target, draw: random.Random) -> str:
    whole = any_request(draw, True)
    async with connected(target) as (_, writer):
        writer.write(whole[: draw.randint(0, len(whole) - 1)])
        await writer.drain()
        await asyncio.sleep(draw.random() * 0.02)
    return "left"


async def leaves_without_its_answer(target: Target, draw: random.Random) -> str:
    async with connected(target) as (_, writer):
        writer.write(any_request(draw, draw.random() < 0.5))
        await writer.drain()
        await asyncio.sleep(draw.random() * 0.2)
    return "left"


async def resets(target: Target, draw: random.Random) -> str:
    async with connected(target) as (_, writer):
        writer.write(any_request(draw, True))
        await writer.drain()
        await asyncio.sleep(draw.random() * 0.1)
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    return "reset"


async def leaves_within_a_stream(target: Target, draw: random.Random) -> str:
    body = {"prompt": words(draw, 20), "max_tokens": 1000, "ignore_eos": True, "stream": True, "n": draw.randint(1, 2)}
    async with connected(target) as (reader, writer):
        writer.write(request("/v1/completions", json.dumps(body).encode()))
        status, _ = await read_head(reader)
        for _ in range(draw.randint(0, 12)):
            await read_chunk(reader)
    return "left" if status == 200 else f"fault: status {status}"


async def half_closes(target: Target, draw: random.Random) -> str:
    """It may count as gone, and gets an error or its answer, but something that is whole."""
    async with connected(target) as (reader, writer):
        writer.write(any_request(draw, False))
        writer.write_eof()
        try:
            answer = await read_answer(reader)
        except asyncio.IncompleteReadError as error:
            return "closed" if not error.partial else f"fault: {error.partial[:60]!r}"
    return "answered" if answer.status in {200, 400, 499, 503} else f"fault: status {answer.status}"


async def reads_slowly(target: Target, draw: random.Random) -> str:
    async with connected(target) as (reader, writer):
        writer.write(any_request(draw, True))
        return verdict(await read_answer(reader, pause=0.02))


KINDS: list[Kind] = [
    well_behaved, well_behaved, well_behaved, well_behaved, pipelined, with_a_bad_body, with_a_bad_body,
    leaves_before_the_end_of_its_request, leaves_without_its_answer, resets, leaves_within_a_stream,
    leaves_within_a_stream, half_closes, reads_slowly,
]  # fmt: skip


@contextlib.asynccontextmanager
async def idle_connections(target: Target, count: int) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(connected(target))
        yield


async def drip(target: Target, number: int) -> None:
    """Half of them send a body in single bytes, half take large answers in small pieces."""
    async with connected(target) as (reader, writer):
        if number % 2 == 0:
            writer.write(request("/v1/completions", None, headers="Content-Length: 1000\r\n"))
            for byte in b'{"prompt":"' + b"x" * 500:
                if reader.at_eof() or writer.is_closing():  # the server does not wait for ever
                    return
                writer.write(bytes([byte]))
                await asyncio.sleep(0.5)
        else:
            writer.write(request("/openapi.json", None, "GET") * 50)
            while await reader.read(64):
                await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def slow_clients(target: Target, count: int) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(drip(target, number)) for number in range(count)]
    await asyncio.sleep(1)  # until all are there
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
