"""Fills the generated parts of docs/demo.md from the committed results and draws the loss curve.

`python -m tools.demo.report` writes, `--check` only compares the page (a test does that too), `--plot` also draws.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.atomic_file import write_file
from tools.command import run_command
from tools.demo.chat import render_calls
from tools.demo.evaluate import load_prompts
from tools.demo.heldout import PROMPTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "demo.md"
PLOT = ROOT / "docs" / "demo-loss.png"
RESULTS = ROOT / "bench" / "results"
MANIFEST = ROOT / "tools" / "demo" / "checkpoint" / "manifest.json"
ENGINES = ("kipp", "transformers")
NUM_FAILURES = 20
MODES = ("thinking on", "thinking off", "entity", "template")


def load_result(engine: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"demo-heldout-{engine}.json").read_text(encoding="utf-8"))


def recorded_engines() -> tuple[str, ...]:
    """Kipp's results are required; Transformers' are shown where they were recorded."""
    return tuple(e for e in ENGINES if e == "kipp" or (RESULTS / f"demo-heldout-{e}.json").is_file())


def cell(text: str) -> str:
    """Verbatim text as code in a table cell; ⏎ stands for a line break."""
    fence = "``" if "`" in text else "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("\n", "⏎").replace("|", "\\|")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(right: int, total: int) -> str:
    return f"{100 * right / total:.1f} %"


def facts(manifest: dict[str, Any]) -> str:
    training, config = manifest["training"], manifest["config"]
    stored = sum(entry["bytes"] for entry in manifest["files"].values())
    trained = sum(math.prod(shape) for shape in manifest["tensors"].values())
    rows = [
        ["layers", str(config["num_hidden_layers"])],
        ["hidden width, feed-forward width", f"{config['hidden_size']}, {config['intermediate_size']}"],
        [
            "query heads, KV heads, head width",
            f"{config['num_attention_heads']}, {config['num_key_value_heads']}, {config['head_dim']}",
        ],
        ["context, RoPE theta", f"{config['max_position_embeddings']:,} positions, {config['rope_theta']:,.0f}"],
        ["embedding rows", f"{config['vocab_size']:,}, of which {manifest['num_rows']:,} are trained, the others zero"],
        ["trained weights", f"{trained:,}"],
        ["stored size", f"{stored / 1e6:.2f} MB"],
        ["training", f"{training['steps']:,} steps of {training['tokens_per_batch']:,} positions (padding included)"],
        ["time of the training loop", f"{training['seconds']:.0f} s on one {training['device']}"],
        ["text generated meanwhile", f"{training['generated_tokens'] / 1e6:,.0f} million tokens"],
        ["held-out loss at the end", f"{training['validation_loss']:.4f} nats per token that the model writes"],
        ["software", f"PyTorch {training['torch']}, Transformers {training['transformers']}"],
        ["seed, data workers", f"{training['seed']}, {training['workers']}"],
        ["sha256 of `model.safetensors`", f"`{manifest['model_sha256']}`"],
    ]
    return table(["what", "value"], rows)


def scores(result: dict[str, Any]) -> str:
    rows = []
    totals: dict[str, list[int]] = {mode: [0, 0] for mode in MODES}
    for skill, counts in result["skills"].items():
        cells = []
        for mode in MODES:
            right, total = counts.get(mode, (0, 0))
            totals[mode][0] += right
            totals[mode][1] += total
            cells.append(f"{right}/{total}" if total else "–")
        right, total = (counts.get("thinking on", (0, 0))[i] + counts.get("thinking off", (0, 0))[i] for i in (0, 1))
        rows.append([skill, *cells, percent(right, total)])
    cells = [f"**{right}/{total}**" for right, total in totals.values()]
    rows.append(["**all**", *cells, f"**{percent(result['correct'], result['total'])}**"])
    head = ["skill", "thinking on", "thinking off", "new entity", "new phrasing", "right"]
    return table(head, rows)


def agreement(results: dict[str, dict[str, Any]]) -> str:
    if "transformers" not in results:
        return (
            "Not recorded in this version: the logits are compared position by position instead, with records in "
            "[MODELS.md](MODELS.md). `python -m tools.demo.evaluate --help` says how to run it."
        )
    texts = {engine: {o["id"]: o["text"] for o in result["outputs"]} for engine, result in results.items()}
    common = sorted(texts["kipp"].keys() & texts["transformers"].keys())
    different = [id for id in common if texts["kipp"][id] != texts["transformers"][id]]
    lines = [
        f"Kipp's reference backend and Transformers ({results['transformers']['how']['dtype']}, "
        f"{results['transformers']['how']['device']}) wrote the same text for "
        f"**{len(common) - len(different)} of {len(common)}** prompts; "
        f"{results['kipp']['correct']} and {results['transformers']['correct']} answers are right."
    ]
    if different:
        rows = [[id, cell(_tail(texts, id, "kipp")), cell(_tail(texts, id, "transformers"))] for id in different]
        lines += ["", table(["prompt", "Kipp, from the first difference", "Transformers"], rows)]
    return "\n".join(lines)


def _tail(texts: dict[str, dict[str, str]], id: str, engine: str) -> str:
    """At most 80 characters around the first place where the two texts differ."""
    first, second = texts["kipp"][id], texts["transformers"][id]
    shared = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    start = max(0, (min(len(first), len(second)) if shared is None else shared) - 20)
    return "…" * (start > 0) + texts[engine][id][start : start + 80]


def _row(prompt: dict[str, Any], output: dict[str, Any]) -> list[str]:
    return [
        prompt["skill"],
        "on" if prompt["enable_thinking"] else "off",
        cell(prompt["messages"][-1]["content"]),
        cell(output["text"]),
    ]


def _expected(prompt: dict[str, Any]) -> str:
    return prompt["reference"] or render_calls(prompt["check"]["calls"], "")


def failures(result: dict[str, Any], prompts: dict[str, dict[str, Any]]) -> str:
    """Evenly spread over all failures in the order of the prompts, so that nobody picked them."""
    wrong = [output for output in result["outputs"] if not output["right"]]
    count = min(NUM_FAILURES, len(wrong))
    chosen = [wrong[i * (len(wrong) - 1) // max(1, count - 1)] for i in range(count)]
    rows = [[*_row(prompts[o["id"]], o), cell(_expected(prompts[o["id"]]))] for o in chosen]
    head = f"{len(wrong)} answers are wrong; these are {count} of them, evenly spaced.\n\n"
    return head + table(["skill", "thinking", "last message", "what the model wrote", "expected"], rows)


def successes(result: dict[str, Any], prompts: dict[str, dict[str, Any]]) -> str:
    """The first right answer of each skill, modes in turn."""
    rows, seen = [], set()
    for output in result["outputs"]:
        prompt = prompts[output["id"]]
        if output["right"] and prompt["skill"] not in seen and prompt["enable_thinking"] == (len(seen) % 2 == 0):
            seen.add(prompt["skill"])
            rows.append(_row(prompt, output))
    return table(["skill", "thinking", "last message", "what the model wrote"], rows)


def sections() -> dict[str, str]:
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    results = {engine: load_result(engine) for engine in recorded_engines()}
    for engine, result in results.items():
        if result["how"]["revision"] != manifest["model_sha256"][:40]:
            raise SystemExit(f"report: the results of {engine} belong to another checkpoint: {result['how']}")
    prompts = {prompt["id"]: prompt for prompt in load_prompts(PROMPTS)}
    return {
        "facts": facts(manifest),
        "scores": scores(results["kipp"]),
        "agreement": agreement(results),
        "failures": failures(results["kipp"], prompts),
        "successes": successes(results["kipp"], prompts),
    }


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with the text between each pair of markers replaced."""
    for name, text in parts.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        page, count = pattern.subn(lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page)
        if count != 1:
            raise SystemExit(f"report: {count} places for the part {name} in the page, expected 1")
    return page


