# SPDX-License-Identifier: Apache-2.0
"""Runs training experiments, some side by side, and writes their results.

A run yields a record, a plain dictionary; "seed" distinguishes the records of one setting.
"""
import argparse
import contextlib
import functools
import json
import multiprocessing
import pathlib
import platform
import resource
import statistics
import sys
from typing import Any, Callable, Dict, Iterable, List, Sequence

import torch

from common import report
from common.channel import DEFAULT_LIBRARY, Channel
from common.training import Schedule, example

Record = Dict[str, Any]
USUAL = Schedule()
QUICK_STEPS = 150


def per_cent(text: str) -> float:
    if not 0 <= float(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 100")
    return float(text)


def make_parser(docstring: str, shares: Sequence[float], quick_shares: Sequence[float]) -> report.Parser:
    parser = report.Parser(docstring)
    parser.add_size("--shares", list(shares), list(quick_shares), "of packets that are hit", type=per_cent, nargs="+",
                    metavar="PERCENT")
    parser.add_size("--seeds", 3, 1, "runs of each setting")
    parser.add_size("--steps", USUAL.steps, QUICK_STEPS, "of training")
    parser.add_argument("--test-images", type=report.positive, default=USUAL.test_images, metavar="N",
                        help=f"({USUAL.test_images})")
    parser.add_argument("--jobs", type=report.positive, default=2, metavar="N", help="runs at a time, a core each (2)")
    parser.add_argument("--library", type=pathlib.Path, default=DEFAULT_LIBRARY, help="libexperiment_channel.so")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="for the tables, in place of standard output")
    parser.add_argument("--runs", type=pathlib.Path, metavar="FILE", help="for every run's numbers, a line each as it ends")
    return parser


# ---- Running ----

_function: Callable[..., Record]


def _hold(function: Callable[..., Record]) -> None:
    global _function  # in the forked process only
    _function = function


def _call(arguments: Sequence[Any]) -> Record:
    return _function(*arguments)


def run_all(function: Callable[..., Record], calls: Sequence[Sequence[Any]], options: argparse.Namespace) -> List[Record]:
    """The calls' records, in their order. Processes are forked, so that the function may hold data without a copy."""
    records: List[Record] = []
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.runs.open("w", buffering=1)) if options.runs is not None else None
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


def run_settings(run_one: Callable[..., Record], settings: Sequence[Sequence[Any]], channel: Channel,
                 options: argparse.Namespace) -> List[Record]:
    """`run_one(channel, data, schedule, *setting, seed)` for every setting and seed."""
    schedule = Schedule(steps=options.steps, test_images=options.test_images)
    calls = [(*setting, seed) for setting in settings for seed in range(1, options.seeds + 1)]
    return run_all(functools.partial(run_one, channel, example.fashion_mnist(None), schedule), calls, options)


def show(text: str) -> None:
    """Replaces the last text shown; on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# ---- Writing ----

def chosen(records: Iterable[Record], **setting: Any) -> List[Record]:
    return [record for record in records if all(record[name] == value for name, value in setting.items())]


def mean_and_spread(values: Sequence[float], sign: str = "") -> str:
    """The spread is the standard deviation between seeds."""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.2f}{spread}"


def accuracy(records: Sequence[Record]) -> str:
    return mean_and_spread([record["accuracy"] for record in records])


def points(records: Sequence[Record], baseline: Sequence[Record]) -> List[float]:
    """Accuracy points over the baseline of the same seed."""
    usual = {record["seed"]: record["accuracy"] for record in baseline}
    return [record["accuracy"] - usual[record["seed"]] for record in records]


def accuracy_tables(over_shares: Callable[[Callable[[Sequence[Record]], str]], str],
                    baseline: Sequence[Record]) -> List[str]:
    """The tables that every experiment shows. `over_shares` makes a table from a function for cells."""
    return [over_shares(accuracy),
            "## Points from the baseline of the same seed\n",
            over_shares(lambda some: mean_and_spread(points(some, baseline), "+")),
            "## Squared error of the workers' mean gradient, of its energy (median of the steps)\n",
            over_shares(lambda some: f"{mean_of(some, 'error'):.2g}")]


def mean_of(records: Sequence[Record], name: str) -> float:
    return statistics.fmean(record[name] for record in records)


def heading(experiment: str, options: argparse.Namespace, runs: int) -> str:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of finished runs
    minutes = (used.ru_utime + used.ru_stime) / 60
    return (f"# Last measured\n\n`experiments/{experiment}/run.py{' --quick' * options.quick} --seeds {options.seeds} "
            f"--jobs {options.jobs}`: {runs} runs of {options.steps} steps, {options.test_images:,} test images, "
            f"{minutes:.1f} minutes of processor; torch {torch.__version__}, {platform.machine()}. Mean ± standard deviation "
            "over seeds. What it says: [README.md](README.md).\n")


def write(options: argparse.Namespace, text: str, claims: report.Claims) -> None:
    whole = text + claims.markdown()
    if options.out is not None:
        options.out.write_text(whole)
    else:
        print(whole, end="")
    claims.write(options.json)
