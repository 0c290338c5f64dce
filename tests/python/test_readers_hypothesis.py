"""Properties of everything that reads JSON from elsewhere: a ToolError of one line or a result, never anything else.

The examples are the same on every run; KIPP_HYPOTHESIS_EXAMPLES=20000 draws that many new ones for each property.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tools.errors import ToolError
from tools.hub.client import retry_after
from tools.hub.endpoint import origin, redirect_target
from tools.hub.listing import hub_file, parse_listing
from tools.hub.manifest import FileRecord, Manifest, parse_manifest, read_manifest
from tools.safetensors_reader import INDEX_NAME, SafetensorsFile, SnapshotWeights, parse_index

EXAMPLES = os.environ.get("KIPP_HYPOTHESIS_EXAMPLES")
PROFILE = settings(max_examples=int(EXAMPLES or 60), derandomize=EXAMPLES is None, deadline=None, database=None,
                   suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

# Values that a reader might trip over: other types, huge numbers, deep nesting, names that are no names.
AWKWARD = st.sampled_from([None, True, False, 0, -1, 1 << 31, (1 << 63) - 1, 1 << 63, 10**4000, 0.5, 1e308, "", "\0",
                           "\ud800", "../x", "a\nb", "\x1b[2J", "x" * 5000, [], {}, [[]], {"a": {}}, [1 << 62] * 400])
LEAVES = AWKWARD | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=4),
                                                      st.dictionaries(st.text(max_size=4), inner, max_size=3)),
                      max_leaves=8)


def encode(document: object) -> bytes:
    return json.dumps(document).encode()


def objects(good: dict[str, st.SearchStrategy]) -> st.SearchStrategy[dict]:
    """Objects with the right fields and mostly the right values; now and then one is missing, wrong or too many."""
    fields = {name: st.one_of(value, value, value, VALUES) for name, value in good.items()}
    return st.one_of(st.fixed_dictionaries(fields), st.fixed_dictionaries(fields),
                     st.fixed_dictionaries({}, optional=fields | {"extra": VALUES}))


@st.composite
def damaged(draw: Callable, documents: st.SearchStrategy) -> bytes:
    """The bytes of a document, sometimes with a few of them changed, cut or doubled."""
    data = bytearray(encode(draw(documents)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        data[position : position + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data)


@contextlib.contextmanager
def one_line_or_nothing(limit_bytes: int) -> Iterator[None]:
    """Only a ToolError may leave, worded for a terminal; what is allocated on the way stays within a limit."""
    tracemalloc.start()
    try:
        yield
    except ToolError as error:
        text = str(error)
        assert text.isprintable()
        assert len(text) < 2000
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < limit_bytes


def memory_limit(num_bytes: int) -> int:
    """Python's objects of a parsed JSON text take up to some 50 times its bytes."""
    return (1 << 20) + 100 * num_bytes


COUNTS = st.one_of(st.integers(0, 8), st.sampled_from([1 << 20, 1 << 40, (1 << 63) - 1]))
ENTRIES = objects({"dtype": st.sampled_from(["BF16", "F32", "U8", "I64", "BOOL"]),
                   "shape": st.lists(COUNTS, max_size=4), "data_offsets": st.lists(COUNTS, min_size=2, max_size=2)})
HEADERS = st.one_of(st.dictionaries(st.text(max_size=4), ENTRIES | VALUES, max_size=4), VALUES)


@st.composite
def good_headers(draw: Callable) -> tuple[dict, int]:
    """A header that is right, and the length of its data."""
    header, position = {}, 0
    for name in draw(st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=5)):
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        num_bytes = 2
        for size in shape:
            num_bytes *= size
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + num_bytes]}
        position += num_bytes
    return header, position


@PROFILE
@given(header=damaged(HEADERS), length=st.none() | st.integers(0, (1 << 64) - 1), rest=st.integers(0, 64))
@example(header=encode({"a": {"dtype": [], "shape": [], "data_offsets": [0, 2]}}), length=None, rest=2)
@example(header=encode({"a": {"dtype": "U8", "shape": [1 << 62] * 400, "data_offsets": [0, 2]}}), length=None, rest=2)
@example(header=b"{}", length=99_000_000, rest=0)
def test_no_safetensors_header_breaks_the_reader(tmp_path: Path, header: bytes, length: int | None, rest: int) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + bytes(rest))
    with one_line_or_nothing(memory_limit(len(header) + rest)), SafetensorsFile(path) as file:
        assert sum(entry.num_bytes for entry in file.tensors.values()) <= file.num_bytes
        for entry in file.tensors.values():
            file.read(entry, 0, entry.num_bytes)


