"""What the files of a snapshot must hash to, where that is known: the demo's, and those that were downloaded.

The registry pins a commit of the hub and no hashes. They are known for the demo, whose every file this repository can
make again, and for a folder with kipp_download.json, the record that the download wrote. The files of any other folder
are checked by what the artifact takes from them, and their hashes are recorded in it.
"""

from __future__ import annotations

from pathlib import Path

from tools.checkpoints import Checkpoint
from tools.demo import snapshot as demo
from tools.errors import ToolError, mismatch
from tools.strict_json import parse_json_object

DOWNLOAD_RECORD = "kipp_download.json"
DEMO_STORED = Path(demo.__file__).resolve().parent / "checkpoint"


def check_demo_files(checkpoint: Checkpoint, digests: dict[str, str], folder: Path) -> None:
    """The demo has no commit of a hub: its revision is the start of its weights' sha256."""
    found = digests.get("model.safetensors", "(no such file)")[:40]
    if found != checkpoint.revision:
        raise mismatch(folder / "model.safetensors", "first 40 digits of the sha256", checkpoint.revision, found)
    with demo.well_formed(DEMO_STORED):
        manifest = demo.load_manifest(DEMO_STORED)
        expected = {name: demo.sha256(data) for name, data in demo.sidecars(manifest).items()}
        expected["model.safetensors"] = manifest["model_sha256"]
    _require_equal(folder, expected, digests)


def check_downloaded_files(checkpoint: Checkpoint, digests: dict[str, str], folder: Path) -> None:
    """Every file that is read must be as it was when it was downloaded, and every downloaded one must be there."""
    path = folder / DOWNLOAD_RECORD
    if not path.exists():
        return
    record = parse_json_object(path.read_bytes(), path)
    pinned = f"{checkpoint.repository} {checkpoint.revision}"
    found = f"{record.get('repository')} {record.get('revision')}"
    if found != pinned:
        raise mismatch(path, "repository, revision", pinned, found)
    try:
        expected = {file["path"]: file["sha256"] for file in record["files"]}
    except (KeyError, TypeError) as error:
        raise ToolError(f"{path}: files: expected a list of files with path and sha256") from error
    _require_equal(folder, expected, digests)


def _require_equal(folder: Path, expected: dict[str, str], digests: dict[str, str]) -> None:
    for name, digest in expected.items():
        if digests.get(name) != digest:
            raise mismatch(folder / name, "sha256", digest, digests.get(name, "no such file"))
    for name in digests:
        if name not in expected:
            raise mismatch(folder / name, "file", "none: it is not one of the checkpoint's", "one")
