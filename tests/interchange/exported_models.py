"""The models of the comparison, as artifact and as export: the demo, and a twin of qwen3-0.6b with all its layers.

Both in BF16; the demo also in the quantised schemes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tools import make_synthetic_checkpoint
from tools.export_llama_cpp import export

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "interchange"
DEMO, TWIN = "kipp-demo", "qwen3-0.6b"


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    artifact: Path
    export: Path
    scheme: str = "bf16"

    def scratch(self, suffix: str) -> Path:
        """Where a test may put a file about this model."""
        return WORK / f"{self.name}-{suffix}"


def exported(name: str, artifact: Path, scheme: str = "bf16") -> Model:
    """With an export made anew."""
    WORK.mkdir(parents=True, exist_ok=True)
    path = export(artifact, WORK / f"{name}-{scheme}-llama-cpp.gguf", allow_synthetic=True)
    return Model(name if scheme == "bf16" else f"{name}-{scheme}", artifact, path, scheme)


def twin_artifact() -> Path:
    """Made once and kept: an artifact is there only when it is whole."""
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / f"kipp-{TWIN}-bf16.gguf"
    if not path.exists():
        assert make_synthetic_checkpoint.main(["--like", TWIN, "--seed", "1", "--artifact", str(path)]) == 0
    return path
