"""Rows and the plot of a record of bench/cuda_roofline.py: figures as shares of their limits, with peers beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCHEMES = {"bf16": "BF16", "q8_0": "Q8_0", "affine4_gs32": "AFFINE4"}
# What the backend was built to reach on an H200, in tokens per second; where a share of the limit, below 1.
GOALS = {
    ("qwen3-0.6b", "bf16", "decode at 128"): 2400,
    ("qwen3-4b", "bf16", "decode at 128"): 500,
    ("qwen3-8b", "bf16", "decode at 128"): 0.9,
    ("qwen3-14b", "bf16", "decode at 128"): 0.9,
    ("qwen3-32b", "bf16", "decode at 128"): 0.9,
    ("qwen3-4b", "q8_0", "decode at 128"): 780,
    ("qwen3-4b", "affine4_gs32", "decode at 128"): 1040,
    ("qwen3-4b", "bf16", "decode at 16384"): 350,
    ("qwen3-4b", "bf16", "decode at 1024, batch 64"): 12000,
    ("qwen3-4b", "bf16", "prefill 2048"): 65000,
    ("qwen3-4b", "q8_0", "prefill 2048"): 55000,
    ("qwen3-4b", "affine4_gs32", "prefill 2048"): 55000,
    ("qwen3-4b", "bf16", "prefill 16384"): 0.8,  # its time at most 1.25 times its products' at the matrix rate
}
READS = "reading memory"
SQUARE = "cuBLAS at 8192³"
OWN_PRODUCT = "the prompt kernel at 8192³"
COLOURS = {"bf16": "#1f6f8b", "q8_0": "#5a9367", "affine4_gs32": "#8a6fb0"}
# Label, marker, size and line width, colour.
GOAL = ("goal", "|", (13, 2), "black")
PEERS = {
    "compiled, static cache": ("Transformers, compiled", "D", (6, 1), "#c98b3f"),
    "eager": ("Transformers, eager", "o", (6, 1), "#a33b3b"),
    "default": ("llama.cpp", "s", (6, 1), "#4a4a4a"),
    "ubatch 2048": ("llama.cpp", "s", (6, 1), "#4a4a4a"),
}


def case_name(case: dict[str, Any]) -> str:
    if case["kind"] == "prefill":
        return f"prefill {case['tokens']}"
    batch = "" if case["batch"] == 1 else f", batch {case['batch']}"
    return f"decode at {case['depth']}{batch}"


def limit_of_prompt(record: dict[str, Any]) -> float | None:
    """cuBLAS's rate, which does not depend on Kipp's kernels; None: not measured."""
    square = record["limits"].get("cublas", {}).get("square")
    return square["operations_per_second"]["median"] if square else None


def share_of(case: dict[str, Any], record: dict[str, Any]) -> tuple[str, float]:
    """Which limit, and how much of it the median reached."""
    if case["kind"] == "decode":
        return READS, case["share_of_memory_reads"]["median"]
    cublas = limit_of_prompt(record)
    if cublas is None:
        return OWN_PRODUCT, case["share_of_matrix_rate"]["median"]
    return SQUARE, case["operations_per_token"] * case["tokens_per_second"]["median"] / cublas


def peers_of(record: dict[str, Any], checkpoint: str, scheme: str, name: str, share_of_token: float) -> dict[str, Any]:
    """By mode: what peers reached in the same case; a token takes the same share of the limit from anyone."""
    found = {}
    for peer in record["peers"]:
        if (peer["checkpoint"], peer["scheme"], case_name(peer)) == (checkpoint, scheme, name):
            rate = peer["tokens_per_second"]["median"]
            found[peer["mode"]] = {"engine": peer["engine"], "tokens_per_second": rate, "share": rate * share_of_token}
    return found


def row_of(entry: dict[str, Any], case: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    name = case_name(case)
    rate = case["tokens_per_second"]["median"]
    limit, share = share_of(case, record)
    goal = GOALS.get((entry["checkpoint"], entry["scheme"], name))
    if goal is not None and goal < 1:
        goal *= rate / share
    row = {"checkpoint": entry["checkpoint"], "scheme": entry["scheme"], "case": name, "kind": case["kind"],
           "draws": case.get("draws", "none"), "tokens_per_second": rate, "limit": limit, "share": share,
           "limit_tokens_per_second": rate / share if share else None, "goal_tokens_per_second": goal,
           "peers": peers_of(record, entry["checkpoint"], entry["scheme"], name, share / rate)}
    shapes = record["limits"].get("cublas", {}).get(entry["checkpoint"])
    if shapes and case.get("tokens") == shapes["num_tokens"]:
        row["cublas_products_tokens_per_second"] = shapes["tokens_per_second"]
    return row | {"text": text_of(row)}


def text_of(row: dict[str, Any]) -> str:
    """A row of a Markdown table."""
    goal = row["goal_tokens_per_second"]
    wanted = f"{goal:,.0f}" if goal is not None else ""
    peers = "; ".join(f"{one['engine']} {mode} {one['tokens_per_second']:,.0f}" for mode, one in row["peers"].items())
    return (f"| {row['checkpoint']} {SCHEMES[row['scheme']]}, {row['case']} | {row['tokens_per_second']:,.0f} | "
            f"{row['share'] * 100:.0f} % of {row['limit']} | {wanted} | {peers} |")


def table(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each figure: decoding first, then prompts, each in the order of the record."""
    rows = [row_of(entry, case, record) for entry in record["results"] for case in entry["bench"]["cases"]]
    return sorted(rows, key=lambda row: row["kind"] == "prefill")