@PROFILE
@given(good=good_headers(), metadata=st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2))
def test_every_right_header_is_read(tmp_path: Path, good: tuple[dict, int], metadata: dict | None) -> None:
    header, num_bytes = good
    text = encode(header | ({} if metadata is None else {"__metadata__": metadata}))
    path = tmp_path / "f.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(num_bytes))
    with SafetensorsFile(path) as file:
        assert {name: list(entry.shape) for name, entry in file.tensors.items() if name != "__metadata__"} \
            == {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


INDICES = objects({"metadata": objects({"total_size": st.integers(0, 100)}),
                   "weight_map": st.dictionaries(st.sampled_from(["x", "y", "z\n"]), st.one_of(
                       st.sampled_from(["model-1.safetensors", "model-2.safetensors", "model-3.safetensors",
                                        "../model-1.safetensors", "\0.safetensors", "\ud800.safetensors",
                                        ".safetensors", "x" * 300 + ".safetensors"]), VALUES), max_size=3)})


@PROFILE
@given(index=damaged(INDICES | VALUES))
@example(index=encode({"weight_map": {"x": "\0.safetensors"}}))
@example(index=encode({"weight_map": {"x": "\ud800.safetensors"}}))
def test_no_index_breaks_the_reader(tmp_path: Path, index: bytes) -> None:
    for shard, tensor in (("model-1", "x"), ("model-2", "y")):
        header = encode({tensor: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})
        (tmp_path / f"{shard}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    (tmp_path / INDEX_NAME).write_bytes(index)
    with one_line_or_nothing(memory_limit(len(index))), SnapshotWeights(tmp_path) as weights:
        assert weights.location.keys() <= {"x", "y"}
        for name in weights.location:
            assert weights.read(name, 0, 4) == bytes(4)


@PROFILE
@given(index=damaged(INDICES | VALUES))
def test_an_index_names_only_files_beside_it(index: bytes) -> None:
    with contextlib.suppress(ToolError):
        for shard in parse_index(index, "index").weight_map.values():
            assert shard == os.path.basename(shard)
            assert shard.isascii()
            assert shard.isprintable()


SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
NAMES = st.one_of(st.sampled_from(["config.json", "a/b", "model.safetensors"]), st.text(max_size=12))
RECORDS = objects({"path": NAMES, "size": st.integers(0, 1 << 44), "sha256": SHA256,
                   "etag": st.none() | st.text(max_size=8)})
MANIFESTS = objects({"format": st.just(1), "repository": st.text(max_size=8), "revision": st.text(max_size=8),
                     "files": st.lists(RECORDS, min_size=1, max_size=4)})


@PROFILE
@given(data=damaged(MANIFESTS | VALUES))
@example(data=b" " * ((1 << 20) + 1))
@example(data=b"[" * 100_000)
def test_no_manifest_breaks_the_reader(data: bytes) -> None:
    with one_line_or_nothing(memory_limit(len(data))):
        for record in parse_manifest(data, Path("manifest")).files:
            require_inside(record.path)
            assert 0 <= record.size <= 1 << 44


def require_inside(name: str) -> None:
    path = os.path.normpath(os.path.join("/folder", name))
    assert path.startswith("/folder/")
    assert os.fsencode(name)  # the file system can be asked for it


GOOD_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\\", categories=["L", "N", "P"]), min_size=1,
                     max_size=8).filter(lambda name: name not in (".", ".."))


@PROFILE
@given(repository=st.text(st.characters(codec="utf-8")),
       names=st.lists(GOOD_NAMES, min_size=1, max_size=4, unique=True),
       size=st.integers(0, 1 << 44), sha256=SHA256, etag=st.none() | st.text(st.characters(codec="utf-8")))
def test_a_manifest_is_read_as_it_was_written(tmp_path: Path, repository: str, names: list[str], size: int, sha256: str,
                                              etag: str | None) -> None:
    manifest = Manifest(repository, "r", tuple(FileRecord(name, size, sha256, etag) for name in names))
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest


LARGE = objects({"sha256": SHA256, "size": st.integers(0, 9), "pointerSize": st.just(130)})
LISTED = objects({"rfilename": NAMES, "size": st.integers(0, 9) | st.integers(0, 1 << 44),
                  "blobId": SHA256.map(lambda text: text[:40]), "lfs": st.none() | LARGE})
LISTINGS = objects({"sha": st.just("r"), "siblings": st.lists(LISTED, max_size=4)})


@PROFILE
@given(data=damaged(LISTINGS | VALUES))
def test_no_listing_breaks_the_reader(data: bytes) -> None:
    with one_line_or_nothing(memory_limit(len(data))):
        for name, entry in parse_listing(data, "listing", "r").items():
            require_inside(name)
            assert hub_file(name, entry, "listing").num_bytes <= 1 << 44


@PROFILE
@given(location=st.one_of(st.text(st.characters(max_codepoint=255), max_size=20), st.builds(
    "{}{}{}{}".format, st.sampled_from(["http:", "https:", "//", "file:", "", "HTTPS://"]),
    st.sampled_from(["//", "", "[", "a@", ":"]), st.text(st.characters(max_codepoint=255), max_size=8),
    st.sampled_from(["", ":99999", ":0", "/x y", "?#"]))))
def test_no_location_breaks_the_client(location: str) -> None:
    with one_line_or_nothing(1 << 20):
        target = redirect_target("https://hub.example/a", location)
        assert origin(target)[0] == "https"
        assert target.isascii()
        assert target.isprintable()


@PROFILE
@given(value=st.one_of(st.text(st.characters(max_codepoint=255), max_size=40),
                       st.dates().map("{:%a, %d %b %Y} 99:00:00 GMT".format)))
@example(value="Wed, 21 Oct 9999 07:28:00 -9999")
def test_no_retry_after_breaks_the_client(value: str) -> None:
    headers = Message()
    with contextlib.suppress(ValueError):  # the header type refuses line feeds
        headers["Retry-After"] = value
    wait = retry_after(429, headers)
    assert wait is None or wait >= 0


def test_the_properties_can_fail() -> None:
    """The frame around them does catch what it should."""
    with pytest.raises(ValueError, match="x"), one_line_or_nothing(1 << 20):
        raise ValueError("x")
    with pytest.raises(AssertionError), one_line_or_nothing(1 << 20):
        raise ToolError("two\nlines")
    with pytest.raises(AssertionError), one_line_or_nothing(1 << 20):
        bytearray(1 << 21)
