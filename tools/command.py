"""Runs a tool's main with standard output as part of it: a full disk or a closed pipe there is one line, too."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TextIO

from tools.errors import ToolError, run_tool


def run_command(main: Callable[[], int]) -> int:
    """errors.run_tool, which sees what Python would only say at its exit, too: that the output is lost."""

    def flushed_main() -> int:
        with contextlib.redirect_stdout(_Output(sys.stdout)) as output:
            try:
                status = main()
            except SystemExit as ending:  # argparse, after --help or a wrong command line
                status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
            output.flush()
            return status

    return run_tool(flushed_main)


class _Output:
    """A text stream whose failures say where: print's do not, and argparse swallows every OSError."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._failure(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> ToolError:
        """What is still buffered would fail again at the interpreter's exit, so it goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        return ToolError(f"standard output: {error.strerror}")

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
