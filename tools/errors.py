"""The error every tool raises for bad input: which file, which item in it, what was expected, what was found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

MAX_SHOWN = 300


class ToolError(Exception):
    """Bad input or a failed environment. Its text is meant for the user; a traceback would add nothing."""


def mismatch(file: Path | str, item: str, expected: object, found: object) -> ToolError:
    """The one form in which every refusal is worded."""
    return ToolError(f"{file}: {shown(item)}: expected {shown(expected)}, found {shown(found)}")


def shown(value: object) -> str:
    """A value as part of a message: one line, not endless, and nothing that a terminal would act on."""
    try:
        text = str(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list nested very deep
        text = type(value).__name__
    if len(text) > MAX_SHOWN:
        text = text[:MAX_SHOWN] + "…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def run_tool(main: Callable[[], int]) -> int:
    """Runs a tool's main and turns its failures into one line on stderr and an exit status."""
    try:
        return main()
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
