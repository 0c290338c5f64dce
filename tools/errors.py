"""The error every tool raises for bad input: which file, which item in it, what was expected, what was found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


class ToolError(Exception):
    """Bad input or a failed environment. Its text is meant for the user; a traceback would add nothing."""


def mismatch(file: Path | str, item: str, expected: object, found: object) -> ToolError:
    """The one form in which every refusal is worded."""
    return ToolError(f"{file}: {item}: expected {expected}, found {found}")


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
