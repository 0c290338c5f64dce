"""The demo's committed results: scored again, of the committed weights, and what docs/demo.md shows."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tools.demo import evaluate, heldout, report

PROMPTS = evaluate.load_prompts(heldout.PROMPTS)
FAKE = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"text": "seen " + request["messages"][-1]["content"], "ids": [], "finish_reason": "stop"}))
"""


@pytest.mark.parametrize("engine", report.recorded_engines())
def test_committed_results_are_what_their_texts_say(engine):
    result = report.load_result(engine)
    texts = {output["id"]: output["text"] for output in result["outputs"]}
    again = evaluate.score(PROMPTS, [texts.get(prompt["id"]) for prompt in PROMPTS], result["how"])
    assert again == result
    assert result["skipped"] == 0
    manifest = json.loads(report.MANIFEST.read_text(encoding="utf-8"))
    assert result["how"]["revision"] == manifest["model_sha256"][:40]
    assert (report.RESULTS / f"demo-heldout-{engine}.json").stat().st_size < 1_000_000


def test_the_page_shows_the_committed_results():
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.filled(page, report.sections()) == page


def test_the_demo_is_right_on_most_prompts_of_its_skills():
    result = report.load_result("kipp")
    assert result["correct"] > 0.8 * result["total"]


def test_reports_survive_writing(tmp_path):
    how = {"engine": "kipp", "command": ["a", "b"]}
    whole = evaluate.score(PROMPTS[:40], ["<think>\n1\n</think>\n\nHi! \u4f60\u597d"] * 40, how)
    evaluate.write_report(tmp_path / "report.json", whole)
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert json.loads(text) == whole
    assert len(text.splitlines()) > 40


@pytest.mark.parametrize("processes", [1, 3])
def test_replies_keep_the_order_of_their_prompts(monkeypatch, processes):
    monkeypatch.setattr(evaluate, "artifact_revision", lambda command: "0" * 40)
    result = evaluate.run_kipp([sys.executable, "-c", FAKE], PROMPTS[:10], processes)
    expected = ["seen " + prompt["messages"][-1]["content"] for prompt in PROMPTS[:10]]
    assert [output["text"] for output in result["outputs"]] == expected


@pytest.mark.skipif("KIPP_DEMO_ARTIFACT" not in os.environ, reason="KIPP_DEMO_ARTIFACT names no artifact")
def test_the_artifact_was_made_from_the_committed_weights():
    manifest = json.loads(report.MANIFEST.read_text(encoding="utf-8"))
    revision = evaluate.artifact_revision(["kipp", "run", "--jsonl", "--model", os.environ["KIPP_DEMO_ARTIFACT"]])
    assert revision == manifest["model_sha256"][:40]


def test_error_replies_and_missing_replies_are_refused():
    with pytest.raises(RuntimeError, match="no such file"):
        evaluate.reply_texts('{"text": "a"}\n{"error": "no such file"}\n', 2)
    with pytest.raises(RuntimeError, match="2 prompts gave 1"):
        evaluate.reply_texts('{"text": "a"}\n', 2)


def test_cells_keep_their_row_whole():
    assert report.cell("a\nb | c") == "`a⏎b \\| c`"
    assert report.cell("`x`") == "`` `x` ``"


def test_a_page_without_a_marker_is_refused():
    with pytest.raises(SystemExit, match="0 places"):
        report.filled("no marker", {"scores": ""})


def test_the_report_does_not_replace_the_prompts(tmp_path, monkeypatch, capsys):
    prompts, link = tmp_path / "prompts.jsonl", tmp_path / "link"
    prompts.write_text("")
    os.link(prompts, link)
    arguments = ["--prompts", str(prompts), "--output", str(link), "--kipp", sys.executable, "-c", FAKE]
    monkeypatch.setattr(sys, "argv", ["evaluate", *arguments])
    with pytest.raises(SystemExit, match="2"):
        evaluate.main()
    assert "--output would replace the prompts" in capsys.readouterr().err
    assert prompts.read_text() == ""
