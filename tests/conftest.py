"""For every test: Ctrl-C reaches child processes also where the suite itself runs in the background."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that; a handler they do not inherit.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
