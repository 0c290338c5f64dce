"""JSON for files that must be exact: duplicate keys, NaN and broken UTF-8 are errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path

from tools.errors import ToolError


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {key!r:.100}")
        result[key] = value
    return result


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def parse_json_object(data: bytes, path: Path | str) -> dict:
    """The object that a file's bytes hold."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ToolError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
