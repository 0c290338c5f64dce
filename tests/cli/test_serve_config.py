"""Where kipp serve takes its settings from, limits of keys, and the files of packaging/."""

from __future__ import annotations

import concurrent.futures
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from kipp_process import MODEL, OK, USAGE, Kipp
from served import Served, serving

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
STORY = "Once upon a time"
LONG = {"prompt": STORY, "max_tokens": 1900, "ignore_eos": True}


def with_variables(kipp: Kipp, **variables: str) -> Kipp:
    return Kipp(kipp.binary, {"KIPP_MODEL": kipp.environment.get("KIPP_MODEL", ""), **variables}, kipp.flags)


def served_names(served: Served) -> list[str]:
    return [model["id"] for model in served.get("/v1/models").json["data"]]


def test_file_variables_and_flags_in_one_server(demo: Kipp, tmp_path: Path) -> None:
    config = tmp_path / "kipp.toml"
    config.write_text('name = ["file"]\nlenient = true\nmax-sequences = 3\nport = 1\n', encoding="utf-8")
    kipp = with_variables(demo, KIPP_NAME="first,second", KIPP_CONFIG=str(config), KIPP_PORT="2")
    with serving(kipp) as served:  # its --port 0 wins over both
        assert served_names(served) == ["first", "second"]
        props = served.get("/props").json
        assert props["lenient"] is True
        assert props["max_sequences"] == 3
        assert served.end()[0] == OK


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max-sequence = 3\n", ["line 1", "unknown key max-sequence", "max-sequences"]),
        ("\nport = \"many\"\n", ["line 2", "--port", "many"]),
        ("port 3\n", ["line 1", "not TOML"]),
    ],
)
def test_a_wrong_file_is_a_wrong_command_line(demo: Kipp, tmp_path: Path, text: str, expected: list[str]) -> None:
    config = tmp_path / "kipp.toml"
    config.write_text(text, encoding="utf-8")
    done = demo("serve", "--config", config)
    assert done.returncode == USAGE
    for part in [str(config), *expected]:
        assert part in done.stderr.decode()


def test_a_wrong_variable_is_named(demo: Kipp) -> None:
    done = with_variables(demo, KIPP_MAX_WAITING="none")("serve")
    assert done.returncode == USAGE
    assert "KIPP_MAX_WAITING" in done.stderr.decode()


def test_the_manual_names_every_variable(bare: Kipp) -> None:
    text = bare.text("serve", "--help")
    own = {name for name in re.findall(r"^ +(?:-\w,)?--([a-z][a-z-]+)", text, re.MULTILINE)} - {"help"}
    assert len(own) > 30
    manual = bare.text("manual")
    for name in own:
        variable = "KIPP_" + name.upper().replace("-", "_")
        assert re.search(rf"{variable}\b", manual), variable
    assert "KIPP_MAX_SEQUENCES" in text, "the rule is in the help"


def test_a_key_has_so_many_requests_and_no_more(demo: Kipp, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of the team\nk-one name=alice\nk-two name=bob max-requests=2\n", encoding="utf-8")
    flags = ("--api-key-file", str(keys), "--max-requests-per-key", "1", "--drain-seconds", "0")
    with serving(demo, *flags) as served, concurrent.futures.ThreadPoolExecutor(3) as pool:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("k-one", "k-two"))
        running = [pool.submit(served.post, "/v1/completions", LONG, **key) for key in (one, two, two)]
        time.sleep(0.5)
        for key, number in ((one, "1 request "), (two, "2 requests ")):
            for path, body in (("/v1/completions", LONG), ("/v1/chat/completions", {"messages": []})):
                refused = served.post(path, body, **key)
                assert refused.status == 429
                assert int(refused.headers["retry-after"]) >= 1
                assert refused.error["code"] == "key_limit"
                assert refused.error["type"] == "rate_limit_error"
                assert number in refused.error["message"]
            assert served.post("/tokenize", {"prompt": "Hi"}, **key).status == 200
        code, said = served.end()
        assert code == OK
        assert all(answer.result().status == 200 for answer in running)
    assert " key=alice " in said
    assert " key=bob " in said
    assert "k-one" not in said


def test_the_next_request_may_come_with_the_answer(demo: Kipp) -> None:
    """Whole answers and streams; refused, left and finished ones: none keeps its place."""
    flags = ("--api-key", "k", "--max-requests-per-key", "1")
    key = {"Authorization": "Bearer k"}
    with serving(demo, *flags) as served:
        for i in range(60):
            body = {"prompt": STORY, "max_tokens": 1 + i % 3, "stream": i % 2 == 1}
            assert served.post("/v1/completions", body, **key).status == 200, i
            assert served.post("/v1/completions", {"prompt": STORY, "max_token": 1}, **key).status == 400
        assert served.end()[0] == OK


def test_a_limit_needs_keys(demo: Kipp) -> None:
    done = demo("serve", "--max-requests-per-key", "2", "--port", "0")
    assert done.returncode == MODEL
    assert "--max-requests-per-key" in done.stderr.decode()


def test_a_wrong_line_of_keys_is_named_and_the_key_is_not(demo: Kipp, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a\nsesame limit=3\n", encoding="utf-8")
    done = demo("serve", "--api-key-file", keys, "--port", "0")
    assert done.returncode == MODEL
    assert "line 2" in done.stderr.decode()
    assert "sesame" not in done.stderr.decode()


def test_the_packaged_settings_are_settings(bare: Kipp) -> None:
    """All that is wrong with them here is that the model is not there."""
    config = PACKAGING / "kipp.toml"
    done = bare("serve", "--config", config, "--api-key", "k", "--port", "0")
    assert done.returncode == MODEL
    assert "/srv/kipp/models/" in done.stderr.decode()
    commented = re.findall(r"^# ([a-z-]+) = ", config.read_text(encoding="utf-8"), re.MULTILINE)
    manual = bare.text("manual")
    assert commented
    for key in commented:
        assert "KIPP_" + key.upper().replace("-", "_") in manual


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda", "kipp.service", "kipp-cuda.conf"])
def test_the_packaged_variables_are_variables(bare: Kipp, name: str) -> None:
    variables = set(re.findall(r"\b(KIPP_[A-Z_]+)=", (PACKAGING / name).read_text(encoding="utf-8")))
    # Variables of the build are no settings.
    variables -= {"KIPP_BUILD_TESTS", "KIPP_CUDA"}
    manual = bare.text("manual")
    assert variables
    for variable in variables:
        assert variable in manual


def test_images_do_not_run_as_root() -> None:
    for kind in ("cpu", "cuda"):
        text = (PACKAGING / f"Dockerfile.{kind}").read_text(encoding="utf-8")
        last_stage = text.split("\nFROM ")[-1]
        assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last_stage, re.MULTILINE)
        assert re.search(r"^HEALTHCHECK ", last_stage, re.MULTILINE)
        assert "COPY --from=build" in last_stage
        assert (PACKAGING / f"Dockerfile.{kind}.dockerignore").is_file()


def test_systemd_understands_the_unit(binary: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    text = (PACKAGING / "kipp.service").read_text(encoding="utf-8")
    unit = tmp_path / "kipp.service"
    unit.write_text(text.replace("/usr/local/bin/kipp", str(binary)).replace("Documentation=man:kipp(1)\n", ""))
    overrides = tmp_path / "kipp.service.d"
    overrides.mkdir()
    shutil.copy(PACKAGING / "kipp-cuda.conf", overrides / "cuda.conf")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""
