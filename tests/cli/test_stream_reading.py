"""The client of bench/server_goodput.py on a made-up server: whole, broken, cut and refused streams, and times."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from examples import ROOT

sys.path.append(str(ROOT / "bench"))
from load_clients import Stream, Target, streamed
from stream_reading import Limits, Read, events, read_stream

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
DONE = b"data: [DONE]\n\n"


def event(text: str, finish: str | None = None, **more: Any) -> bytes:
    chunk = {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


WHOLE = [event("a"), event(" b"), event("", "length", usage=USAGE), DONE]


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def chunked(pieces: Sequence[bytes]) -> bytes:
    return HEAD + b"".join(chunk(piece) for piece in [*pieces, b""])


def ask(answer: bytes, patience: float = 10.0, *, stays_open: bool = False) -> tuple[Stream, bytes]:
    """What the client makes of a server that sends these bytes; and the request that the server saw."""
    seen = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        seen.extend(head + await reader.readexactly(length))
        writer.write(answer)
        if stays_open:
            await reader.read()  # until the client leaves
        writer.close()

    async def run() -> Stream:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await streamed(Target("127.0.0.1", port), {"prompt": "x", "max_tokens": 2}, patience)

    return asyncio.run(run()), bytes(seen)


def fault_of(pieces: Sequence[bytes]) -> str:
    return read_stream(ask(chunked(pieces))[0]).fault


def test_a_whole_stream() -> None:
    stream, request = ask(chunked(WHOLE))
    read = read_stream(stream)
    assert (read.fault, read.prompt_tokens, read.tokens, len(read.texts)) == ("", 5, 2, 2)
    assert request.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert json.loads(request.split(b"\r\n\r\n")[1]) == {"prompt": "x", "max_tokens": 2, "stream": True}
    assert 0 < read.to_first < 10 and 0 <= read.per_token < 10


def test_events_may_be_cut_and_joined_anywhere() -> None:
    joined = b"".join(WHOLE)
    for size in (1, 7, len(joined)):
        read = read_stream(ask(chunked([joined[i : i + size] for i in range(0, len(joined), size)]))[0])
        assert (read.fault, read.tokens, len(read.texts)) == ("", 2, 2)


def test_times_are_those_of_an_events_last_byte() -> None:
    first, second = event("a"), event("b")
    pieces = [(1.0, first[:9]), (2.0, first[9:] + second), (3.0, event("", "length", usage=USAGE)), (4.0, DONE)]
    read = read_stream(Stream(0.5, 200, pieces, ""))
    assert (read.fault, read.texts, read.first, read.finished) == ("", (2.0, 2.0), 2.0, 3.0)
    assert (read.to_first, read.per_token) == (1.5, 1.0)


def test_tokens_without_text_count_by_the_usage() -> None:
    usage = USAGE | {"completion_tokens": 5}
    pieces = [(1.0, event("a")), (5.0, event("", "length", usage=usage)), (5.0, DONE)]
    read = read_stream(Stream(0.0, 200, pieces, ""))
    assert (read.tokens, read.per_token, read.texts) == (5, 1.0, (1.0,))
    silent = read_stream(Stream(0.0, 200, pieces[1:], ""))
    assert (silent.to_first, silent.per_token) == (5.0, 0.0)


def test_comments_and_empty_usages_are_nothing() -> None:
    pieces = [(1.0, b": ping\n\n:\n\n"), (2.0, event("a", usage=None)), (3.0, b"".join(WHOLE[1:]))]
    assert [data[:4] for _, data in events(pieces)] == ['{"ch', '{"ch', '{"ch', "[DON"]
    read = read_stream(Stream(0.0, 200, pieces, ""))
    assert (read.fault, read.tokens) == ("", 2)


@pytest.mark.parametrize(("pieces", "fault"), [
    ([event("a"), b'data: {"error": {"message": "out of memory"}}\n\n'], "error: {\"message\": \"out of memory\"}"),
    ([event("a"), b'error: {"code": 500}\n\n', DONE], 'not an event of a completion: error: {"code": 500}'),
    ([event("a"), event("", "length", usage=USAGE)], "no [DONE]"),
    ([event("a"), DONE], "no finish reason"),
    ([], "no [DONE]"),
    ([*WHOLE[:3], DONE[:-1]], "not an event of a completion: cut: data: [DONE]"),
    ([b"data: {\n\n", *WHOLE], "not an event of a completion: {"),
    ([b'data: {"choices": 7}\n\n', *WHOLE], 'not an event of a completion: {"choices": 7}'),
    ([b"data: [1]\n\n", *WHOLE], "not an event of a completion: [1]"),
])  # fmt: skip
def test_a_stream_that_is_not_whole_says_why(pieces: list[bytes], fault: str) -> None:
    assert fault_of(pieces).strip() == fault


def test_what_came_before_a_fault_is_kept() -> None:
    stream, _ = ask(HEAD + chunk(event("a")) + b"ff\r\nhalf of a chunk")
    read = read_stream(stream)
    assert read.fault == "the connection ended within the answer"
    assert len(read.texts) == 1 and read.to_first < 10 and read.finished is None and math.isinf(read.per_token)


def test_chunks_that_are_no_chunks() -> None:
    assert read_stream(ask(HEAD + b"zz\r\n")[0]).fault.startswith("ValueError")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}",
                                    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"])
def test_a_refusal(answer: bytes) -> None:
    read = read_stream(ask(answer)[0])
    assert read.fault == f"status {answer[9:12].decode()}" and math.isinf(read.to_first)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_no_answer(answer: bytes) -> None:
    assert read_stream(ask(answer)[0]).fault == "the connection ended within the answer"


def test_patience_ends() -> None:
    read = read_stream(ask(HEAD + chunk(event("a")), 0.3, stays_open=True)[0])
    assert read.fault == "not complete in time" and len(read.texts) == 1


def test_nobody_listens() -> None:
    stream = asyncio.run(streamed(Target("127.0.0.1", 9), {}, 5))  # the port of "discard"
    assert stream.status == 0 and read_stream(stream).fault.startswith("ConnectionRefusedError")


def test_limits() -> None:
    limits = Limits(first_token=2.0, per_token=0.2)
    assert limits.longest(64) == pytest.approx(14.6)
    good = Read("", begun=10.0, first=12.0, finished=12.0 + 0.2 * 9.999, texts=(12.0,), tokens=11)
    assert good.meets(limits)
    for worse in ({"first": 12.1}, {"finished": 14.1}, {"fault": "no [DONE]"}, {"first": None}, {"tokens": 10}):
        assert not good._replace(**worse).meets(limits), worse