def draw_loss(log: Path, output: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with open(log, newline="", encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    steps = [row["step"] for row in rows]
    measured = [row for row in rows if row["step"] % 500 == 0 or row["step"] == 1]
    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=110)
    axes.plot(steps, [row["loss"] for row in rows], linewidth=1, label="training (prompt tokens weigh 0.1)")
    axes.plot(
        [row["step"] for row in measured],
        [row["validation_loss"] for row in measured],
        "o-",
        markersize=3,
        label="held-out, tokens that the model writes",
    )
    axes.set(yscale="log", xlabel="step", ylabel="cross entropy, nats per token", title="kipp-demo")
    axes.grid(which="both", alpha=0.25)
    rate = axes.twinx()
    rate.plot(steps, [row["schedule"] for row in rows], color="gray", linewidth=0.8, linestyle=":")
    rate.set(ylabel="learning rate, of its peak (dotted)", ylim=(0, 1.05))
    axes.legend()
    figure.tight_layout()
    figure.savefig(output, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is not what would be written")
    parser.add_argument("--plot", action="store_true", help="draw the loss curve too; needs matplotlib")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    new = filled(page, sections())
    if arguments.check:
        return int(new != page)
    write_file(PAGE, new.encode())
    if arguments.plot:
        draw_loss(RESULTS / "demo-train-log.csv", PLOT)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
