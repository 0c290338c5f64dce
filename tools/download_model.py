"""Downloads a pinned checkpoint from the model hub: exactly the files that tools/convert_to_gguf.py reads.

Every file is checked against the hash that the hub lists for the pinned revision, and gets its name only then. A run
that was stopped, by whatever, is continued by the same command. kipp_download.json, written last, marks a complete
folder; with it a second run needs no network.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.checkpoints import Checkpoint, find_checkpoint
from tools.errors import ToolError, mismatch, run_tool
from tools.hub.client import PIECE_BYTES, HubClient, Policy
from tools.hub.endpoint import endpoint_from
from tools.hub.listing import FileDigest, HubFile, Revision
from tools.hub.manifest import MANIFEST_NAME, FileRecord, Manifest, find_fault, read_manifest
from tools.hub.progress import Progress, note, size_text
from tools.hub.transfer import PartialFile, fetch
from tools.synthetic_snapshot import MARKER_NAME

MODELS_FOLDER = Path("models")
LOCK_NAME = ".kipp_download.lock"

EPILOG = """\
examples:
  python -m tools.download_model qwen3-0.6b                  to models/qwen3-0.6b, where the converter looks for it
  python -m tools.download_model qwen3-8b --output /data/8b
  python -m tools.download_model qwen3-8b --dry-run          what would be fetched, and how much of it
  python -m tools.download_model qwen3-8b --offline          is it complete? needs no network
  python -m tools.download_model qwen3-8b --verify           reads every file again and compares its sha256

