"""kipp_download.json: what was downloaded from where. It is written last, so a folder that has it was complete."""

from __future__ import annotations

import dataclasses
import json
import re
import stat
from pathlib import Path

from tools.atomic_file import write_file
from tools.checkpoints import Checkpoint
from tools.errors import ToolError, mismatch
from tools.hub.listing import MAX_FILE_BYTES, REQUIRED, require_plain_path
from tools.strict_json import parse_json_object

MANIFEST_NAME = "kipp_download.json"
FORMAT = 1
MAX_MANIFEST_BYTES = 1 << 20
_FIELDS = {"format", "repository", "revision", "files"}
_FILE_FIELDS = {"path", "size", "sha256", "etag"}


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """One downloaded file; etag is None if the server gave none, or if the file was there already."""

    path: str
    size: int
    sha256: str
    etag: str | None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The files of one revision in one folder."""

    repository: str
    revision: str
    files: tuple[FileRecord, ...]

    def write(self, folder: Path) -> None:
        document = {"format": FORMAT, **dataclasses.asdict(self)}
        write_file(folder / MANIFEST_NAME, json.dumps(document, indent=2).encode() + b"\n")


def read_manifest(folder: Path) -> Manifest | None:
    """The folder's manifest, None if it has none."""
    path = folder / MANIFEST_NAME
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ToolError(f"{path}: cannot read: {error.strerror}") from error
    return parse_manifest(data, path)


def parse_manifest(data: bytes, path: Path) -> Manifest:
    """Every field is checked: a manifest decides which files are taken for good."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise mismatch(path, "length", f"at most {MAX_MANIFEST_BYTES} bytes", "more")
    document = parse_json_object(data, path)
    if set(document) != _FIELDS:
        raise mismatch(path, "fields", ", ".join(sorted(_FIELDS)), ", ".join(sorted(document)) or "none")
    if type(document["format"]) is not int or document["format"] != FORMAT:
        raise mismatch(path, "format", FORMAT, document["format"])
    repository, revision, files = document["repository"], document["revision"], document["files"]
    if not isinstance(repository, str) or not isinstance(revision, str):
        raise mismatch(path, "repository and revision", "strings", [repository, revision])
    if not isinstance(files, list) or not files:
        raise mismatch(path, "files", "a list of files", files)
    records = tuple(_parse_record(entry, path) for entry in files)
    if len({record.path for record in records}) != len(records):
        raise mismatch(path, "files", "each path once", "one twice")
    return Manifest(repository, revision, records)


def _parse_record(entry: object, path: Path) -> FileRecord:
    if not isinstance(entry, dict) or set(entry) != _FILE_FIELDS:
        raise mismatch(path, "file", ", ".join(sorted(_FILE_FIELDS)), entry)
    name = require_plain_path(entry["path"], str(path))
    size, sha256, etag = entry["size"], entry["sha256"], entry["etag"]
    if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise mismatch(path, f"{name}: size", f"0 to {MAX_FILE_BYTES}", size)
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise mismatch(path, f"{name}: sha256", "64 hexadecimal digits", sha256)
    if etag is not None and not isinstance(etag, str):
        raise mismatch(path, f"{name}: etag", "a string or null", etag)
    return FileRecord(name, size, sha256, etag)


def find_fault(manifest: Manifest | None, folder: Path, checkpoint: Checkpoint) -> str | None:
    """Why the folder is not the complete revision, judged by the manifest and the files' sizes; None if it is."""
    if manifest is None:
        return f"{folder}: no complete download of {checkpoint.repository} (no {MANIFEST_NAME})"
    path = folder / MANIFEST_NAME
    pinned = (checkpoint.repository, checkpoint.revision)
    if (manifest.repository, manifest.revision) != pinned:
        return str(mismatch(path, "repository, revision", " ".join(pinned),
                            f"{manifest.repository} {manifest.revision}"))
    names = {record.path for record in manifest.files}
    missing = [name for name in REQUIRED if name not in names]
    if missing or not any(name.endswith(".safetensors") for name in names):
        return str(mismatch(path, "files", missing[0] if missing else "weights", "none"))
    for record in manifest.files:
        try:
            status = (folder / record.path).stat()
        except OSError as error:
            return f"{folder / record.path}: {error.strerror}"
        if not stat.S_ISREG(status.st_mode) or status.st_size != record.size:
            return str(mismatch(folder / record.path, "size", f"{record.size} bytes", status.st_size))
    return None
