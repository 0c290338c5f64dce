"""What the Makefile and the scripts call exists: scripts, setup profiles, presets, targets, folders of tests."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(ROOT.glob("scripts/*.sh"))
CALLERS = [ROOT / "Makefile", *SCRIPTS]


def code_of(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def targets() -> set[str]:
    definition = re.compile(r"(?:add_executable|add_custom_target|add_library|kipp_add_\w+)\((\w+)")
    files = [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake"), *ROOT.glob("src/**/CMakeLists.txt"),
             *ROOT.glob("tests/**/CMakeLists.txt")]
    return {name for path in files for name in definition.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("caller", CALLERS, ids=lambda path: path.name)
def test_scripts_exist(caller: Path) -> None:
    for name in re.findall(r"scripts/\w+\.sh", code_of(caller)):
        assert os.access(ROOT / name, os.X_OK), name


def test_setup_knows_the_profiles_it_is_asked_for() -> None:
    setup = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    asked = {name for caller in CALLERS for name in re.findall(r"scripts/setup\.sh (\w+)", code_of(caller))}
    assert asked == {"run", "test", "aarch64", "sanitize", "bench", "interchange", "clients"}
    for name in asked:
        assert re.search(rf"^  {name}\) ", setup, re.MULTILINE)


def test_presets_exist() -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    names = {kind: {preset["name"] for preset in presets[f"{kind}Presets"]} for kind in ("configure", "build", "test")}
    for caller in CALLERS:
        for name in re.findall(r"cmake --preset (\w+)", code_of(caller)):
            assert name in names["configure"]
        for name in re.findall(r"cmake --build --preset (\w+)", code_of(caller)):
            assert name in names["build"]


def test_targets_exist() -> None:
    known = targets()
    for caller in CALLERS:
        for words in re.findall(r"--target ((?:[a-z_]+\b ?)+)", code_of(caller)):
            assert set(words.split()) <= known, f"{caller.name}: {words}"


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_every_folder_is_built(folder: str) -> None:
    """A folder with a CMakeLists.txt is listed by its parent, and nothing is listed only where it exists."""
    text = (ROOT / folder / "CMakeLists.txt").read_text(encoding="utf-8")
    assert "EXISTS" not in text
    listed = re.search(r"foreach\(\w+ ([^)]+)\)", text)
    assert listed
    names = [*listed[1].split(), *re.findall(r"add_subdirectory\((\w+)\)", text)]
    assert sorted(names) == sorted(path.parent.name for path in ROOT.glob(f"{folder}/*/CMakeLists.txt"))


def test_cuda_code_is_compiled_as_one_standard() -> None:
    """nvcc takes the last of two -std and only warns, which no flag turns into an error."""
    commands = ROOT / "build" / "release" / "compile_commands.json"
    if not commands.is_file():
        pytest.skip("nothing was built")
    cuda = [entry["command"] for entry in json.loads(commands.read_text()) if entry["file"].endswith(".cu")]
    if not cuda:
        pytest.skip("there is no nvcc here")
    for command in cuda:
        assert re.findall(r"-std=\S+", command) == ["-std=c++20"]


@pytest.mark.parametrize("package", ["gguf", "jinja2", "llama_cpp", "tokenizers", "torch", "transformers"])
def test_no_folder_of_the_repository_is_taken_for_a_package(package: str) -> None:
    # A folder without __init__.py on the import path is a "namespace package": tests/gguf once stood in for gguf.
    spec = importlib.util.find_spec(package)
    assert spec is None or spec.origin is not None, f"{package} is {list(spec.submodule_search_locations or [])}"
