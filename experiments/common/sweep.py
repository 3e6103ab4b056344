# SPDX-License-Identifier: Apache-2.0
"""Many runs, some side by side, and what is written about them: the part that experiments have in common.

A run yields a record, a plain dictionary; a record's "seed" tells it from others of the same setting.
"""
import argparse
import contextlib
import json
import multiprocessing
import pathlib
import platform
import resource
import statistics
import sys
from typing import Any, Callable, Dict, Iterable, List, Sequence

import torch

from common.channel import DEFAULT_LIBRARY
from common.training import Schedule

Record = Dict[str, Any]


def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def per_cent(text: str) -> float:
    if not 0 <= float(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 100")
    return float(text)


def make_parser(description: str, shares: Sequence[float]) -> argparse.ArgumentParser:
    usual, parser = Schedule(), argparse.ArgumentParser(description=description)
    parser.add_argument("--shares", type=per_cent, nargs="+", default=list(shares), metavar="PERCENT",
                        help="of packets that are hit")
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs of each setting (3)")
    parser.add_argument("--jobs", type=positive, default=2, metavar="N", help="runs at a time, a core each (2)")
    parser.add_argument("--steps", type=positive, default=usual.steps, help=f"of training ({usual.steps})")
    parser.add_argument("--test-images", type=positive, default=usual.test_images, help=f"({usual.test_images})")
    parser.add_argument("--library", type=pathlib.Path, default=DEFAULT_LIBRARY, help="libexperiment_channel.so")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="for the tables, in place of standard output")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="for every run's numbers, a line each as it ends")
    return parser


# ---- Running ----

_function: Callable[..., Record]


def _hold(function: Callable[..., Record]) -> None:
    global _function  # of the forked process alone
    _function = function


def _call(arguments: Sequence[Any]) -> Record:
    return _function(*arguments)


def run_all(function: Callable[..., Record], calls: Sequence[Sequence[Any]], options: argparse.Namespace) -> List[Record]:
    """The calls' records, in their order. Processes are forked, so that the function may hold data without a copy."""
    records: List[Record] = []
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.json.open("w", buffering=1)) if options.json is not None else None
        pool = stack.enter_context(multiprocessing.get_context("fork").Pool(options.jobs, _hold, (function,)))
        for record in pool.imap(_call, calls):
            records.append(record)
            if log is not None:
                print(json.dumps(record), file=log)
            show(f"{len(records)} of {len(calls)} runs")
        pool.close()
        pool.join()
    show("")
    return records


def show(text: str) -> None:
    """In place of what was shown last, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# ---- Writing ----

def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def chosen(records: Iterable[Record], **setting: Any) -> List[Record]:
    return [record for record in records if all(record[name] == value for name, value in setting.items())]


def mean_and_spread(values: Sequence[float], sign: str = "") -> str:
    """The spread is the standard deviation from seed to seed."""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.2f}{spread}"


def accuracy(records: Sequence[Record]) -> str:
    return mean_and_spread([record["accuracy"] for record in records])


def difference(records: Sequence[Record], baseline: Sequence[Record]) -> str:
    """From the baseline of the same seed, in points."""
    usual = {record["seed"]: record["accuracy"] for record in baseline}
    return mean_and_spread([record["accuracy"] - usual[record["seed"]] for record in records], "+")


def accuracy_tables(over_shares: Callable[[Callable[[Sequence[Record]], str]], str],
                    baseline: Sequence[Record]) -> List[str]:
    """What every experiment shows of its runs. `over_shares` makes a table of what it is given for a cell."""
    return [over_shares(accuracy),
            "## Points from the baseline of the same seed\n",
            over_shares(lambda some: difference(some, baseline)),
            "## Squared error of the workers' mean gradient, of its energy (median of the steps)\n",
            over_shares(lambda some: f"{mean_of(some, 'error'):.2g}")]


def mean_of(records: Sequence[Record], name: str) -> float:
    return statistics.fmean(record[name] for record in records)


def heading(experiment: str, options: argparse.Namespace, runs: int) -> str:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of the runs' processes, which have ended
    minutes = (used.ru_utime + used.ru_stime) / 60
    return (f"# Last measured\n\n`experiments/{experiment}/run.py --seeds {options.seeds} --jobs {options.jobs}`: {runs} "
            f"runs of {options.steps} steps, {options.test_images:,} test images, {minutes:.0f} minutes of processor; torch "
            f"{torch.__version__}, {platform.machine()}. Mean ± standard deviation over seeds. What it says: "
            "[README.md](README.md).\n")


def write(options: argparse.Namespace, text: str) -> None:
    if options.out is not None:
        options.out.write_text(text)
    else:
        print(text, end="")
