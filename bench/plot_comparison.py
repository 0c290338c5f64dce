#!/usr/bin/env python3
"""Draws records of bench/kipp_vs_llama_cpp.py: tokens per second of both engines, and shares of the machine's limits.

    python bench/plot_comparison.py bench/results/cpu-vs-llama-cpp-2-cores-0.6b-*.json \\
        --output docs/cpu-vs-llama-cpp.png

Needs matplotlib, any version.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

SCHEMES = {"bf16": "BF16", "q8_0": "Q8_0", "affine4_gs32": "AFFINE4"}
ENGINES = {"kipp": ("Kipp", "#1f6f8b"), "llama_cpp": ("llama.cpp, best way", "#c98b3f")}


@dataclasses.dataclass(frozen=True)
class Bar:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, spread: dict[str, Any], unit: float = 1.0) -> Bar:
        return cls(spread["median"] * unit, spread["min"] * unit, spread["max"] * unit)


@dataclasses.dataclass(frozen=True)
class Case:
    label: str
    is_prompt: bool
    speed: dict[str, Bar]  # by engine
    share: dict[str, Bar]


def read_cases(record: Path) -> list[Case]:
    content = json.loads(record.read_text())
    scheme = SCHEMES[content["model"]["scheme"]]
    cases = []
    for result in content["results"]:
        best = result["llama_cpp"][result["best_of_llama_cpp"]]
        sides = {"kipp": result["kipp"], "llama_cpp": best}
        name = result["case"].replace("decode at", "decode,\nafter").replace(", batch 1", "").replace(", batch", ", ×")
        cases.append(Case(f"{scheme}\n{name}", "prefill" in result,
                          {engine: Bar.of(side["tokens_per_second"]) for engine, side in sides.items()},
                          {engine: Bar.of(side["share_of_limit"], 100) for engine, side in sides.items()}))
    return cases


def draw_bars(axes: Any, cases: list[Case], pick: str, unit: str) -> None:
    width = 0.38
    for index, (engine, (name, colour)) in enumerate(ENGINES.items()):
        bars = [getattr(case, pick)[engine] for case in cases]
        places = [place + (index - 0.5) * width for place in range(len(cases))]
        whiskers = [[bar.median - bar.low for bar in bars], [bar.high - bar.median for bar in bars]]
        axes.bar(places, [bar.median for bar in bars], width, yerr=whiskers, capsize=2, label=name, color=colour)
        for place, bar in zip(places, bars, strict=True):
            axes.annotate(f"{bar.median:.0f}", (place, bar.high), ha="center", va="bottom", fontsize=7)
    axes.set(ylabel=unit)
    axes.set_xticks(range(len(cases)), [case.label for case in cases], fontsize=7)
    axes.margins(y=0.12)
    axes.grid(axis="y", alpha=0.25)


def draw(cases: list[Case], output: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = [[case for case in cases if case.is_prompt], [case for case in cases if not case.is_prompt]]
    figure, rows = pyplot.subplots(2, 2, figsize=(10, 6), dpi=110, squeeze=False,
                                   width_ratios=[max(len(group), 1) for group in groups])
    for column, group in enumerate(groups):
        draw_bars(rows[0][column], group, "speed", "tokens per second")
        limit = "% of the tile rate" if column == 0 else "% of the read bandwidth"
        draw_bars(rows[1][column], group, "share", limit)
    rows[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(output, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True, help=".png, .svg, or what else matplotlib writes")
    arguments = parser.parse_args()
    draw([case for record in arguments.records for case in read_cases(record)], arguments.output)


if __name__ == "__main__":
    main()