environment:
  HF_ENDPOINT      another hub or a mirror (default: https://huggingface.co)
  HF_TOKEN         sent to the endpoint and to no other host; the Qwen3 checkpoints need none
  HF_HUB_OFFLINE   1: as --offline
  HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE: as everywhere

exit codes:
  0    the folder is complete (--dry-run: the listing was shown)
  1    it is not: network, refused, wrong bytes, full disk, offline. What arrived is kept
  2    the command line is wrong
  130  interrupted by Ctrl-C; the same command goes on
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for."""

    offline: bool = False
    verify: bool = False
    dry_run: bool = False


def download(checkpoint: Checkpoint, folder: Path, client: HubClient, options: Options) -> None:
    """Makes the folder complete, or says why it is not."""
    if checkpoint.is_demo:
        raise ToolError(f"{checkpoint.id} is bundled with Kipp and on no hub: `make demo` unpacks it")
    if (folder / MARKER_NAME).exists():
        raise ToolError(f"{folder}: holds a synthetic twin ({MARKER_NAME}); name another folder with --output")
    fault = _find_fault(checkpoint, folder, options)
    if fault is None:
        note(f"{folder}: complete, nothing to download")
    elif options.offline:
        raise ToolError(f"{fault}; offline, so nothing can be downloaded")
    elif options.dry_run:
        _show_plan(folder, Revision(client, checkpoint).needed_files())
    else:
        with _locked(folder):
            if not options.verify and _find_fault(checkpoint, folder, options) is None:
                note(f"{folder}: completed by another process")
            else:
                _complete(folder, Revision(client, checkpoint))


def _find_fault(checkpoint: Checkpoint, folder: Path, options: Options) -> str | None:
    try:
        manifest = read_manifest(folder)
    except ToolError as error:
        if options.offline:
            raise
        return str(error)  # it will be written anew
    fault = find_fault(manifest, folder, checkpoint)
    if fault is None and options.verify and manifest is not None:
        return _find_wrong_bytes(manifest, folder)
    return fault


def _find_wrong_bytes(manifest: Manifest, folder: Path) -> str | None:
    with Progress(sum(record.size for record in manifest.files)) as progress:
        for record in manifest.files:
            path = folder / record.path
            found = _hash_file(path, FileDigest(record.size, git=False), progress).sha256
            if found != record.sha256:
                return str(mismatch(path, "sha256", record.sha256, found))
    return None


def _hash_file(path: Path, digest: FileDigest, progress: Progress) -> FileDigest:
    progress.name(path.name)
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            progress.advance(len(piece))
    return digest


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time works on a folder; the lock file stays, since removing it would be a race."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"{folder}: another process downloads into it; waiting for it to end")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _complete(folder: Path, revision: Revision) -> None:
    files = revision.needed_files()
    _require_space(folder, files)
    (folder / MANIFEST_NAME).unlink(missing_ok=True)  # from here on it would not be true
    total = sum(file.num_bytes for file in files)
    note(f"{revision.what}: {len(files)} files, {size_text(total)}, to {folder}")
    with Progress(total) as progress:
        records = tuple(_obtain(folder, file, revision, progress) for file in files)
    Manifest(revision.repository, revision.revision, records).write(folder)


def _obtain(folder: Path, file: HubFile, revision: Revision, progress: Progress) -> FileRecord:
    """A file that is there with the right bytes is taken as it is."""
    path = folder / file.name
    if path.is_file() and path.stat().st_size == file.num_bytes:
        digest = _hash_file(path, file.digest(), progress)
        if digest.identity == file.identity:
            return FileRecord(file.name, file.num_bytes, digest.sha256, None)
        progress.advance(-file.num_bytes)
        note(f"{mismatch(path, file.identity_kind, file.identity, digest.identity)}; downloads it anew")
        path.unlink()
    progress.name(file.name)
    with PartialFile(folder, file, progress.advance) as partial:
        if partial.num_bytes > 0:
            note(f"{file.name}: goes on after {size_text(partial.num_bytes)} of {size_text(file.num_bytes)}")
        record = fetch(revision.client, revision.url(file.name), f"{revision.what}, {file.name}", partial)
    note(f"{file.name}: {size_text(file.num_bytes)}, {file.identity_kind} as listed")
    return record


def _bytes_there(folder: Path, file: HubFile) -> int:
    """How much of a file needs no space any more; whether the bytes are right is another question."""
    for path in (folder / file.name, folder / f".{file.name}.partial"):
        with contextlib.suppress(OSError):
            if path.stat().st_size <= file.num_bytes:
                return path.stat().st_size
    return 0


def _require_space(folder: Path, files: list[HubFile]) -> None:
    """Fails now rather than after an hour."""
    needed = sum(file.num_bytes - _bytes_there(folder, file) for file in files)
    free = os.statvfs(folder)
    free_bytes = free.f_bavail * free.f_frsize
    if free_bytes < needed:
        raise ToolError(f"{folder}: needs {size_text(needed)}, the file system has {size_text(free_bytes)} free")


def _show_plan(folder: Path, files: list[HubFile]) -> None:
    for file in files:
        there = _bytes_there(folder, file)
        state = "there" if there == file.num_bytes else f"{size_text(there)} there" if there else "missing"
        print(f"{file.name:40} {size_text(file.num_bytes):>10}  {state}")
    missing = sum(file.num_bytes - _bytes_there(folder, file) for file in files)
    print(f"{size_text(sum(file.num_bytes for file in files))} in all, {size_text(missing)} to download to {folder}")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError("expected more than 0 and at most 3600 seconds")
    return value


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", metavar="CHECKPOINT",
                        help="a registry id; `python -m tools.checkpoints` lists them")
    parser.add_argument("--output", type=Path, metavar="DIR", help="the folder (default: models/<id>)")
    parser.add_argument("--offline", action="store_true", help="only check whether the folder is complete")
    parser.add_argument("--verify", action="store_true",
                        help="check contents too, not only sizes; what is wrong is downloaded anew")
    parser.add_argument("--dry-run", action="store_true", help="show files and sizes, change nothing")
    parser.add_argument("--timeout", type=_seconds, default=Policy.timeout_s, metavar="S",
                        help="seconds without data after which a connection is given up (default: %(default)g)")
    arguments = parser.parse_args(argv)
    checkpoint = find_checkpoint(arguments.checkpoint)
    folder = arguments.output or MODELS_FOLDER / checkpoint.id
    endpoint = endpoint_from(os.environ)
    if endpoint.token is not None and endpoint.url.startswith("http:"):
        note("warning: HF_ENDPOINT is not https, so HF_TOKEN is sent unencrypted")
    client = HubClient(endpoint, Policy(timeout_s=arguments.timeout), note)
    options = Options(arguments.offline or endpoint.offline, arguments.verify, arguments.dry_run)
    try:
        download(checkpoint, folder, client, options)
    except KeyboardInterrupt:
        note("interrupted; what arrived is kept, the same command goes on")
        return 130
    if not arguments.dry_run:
        print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
