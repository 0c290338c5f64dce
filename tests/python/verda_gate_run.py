"""tools/ops/verda_cuda_gate.sh in a repository of its own, with a folder of this machine as the VM."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fake_verda import CLIENT_ID, CLIENT_SECRET, TYPE, FakeVerda
from tiny_snapshots import REPOSITORY

# The VM's login shell and file copy. A command that holds $FAKE_FAIL ends as a lost connection does; one that holds
# $FAKE_HANG never ends.
FAKE_SSH = r"""
cd "$FAKE_VM" || exit 1
command=${@: -1}
case $command in
  *"${FAKE_FAIL:-nothing fails}"*) exit 255 ;;
  *"${FAKE_HANG:-nothing hangs}"*) touch hangs; exec sleep 60 ;;
esac
exec bash -c "$command"
"""
FAKE_SCP = r"""
source=${@: -2:1} target=${@: -1}
case "$source $target" in *"${FAKE_FAIL:-nothing fails}"*) exit 1 ;; esac
case $source in
  *@*:*) cp "$FAKE_VM"/${source#*:} "$target" ;;
  *) cp "$source" "$FAKE_VM/${target#*:}" ;;
esac
"""
# The part of the build and the gate that runs in the copied repository: made up, but as the script calls it.
FAKE_PYTHON = r"""
case "$*" in *run_full_size_gates*) ;; *) exit 0 ;; esac
echo "the gate's own output"
while [ "$1" != --machine ]; do shift; done
git describe --always --dirty --abbrev=40 > "$FAKE_VM/commit"
[ "${FAKE_GATE:-}" = "no record" ] || echo '{"verdict":"x"}' > "bench/results/gates-$2-qwen3-0.6b-bf16-cuda.json"
[ "${FAKE_GATE:-}" != fails ]
"""
RECORD = "gates-nvidia-h200-qwen3-0.6b-bf16-cuda.json"


def add_program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", folder, *names, *arguments], check=True, capture_output=True, text=True).stdout


class GateRun:
    """The script, its repository, and what it sees of the world."""

    def __init__(self, folder: Path, verda: FakeVerda) -> None:
        self.repository, self.vm, self.binaries = folder / "repository", folder / "vm", folder / "bin"
        self.state_folder, self.output = self.repository / "build" / "cloud-gate", self.repository / "bench" / "results"
        for path in (self.vm, self.output, folder / "temporary"):
            path.mkdir(parents=True)
        (self.repository / "tools" / "ops").mkdir(parents=True)
        for name in ("verda_cuda_gate.sh", "verda_api.sh"):
            shutil.copy(REPOSITORY / "tools" / "ops" / name, self.repository / "tools" / "ops" / name)
        self.script = self.repository / "tools" / "ops" / "verda_cuda_gate.sh"
        add_program(self.repository / "scripts" / "setup.sh", 'echo "setup $*" >> "$FAKE_VM/ran"')
        add_program(self.repository / ".venv" / "bin" / "python", FAKE_PYTHON)
        (self.repository / ".gitignore").write_text("/build/\n", encoding="utf-8")
        (self.output / "gates-old-cuda.json").write_text("{}", encoding="utf-8")
        git(folder, "init", "--quiet", str(self.repository))
        git(self.repository, "add", "--all", "--force")
        git(self.repository, "commit", "--quiet", "-m", "All")
        add_program(self.binaries / "fake-ssh", FAKE_SSH)
        add_program(self.binaries / "fake-scp", FAKE_SCP)
        for name in ("cmake", "shutdown", "sudo"):
            add_program(self.binaries / name, f'echo "{name} $*" >> "$FAKE_VM/ran"')
        add_program(self.binaries / "nvidia-smi", 'echo "NVIDIA H200"')
        kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        self.environment = kept | {
            "PATH": f"{self.binaries}:{os.environ['PATH']}", "TMPDIR": str(folder / "temporary"),
            "FAKE_VM": str(self.vm),
            "KIPP_VERDA_API": verda.url, "KIPP_VERDA_SSH": "fake-ssh", "KIPP_VERDA_SCP": "fake-scp",
            "KIPP_VERDA_POLL_MS": "20", "KIPP_VERDA_BACKOFF_MS": "10", "KIPP_VERDA_BOOT_S": "60",
            "KIPP_VERDA_TEARDOWN_S": "60", "KIPP_VERDA_SETTLE_S": "1", "KIPP_VERDA_REQUEST_S": "5",
            "VERDA_CLIENT_ID": CLIENT_ID, "VERDA_CLIENT_SECRET": CLIENT_SECRET}

    def start(self, *arguments: str, accept: str | None = "100", **variables: str) -> subprocess.Popen[str]:
        """For a run that goes on: --instance-type and an accepted cost, and what is given."""
        words = ["--instance-type", TYPE, *(["--accept-cost-of", accept] if accept else []), *arguments]
        return self._start(words, variables)

    def run(self, *arguments: str, accept: str | None = "100", **variables: str) -> Finished:
        return finish(self.start(*arguments, accept=accept, **variables))

    def clean_up(self, state: Path, **variables: str) -> Finished:
        return finish(self._start(["--cleanup", str(state)], variables))

    def states(self) -> list[Path]:
        return sorted(self.state_folder.glob("kipp-gate-*.json"))

    def watch(self, *programs: str) -> Path:
        """A file that arguments and environment of these programs go to."""
        log = self.binaries.parent / "calls"
        for name in programs:
            program = shutil.which(name, path=self.environment["PATH"])
            add_program(self.binaries / "watched" / name, f'(printf "%s\\n" "$@"; env) >> {log}\nexec {program} "$@"')
        self.environment["PATH"] = f"{self.binaries / 'watched'}:{self.environment['PATH']}"
        return log

    def ran(self) -> list[str]:
        """The programs that ran on the VM, with their arguments."""
        return (self.vm / "ran").read_text(encoding="utf-8").splitlines()

    def _start(self, arguments: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
        environment = {key: value for key, value in (self.environment | variables).items() if value}
        return subprocess.Popen([self.script, *arguments], env=environment, stdin=subprocess.DEVNULL, cwd="/",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Finished:
    """How a run ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.stdout, self.stderr = process.communicate(timeout=60)
        self.status = process.returncode


def finish(process: subprocess.Popen[str], number: signal.Signals | None = None) -> Finished:
    """Waits for the end, perhaps after a signal to exactly that process."""
    if number is not None:
        process.send_signal(number)
    return Finished(process)


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
