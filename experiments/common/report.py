# SPDX-License-Identifier: Apache-2.0
"""Shared parts of every run.py: options, commands, tables, and claims.

A claim is a row: what is measured, what a paper says about it, our number, the bar for that number, and whether it
holds. `--json FILE` writes the rows as a JSON list of

    {"claim": text, "paper": text or null, "ours": number or null, "bar": text or null, "holds": bool or null,
     "quick": bool}

"ours" is null if the measurement is not a finite number; that never holds. "holds" is null without a bar. Rows of a
run with --quick have "quick": true: such a small run shows that everything works, not how fast it is.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"


# ---- Options ----

def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


class Parser(argparse.ArgumentParser):
    """Has --quick and --json, and options whose default depends on --quick. The help is the module's docstring."""

    def __init__(self, docstring: str) -> None:
        super().__init__(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._sizes: Dict[str, Any] = {}
        self.add_argument("--quick", action="store_true", help="about a minute on two cores: less of everything")
        self.add_argument("--json", type=pathlib.Path, metavar="FILE", help="for the claims, a list of rows")

    def add_binary(self) -> None:
        self.add_argument("--spillway", default=str(BUILD / "bin/spillway"), metavar="BINARY", help="the tool")

    def add_parts(self, parts: Iterable[str]) -> None:
        self.add_argument("--part", choices=list(parts), help="only this one")

    def add_size(self, name: str, full: Any, quick: Any, what: str, **more: Any) -> None:
        """An option whose default is `full` or, with --quick, `quick`."""
        action = self.add_argument(name, help=f"{what} ({text_of(full)}; --quick: {text_of(quick)})",
                                   **{"type": positive, "metavar": "N", **more})
        self._sizes[action.dest] = (full, quick)

    def parse_args(self, *arguments: Any) -> argparse.Namespace:  # type: ignore[override]
        options = super().parse_args(*arguments)
        for name, (full, quick) in self._sizes.items():
            if getattr(options, name) is None:
                setattr(options, name, quick if options.quick else full)
        return options


def text_of(value: Any) -> str:
    return " ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)


# ---- Commands ----

def output_of(command: Sequence[str], tries: int = 1) -> str:
    """A command's output. If it fails `tries` times, the experiment ends and shows the command with the end of its
    output."""
    for _ in range(tries):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


# ---- Tables ----

def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def head(columns: Sequence[str]) -> str:
    return f"{row(columns)}\n{row(['---'] * len(columns))}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([head(columns), *(row(cells) for cells in rows)]) + "\n"


def per_cent(part: float, whole: float, digits: int = 2) -> str:
    return f"{100 * part / max(whole, 1):.{digits}f} %"


# ---- Claims ----

class Bar(NamedTuple):
    """Numbers from `least` to `most`, both included, hold."""
    least: float = -math.inf
    most: float = math.inf

    def holds(self, ours: float) -> bool:
        return self.least <= ours <= self.most

    def __str__(self) -> str:
        if math.isinf(self.least):
            return f"at most {self.most:g}"
        return f"at least {self.least:g}" if math.isinf(self.most) else f"{self.least:g} to {self.most:g}"


def at_most(most: float) -> Bar:
    return Bar(most=most)


def at_least(least: float) -> Bar:
    return Bar(least=least)


class Claims:
    """The rows of one run, in the order in which they were measured."""

    def __init__(self, quick: bool) -> None:
        self._quick = quick
        self.rows: List[Dict[str, Any]] = []

    def add(self, claim: str, ours: float, bar: Optional[Bar] = None, paper: Optional[str] = None) -> None:
        is_number = math.isfinite(ours)
        self.rows.append({"claim": claim, "paper": paper, "ours": ours if is_number else None,
                          "bar": None if bar is None else str(bar),
                          "holds": None if bar is None else is_number and bar.holds(ours), "quick": self._quick})

    def markdown(self) -> str:
        words = {True: "yes", False: "**no**", None: ""}
        note = "\nFrom a run with --quick: it shows that everything works, not what it takes.\n" if self._quick else ""
        return f"\n## Claims\n{note}\n" + table(
            ["claim", "paper", "ours", "bar", "holds"],
            ([found["claim"], found["paper"] or "", "" if found["ours"] is None else f"{found['ours']:.4g}",
              found["bar"] or "", words[found["holds"]]] for found in self.rows))

    def write(self, file: Optional[pathlib.Path]) -> None:
        if file is not None:
            file.write_text(json.dumps(self.rows, indent=1) + "\n")

    def finish(self, options: argparse.Namespace) -> None:
        print(self.markdown(), end="")
        self.write(options.json)


class Ratios:
    """Ratios measured in many settings, each a claim without a bar. Papers' averages set the bars for their means."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._found: Dict[str, List[float]] = {}

    def add(self, where: str, what: str, ratio: float) -> None:
        self._claims.add(f"{where}: {what}", ratio)
        self._found.setdefault(what, []).append(ratio)

    def mean(self, what: str) -> float:
        """The geometric mean."""
        return statistics.geometric_mean(self._found[what])

    def add_means(self, where: str, papers: Mapping[str, Tuple[float, str]]) -> None:
        """`papers`: by measurement, a paper's lower limit and its words."""
        for what in self._found:
            least, words = papers.get(what, (None, None))
            self._claims.add(f"{where}: {what}", self.mean(what), None if least is None else at_least(least), words)


Part = Callable[[argparse.Namespace, Claims], None]


def run_parts(parts: Mapping[str, Part], options: argparse.Namespace) -> None:
    """Runs all parts, or the one that --part names, and then their claims."""
    claims = Claims(options.quick)
    for name, part in parts.items():
        if options.part in (None, name):
            part(options, claims)
    claims.finish(options)
