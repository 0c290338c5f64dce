"""What the tests of `kipp chat` share: a chat at a terminal, and what its lines say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from kipp_process import Kipp
from terminal import Terminal

PROMPT = "> "
ENDLESS = ("--logit-bias", "151645=-inf", "--logit-bias", "151643=-inf")  # no stop token is ever drawn


def start(kipp: Kipp, *arguments: str, size: tuple[int, int] = (24, 120), **variables: str) -> Terminal:
    environment = kipp.environment | {"TERM": "xterm", "HOME": "/nonexistent"} | variables
    environment = {name: value for name, value in environment.items() if value}
    return Terminal(kipp.command("chat", *arguments), environment, rows=size[0], columns=size[1])


def evaluated(shown: str) -> tuple[int, int]:
    """New and all prompt tokens of an answer."""
    found = re.search(r"\[(\d+) of (\d+) prompt tokens", shown)
    assert found, shown
    return int(found[1]), int(found[2])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
