"""What a revision holds, as the hub's API says it, and which of its files a conversion needs."""

from __future__ import annotations

import dataclasses
import hashlib
import re

from tools.checkpoints import Checkpoint
from tools.errors import ToolError, mismatch
from tools.hub.client import HubClient
from tools.safetensors_reader import INDEX_NAME, SINGLE_NAME, parse_index
from tools.strict_json import parse_json_object

MAX_LISTING_BYTES = 8 << 20
MAX_INDEX_BYTES = 16 << 20
MAX_FILE_BYTES = 1 << 44  # 16 TiB: a size that is no lie
REQUIRED = ("config.json", "generation_config.json", "tokenizer.json")
TEMPLATE_HOLDERS = ("tokenizer_config.json", "chat_template.jinja")  # the converter reads what there is of them


class FileDigest:
    """Hashes a file in one pass: sha256, and git's blob id where the hub knows the file only by that."""

    def __init__(self, num_bytes: int, *, git: bool) -> None:
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % num_bytes, usedforsecurity=False) if git else None

    def update(self, data: bytes | memoryview) -> None:
        self._sha256.update(data)
        if self._git is not None:
            self._git.update(data)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def identity(self) -> str:
        """In the terms of HubFile.identity."""
        return self.sha256 if self._git is None else self._git.hexdigest()


@dataclasses.dataclass(frozen=True)
class HubFile:
    """One file of a revision. identity: its sha256 if it is large, else its git blob id (SHA-1)."""

    name: str
    num_bytes: int
    identity: str

    @property
    def identity_kind(self) -> str:
        return "sha256" if len(self.identity) == 64 else "git blob id"

    def digest(self) -> FileDigest:
        return FileDigest(self.num_bytes, git=self.identity_kind != "sha256")


def require_plain_path(path: object, where: str) -> str:
    """A relative path without .., backslashes or control characters."""
    if not isinstance(path, str) or not path or len(path) > 1000 or not path.isprintable() or "\\" in path:
        raise mismatch(where, "file name", "a relative path", repr(path))
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise mismatch(where, "file name", "a relative path", repr(path))
    return path


def parse_listing(data: bytes, where: str, revision: str) -> dict[str, dict]:
    """The API's entries by path; all names are checked, even of files that nobody asks for."""
    document = parse_json_object(data, where)
    if document.get("sha") != revision:
        raise mismatch(where, "sha", revision, document.get("sha"))
    siblings = document.get("siblings")
    if not isinstance(siblings, list) or not all(isinstance(entry, dict) for entry in siblings):
        raise mismatch(where, "siblings", "a list of objects", type(siblings).__name__)
    entries: dict[str, dict] = {}
    for entry in siblings:
        name = require_plain_path(entry.get("rfilename"), where)
        if name in entries:
            raise mismatch(where, f"file {name}", "one entry", "two")
        entries[name] = entry
    return entries


def hub_file(name: str, entry: dict, where: str) -> HubFile:
    """An entry of the listing; one without size or hash is refused, since the file could not be checked."""
    num_bytes, lfs = entry.get("size"), entry.get("lfs")
    if type(num_bytes) is not int or not 0 <= num_bytes <= MAX_FILE_BYTES:
        raise mismatch(where, f"{name}: size", f"0 to {MAX_FILE_BYTES}", num_bytes)
    if lfs is None:
        return HubFile(name, num_bytes, _hex(entry.get("blobId"), 40, f"{name}: blobId", where))
    if not isinstance(lfs, dict):
        raise mismatch(where, f"{name}: lfs", "an object", type(lfs).__name__)
    if lfs.get("size") != num_bytes:
        raise mismatch(where, f"{name}: lfs.size", num_bytes, lfs.get("size"))
    return HubFile(name, num_bytes, _hex(lfs.get("sha256"), 64, f"{name}: lfs.sha256", where))


def _hex(value: object, digits: int, item: str, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{digits}}}", value):
        raise mismatch(where, item, f"{digits} hexadecimal digits", value)
    return value


class Revision:
    """A pinned revision on its hub."""

    def __init__(self, client: HubClient, checkpoint: Checkpoint) -> None:
        self.client = client
        self.repository, self.revision = checkpoint.repository, checkpoint.revision
        self.what = f"{self.repository} at revision {self.revision}"

    def url(self, name: str) -> str:
        return self.client.endpoint.file_url(self.repository, self.revision, name)

    def needed_files(self) -> list[HubFile]:
        """What the converter reads, small files first. A revision that lacks one is refused before gigabytes arrive."""
        where = self.client.endpoint.api_url(self.repository, self.revision)
        entries = parse_listing(self.client.get_bytes(where, self.what, MAX_LISTING_BYTES), where, self.revision)
        names = [*REQUIRED, *(name for name in TEMPLATE_HOLDERS if name in entries)]
        if len(names) == len(REQUIRED):
            raise mismatch(where, "files", " or ".join(TEMPLATE_HOLDERS), "neither")
        if (SINGLE_NAME in entries) == (INDEX_NAME in entries):
            found = "both" if SINGLE_NAME in entries else "neither"
            raise mismatch(where, "files", f"{SINGLE_NAME} or {INDEX_NAME}", found)
        names.append(SINGLE_NAME if SINGLE_NAME in entries else INDEX_NAME)
        if INDEX_NAME in entries:
            names += self._shards(hub_file(INDEX_NAME, entries[INDEX_NAME], where))
        for name in names:
            if name not in entries:
                raise ToolError(f"{self.what}: {self.client.endpoint.url} lists no file {name}, which the "
                                "conversion needs")
        return [hub_file(name, entries[name], where) for name in names]

    def _shards(self, index: HubFile) -> list[str]:
        """The names that the index gives; it is checked against the listing like every file."""
        url = self.url(index.name)
        data = self.client.get_bytes(url, f"{self.what}, {index.name}", MAX_INDEX_BYTES)
        digest = index.digest()
        digest.update(data)
        if digest.identity != index.identity:
            raise mismatch(url, index.identity_kind, index.identity, digest.identity)
        return sorted(set(parse_index(data, url).weight_map.values()))
