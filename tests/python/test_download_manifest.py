"""The manifest's reader: every wrong field is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.hub.manifest import MANIFEST_NAME, FileRecord, Manifest, read_manifest

RECORD = {"path": "config.json", "size": 3, "sha256": "0" * 64, "etag": None}
GOOD = {"format": 1, "repository": "a/b", "revision": "c", "files": [RECORD]}


def with_record(**fields: object) -> dict:
    return GOOD | {"files": [RECORD | fields]}


def without(document: dict, field: str) -> dict:
    return {name: value for name, value in document.items() if name != field}


def write(folder: Path, document: object) -> Path:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    (folder / MANIFEST_NAME).write_bytes(data)
    return folder


def test_a_good_one_is_read(tmp_path: Path) -> None:
    record = FileRecord("config.json", 3, "0" * 64, None)
    assert read_manifest(write(tmp_path, GOOD)) == Manifest("a/b", "c", (record,))
    assert read_manifest(tmp_path / "nowhere") is None
    assert read_manifest(tmp_path / MANIFEST_NAME) is None  # a file where the folder should be


BROKEN = [
    (b"", "not valid JSON"),
    (b"\xff", "not valid JSON"),
    (b" " * ((1 << 20) + 1), "length: expected at most 1048576 bytes"),
    (json.dumps(GOOD).encode()[:-1] + b', "format": 1}', "duplicate key 'format'"),
    ([GOOD], "expected a JSON object"),
    (without(GOOD, "revision"), "fields: expected files, format, repository, revision"),
    (GOOD | {"more": 1}, "fields: expected"),
    (GOOD | {"format": 2}, "format: expected 1, found 2"),
    (GOOD | {"format": True}, "format: expected 1, found True"),
    (GOOD | {"repository": 7}, "repository and revision: expected strings"),
    (GOOD | {"revision": None}, "repository and revision: expected strings"),
    (GOOD | {"files": []}, "files: expected a list of files"),
    (GOOD | {"files": {"config.json": RECORD}}, "files: expected a list of files"),
    (GOOD | {"files": [RECORD, RECORD]}, "files: expected each path once"),
    (GOOD | {"files": [7]}, "file: expected etag, path, sha256, size, found 7"),
    (GOOD | {"files": [without(RECORD, "etag")]}, "file: expected etag, path, sha256, size"),
    (with_record(more=1), "file: expected etag, path, sha256, size"),
    (with_record(path="../config.json"), "file name: expected a relative path"),
    (with_record(path="/config.json"), "file name: expected a relative path"),
    (with_record(path="a\0b"), "file name: expected a relative path"),
    (with_record(path=7), "file name: expected a relative path"),
    (with_record(size=-1), "config.json: size"),
    (with_record(size=3.0), "config.json: size"),
    (with_record(size=True), "config.json: size"),
    (with_record(size="3"), "config.json: size"),
    (with_record(size=1 << 45), "config.json: size"),
    (with_record(sha256="0" * 63), "config.json: sha256: expected 64 hexadecimal digits"),
    (with_record(sha256="G" * 64), "config.json: sha256: expected 64 hexadecimal digits"),
    (with_record(sha256=None), "config.json: sha256: expected 64 hexadecimal digits"),
    (with_record(etag=7), "config.json: etag: expected a string or null"),
]


@pytest.mark.parametrize(("document", "words"), BROKEN)
def test_a_broken_one_is_refused(document: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"kipp_download\.json") as caught:
        read_manifest(write(tmp_path, document))
    assert words in str(caught.value)


def test_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).mkdir()
    with pytest.raises(ToolError, match="cannot read: Is a directory"):
        read_manifest(tmp_path)
