"""What the full-size gates leave behind: nothing of a twin that passed, everything of one that did not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import run_full_size_gates


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str | None, *arguments: str) -> tuple[int, list[str]]:
    """The exit status and the names of the steps run; each leaves a file in the twin's folder."""
    titles: list[str] = []

    def step(title: str, *command: object) -> int:
        titles.append(title)
        (tmp_path / "work" / "qwen3-0.6b" / title.split()[-1]).touch()
        return 1 if failing is not None and title.endswith(failing) else 0

    monkeypatch.setattr(run_full_size_gates, "step", step)
    status = run_full_size_gates.main(["qwen3-0.6b", "--machine", "test", "--work", str(tmp_path / "work"),
                                       "--output", str(tmp_path / "results"), *arguments])
    return status, [title.split()[-1] for title in titles]


def test_a_passed_twin_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, None) == (0, ["twin", "reference", "gates"])
    assert not (tmp_path / "work" / "qwen3-0.6b").exists()


@pytest.mark.parametrize(("failing", "steps"), [
    ("reference", ["twin", "reference"]), ("gates", ["twin", "reference", "gates"])])
def test_a_failed_one_is_kept_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                        capsys: pytest.CaptureFixture[str], failing: str, steps: list[str]) -> None:
    assert run(monkeypatch, tmp_path, failing) == (1, steps)
    folder = tmp_path / "work" / "qwen3-0.6b"
    assert {path.name for path in folder.iterdir()} == set(steps)
    assert f"kept in {folder}\n" in capsys.readouterr().out


def test_keep_keeps_a_passed_one_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, None, "--keep")[0] == 0
    assert (tmp_path / "work" / "qwen3-0.6b" / "gates").exists()


def test_quantised_schemes_follow_the_bf16_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its vectors are what the loss is measured against; its gates run only if asked for."""
    commands: list[list[str]] = []
    monkeypatch.setattr(run_full_size_gates, "step",
                        lambda title, *command: commands.append([title, *map(str, command)]) or 0)
    common = ["qwen3-0.6b", "--machine", "test", "--work", str(tmp_path / "work"), "--output", str(tmp_path)]
    assert run_full_size_gates.main([*common, "--scheme", "q8_0", "affine4_gs32"]) == 0
    assert [command[0].removeprefix("qwen3-0.6b ") for command in commands] == [
        "bf16: twin", "bf16: reference", "q8_0: twin", "q8_0: reference", "q8_0: gates",
        "affine4_gs32: twin", "affine4_gs32: reference", "affine4_gs32: gates"]
    references = [command for command in commands if command[0].endswith("reference")]
    assert "--bf16-vectors" not in references[0]
    bf16 = references[0][references[0].index("--output") + 1]
    assert all(command[command.index("--bf16-vectors") + 1] == bf16 for command in references[1:])
    assert f"{tmp_path / 'gates-test-qwen3-0.6b-q8_0.json'}" in commands[4]


def test_without_phase_1_there_is_no_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(run_full_size_gates, "step",
                        lambda title, *command: commands.append([title, *map(str, command)]) or 0)
    assert run_full_size_gates.main(["qwen3-0.6b", "--machine", "test", "--work", str(tmp_path / "work"), "--backend",
                                     "cuda", "--output", str(tmp_path), "--scheme", "q8_0"]) == 0
    assert [command[0].removeprefix("qwen3-0.6b ") for command in commands] == [
        "q8_0: twin", "q8_0: prompts", "q8_0: gates"]
    assert "--prompts-only" in commands[1]
    assert "--bf16-vectors" not in commands[1]
