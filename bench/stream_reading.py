"""Reads a streamed completion, as any server of OpenAI's interface sends it: which token when, and what failed.

No clock, no socket: the pieces are given, with the moments when they came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from load_clients import Stream


class Limits(NamedTuple):
    """What a request must meet to count."""

    first_token: float  # seconds
    per_token: float  # seconds, of every token after the first, on average

    def longest(self, num_tokens: int) -> float:
        """Whoever is not done by then has met neither or only one."""
        return self.first_token + (num_tokens - 1) * self.per_token


class Read(NamedTuple):
    """What a stream said. Times are the client's; None: it did not come that far."""

    fault: str  # "": whole
    begun: float
    first: float | None = None  # the first text
    finished: float | None = None  # the end of the choice, which comes with its last token
    texts: tuple[float, ...] = ()  # when each piece of text was there
    prompt_tokens: int = 0
    tokens: int = 0

    @property
    def to_first(self) -> float:
        return math.inf if self.first is None else self.first - self.begun

    @property
    def per_token(self) -> float:
        """Seconds of each token after the first."""
        if self.first is None or self.finished is None or self.tokens < 2:
            return math.inf
        return (self.finished - self.first) / (self.tokens - 1)

    def meets(self, limits: Limits) -> bool:
        return not self.fault and self.to_first <= limits.first_token and self.per_token <= limits.per_token


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """The data of server-sent events, each with the moment of its last byte. What is left over is "cut: …"."""
    rest, now = b"", 0.0
    for now, piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for event in whole:
            lines = [line for line in event.decode(errors="replace").split("\n") if line and not line.startswith(":")]
            if lines:  # others are comments, which keep a connection alive
                yield now, "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines)
    if rest.strip():
        yield now, "cut: " + rest[:80].decode(errors="replace")


def read_stream(stream: Stream) -> Read:
    """Everything of it that can be read; the fault says why it is not whole."""
    if stream.status != 200:
        return Read(stream.fault or f"status {stream.status}", stream.begun)
    found = Reading(stream.begun)
    for now, data in events(stream.pieces):
        found.take(now, data)
    fault = stream.fault or found.fault or ("" if found.is_done else "no [DONE]")
    return found.as_read(fault or ("" if found.finished is not None else "no finish reason"))


class Reading:
    """Takes one event after the other."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.fault = ""
        self.is_done = False
        self.texts: list[float] = []
        self.finished: float | None = None
        self.usage: dict[str, int] = {}

    def take(self, now: float, data: str) -> None:
        if data == "[DONE]":
            self.is_done = True
            return
        try:
            event = json.loads(data)
            if "error" in event:
                self.fault = self.fault or f"error: {json.dumps(event['error'])[:200]}"
                return
            self.usage = event.get("usage") or self.usage
            for choice in event["choices"]:
                self.take_choice(now, choice)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.fault = self.fault or f"not an event of a completion: {data[:80]}"

    def take_choice(self, now: float, choice: dict[str, Any]) -> None:
        if choice["text"]:
            self.texts.append(now)
        if choice.get("finish_reason"):
            self.finished = now

    def as_read(self, fault: str) -> Read:
        first = self.texts[0] if self.texts else self.finished
        return Read(fault, self.begun, first, self.finished, tuple(self.texts), self.usage.get("prompt_tokens", 0),
                    self.usage.get("completion_tokens", 0))
