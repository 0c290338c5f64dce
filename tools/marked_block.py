"""The part of a document that a tool writes, between two lines that mark it."""

from __future__ import annotations

from tools.errors import ToolError


def replace_block(document: str, begin: str, end: str, content: str) -> str:
    """The document with content between its marks. Raises ToolError where a mark is missing."""
    head, found_begin, rest = document.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ToolError(f"expected the lines {begin} and {end}")
    return f"{head}{begin}\n{content}\n{end}{tail}"