def draw_panel(axes: Any, rows: list[dict[str, Any]], title: str) -> None:
    places = range(len(rows))
    axes.barh(places, [row["share"] * 100 for row in rows], 0.62, color=[COLOURS[row["scheme"]] for row in rows])
    labelled: set[str] = set()
    for place, row in zip(places, rows, strict=True):
        axes.annotate(f"{row['tokens_per_second']:,.0f}", (0.6, place), va="center", fontsize=8, color="white")
        marks = [(PEERS[mode], one["share"]) for mode, one in row["peers"].items() if mode in PEERS]
        if row["goal_tokens_per_second"] is not None:
            goal = row["goal_tokens_per_second"] / row["limit_tokens_per_second"]
            marks.append((GOAL, goal))
        for (label, marker, (size, width), colour), share in marks:
            axes.plot(share * 100, place, marker, color=colour, markersize=size, mew=width,
                      label=None if label in labelled else label, zorder=3)
            labelled.add(label)
    axes.axvline(100, color="grey", linewidth=1, linestyle="--")
    axes.set_yticks(places, [f"{row['checkpoint'].removeprefix('qwen3-')} {SCHEMES[row['scheme']]}, {row['case']}"
                             for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 125)  # room for the legend beyond 100 %
    axes.set_title(title, fontsize=9)
    axes.grid(axis="x", alpha=0.25)
    if labelled:
        axes.legend(fontsize=8, loc="lower right")


def draw(rows: list[dict[str, Any]], record: dict[str, Any], output: Path) -> None:
    """Bars: share of the limit, with tokens per second written at their ends."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [(kind, [row for row in rows if row["kind"] == kind]) for kind in ("decode", "prefill")]
    panels = [(kind, some) for kind, some in panels if some]
    if not panels:
        raise SystemExit("nothing to draw: the record has no figures of Kipp")
    height = sum(len(some) for _, some in panels) * 0.36 + 1.1 * len(panels)
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(10, height), dpi=110, squeeze=False,
                                   height_ratios=[len(some) + 1 for _, some in panels])
    gpu = record["gpu"].get("name", "")
    for panel, (kind, some) in zip(axes[:, 0], panels, strict=True):
        title = f"{gpu}  {'decoding' if kind == 'decode' else 'prompts'}: % of {some[0]['limit']}"
        draw_panel(panel, some, f"{title.strip()}; numbers: tokens per second")
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, metadata={"Software": None})
