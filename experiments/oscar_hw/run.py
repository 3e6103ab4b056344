#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chunks of equal cost: the longest chunk over the mean one, and all-reduce times, by rule for sharing out blocks.

  experiments/oscar_hw/run.py [--quick] [--json FILE] [--part chunks|lab] [--tasks clicks words layers] [--ranks 4 8 16]

chunks is the simulator with codecs of no cost; lab is training in an emulated network. Needs python3-torch, the
target experiment_channel, bible-kjv for words and dataset-fashion-mnist for layers; the lab needs root, or user
namespaces. README.md explains the tables.
"""
import argparse
import json
import pathlib
import platform
import statistics
import sys
import tempfile
from typing import Dict, NamedTuple, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from asc.native import RULES, Group, Hops, Library, Way
from asc.recording import Step, recorded
from common import report
from common.channel import DEFAULT_LIBRARY
from gradients.sparse_models import TASKS

PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
RATE, BITS = 1e9, 8
LEARNED = 2                  # first steps, in which costs are only learned
ALL_REDUCE = "OSCAR: all-reduce 3.77 times faster, on average"
END_TO_END = "OSCAR: end to end 1.38 times faster, on average"
# The share of all-reduces in a step at which 3.77 times faster ones make it 1.38 times faster.
SHARE = (1 - 1 / 1.38) / (1 - 1 / 3.77)
WAYS = ("direct", "ring")
LAB_HOSTS = 4
LAB_CODECS = ("entropy", "exact")
FIRST_STEPS = 5              # of the lab; they make connections and learn tables, and no median contains them


# ---- The simulator ----

def imbalance(library: Library, steps: Sequence[Step]) -> Dict[str, Tuple[float, float]]:
    """By rule, for a rank's own numbers and for the sum: the mean over steps."""
    ranks, length = steps[0].integers.shape
    hops = Hops(library, ranks, length)
    found = [hops.step(step.integers).imbalance for step in steps][LEARNED:]
    return {rule: (statistics.fmean(step[rule][0] for step in found), statistics.fmean(step[rule][1] for step in found))
            for rule in RULES}


def simulated(library: Library, steps: Sequence[Step], rule: str, is_ring: bool) -> float:
    """Seconds of a coded all-reduce: the mean over the steps after learning."""
    group = Group(library, len(steps[0].gradients), RATE, rule)
    times = [group.mean(Way("entropy", BITS, 1, is_ring), step.gradients).seconds for step in steps]
    return statistics.fmean(times[LEARNED:])


def exact(library: Library, steps: Sequence[Step], is_ring: bool) -> float:
    group = Group(library, len(steps[0].gradients), RATE)
    return group.mean(Way("fp32", is_ring=is_ring), steps[-1].gradients).seconds


def add_ratios(where: str, times: Dict[Tuple[str, str], float], ratios: report.Ratios, what: str) -> None:
    """`times` are by rule and way; "fp32" also counts as a rule, and so do the codecs of the lab."""
    for way in WAYS:
        for one, other in (("equal", "balanced"), ("equal", "striped"), ("striped", "balanced"), ("fp32", "balanced"),
                           ("fp32", "striped"), ("exact", "entropy")):
            if (one, way) in times and (other, way) in times:
                ratios.add(where, f"{what}, {way}, {one} over {other}", times[one, way] / times[other, way])


def chunks(options: argparse.Namespace, claims: report.Claims) -> None:
    library, ratios = Library(options.library), report.Ratios(claims)
    for task in options.tasks:
        for ranks in options.ranks:
            steps = recorded(task, ranks, options.steps, options.kept, BITS)
            longest = imbalance(library, steps)
            times = {(rule, way): simulated(library, steps, rule, way == "ring") for rule in RULES for way in WAYS}
            times.update({("fp32", way): exact(library, steps, way == "ring") for way in WAYS})
            where = f"{task}, {ranks} ranks"
            print(f"\n## {where}, {steps[0].gradients.shape[1]:,} values: links of 1 Gb/s, simulated, codecs of no cost"
                  "\n")
            print(report.table(
                ["chunks", "longest over mean, own numbers", "of the sum", "direct, ms", "ring, ms"],
                ([rule, *(f"{ratio:.2f}" for ratio in longest.get(rule, ())), *[""] * (0 if rule in longest else 2),
                  *(f"{1e3 * times[rule, way]:.2f}" for way in WAYS)] for rule in (*RULES, "fp32"))), flush=True)
            add_ratios(where, times, ratios, "all-reduce time")
            for at, numbers in enumerate(("own numbers", "of the sum")):
                ratios.add(where, f"longest over mean chunk, {numbers}, striped over balanced",
                           longest["striped"][at] / longest["balanced"][at])
    whole = "all-reduce time, ring, fp32 over balanced"
    ratios.add_means("simulated, mean of all", {whole: (3.77, ALL_REDUCE)})
    claims.add(f"computed: end to end, where all-reduces take {100 * SHARE:.0f} % of a step as they must have in the paper",
               1 / (1 - SHARE + SHARE / ratios.mean(whole)), report.at_least(1.38), END_TO_END)


# ---- The lab ----

class Trained(NamedTuple):
    all_reduce_ms: float  # of the rank that came last to it
    step_ms: float


def train(options: argparse.Namespace, task: str, codec: str, way: str) -> Trained:
    with tempfile.TemporaryDirectory() as folder:
        report.output_of([options.spillway, "lab", "run", "--quiet", "--preset", "clean", "--hosts", str(LAB_HOSTS),
                          "--rate", options.rate, "--env", "SPILLWAY_PEER_TIMEOUT=20", "--", PYTHON,
                          str(HERE / "worker.py"), task, codec, way, str(options.lab_steps), folder])
        ranks = [json.loads(file.read_text()) for file in sorted(pathlib.Path(folder).iterdir())]
    reducing = [min(times) for times in zip(*(rank["all_reduce_ms"] for rank in ranks))]
    whole = [max(times) for times in zip(*(rank["step_ms"] for rank in ranks))]
    return Trained(statistics.median(reducing[FIRST_STEPS:]), statistics.median(whole[FIRST_STEPS:]))


def lab(options: argparse.Namespace, claims: report.Claims) -> None:
    reducing, whole = report.Ratios(claims), report.Ratios(claims)
    for task in options.tasks:
        # Runs that are compared follow each other, so that other load on the machine affects all of them.
        found = {(codec, way): train(options, task, codec, way) for way in WAYS for codec in LAB_CODECS}
        where = f"lab, {task}"
        print(f"\n## {task}, {LAB_HOSTS} ranks: training in the lab, links of {options.rate}; medians\n")
        print(report.table(["codec", *(f"{what}, {way}, ms" for way in WAYS for what in ("all-reduce", "step"))],
                           ([codec, *(f"{ms:.2f}" for way in WAYS for ms in found[codec, way])]
                            for codec in LAB_CODECS)), flush=True)
        add_ratios(where, {key: times.all_reduce_ms for key, times in found.items()}, reducing, "all-reduce time")
        add_ratios(where, {key: times.step_ms for key, times in found.items()}, whole, "end to end")
    reducing.add_means("lab, mean of all", {"all-reduce time, ring, exact over entropy": (3.77, ALL_REDUCE)})
    whole.add_means("lab, mean of all", {"end to end, ring, exact over entropy": (1.38, END_TO_END)})


PARTS = {"chunks": chunks, "lab": lab}


def make_parser() -> report.Parser:
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--tasks", list(TASKS), ["words"], "models", type=str, nargs="+", choices=list(TASKS))
    parser.add_size("--ranks", [4, 8, 16], [4], "ranks of the simulator", nargs="+")
    parser.add_size("--steps", 60, 8, "of training")
    parser.add_size("--kept", 8, 4, "of these, the last that are coded")
    parser.add_size("--lab-steps", 60, 12, "of training in the lab")
    parser.add_argument("--rate", default="100mbit", help="of the lab's links (100mbit)")
    parser.add_argument("--library", type=pathlib.Path, default=DEFAULT_LIBRARY, help="libexperiment_channel.so")
    return parser


def main() -> None:
    options = make_parser().parse_args()
    sizes = {"chunks": f" --steps {options.steps} --kept {options.kept}", "lab": f" --lab-steps {options.lab_steps}"}
    said = f" --part {options.part}{sizes[options.part]}" if options.part else "".join(sizes.values())
    print(f"# Last measured\n\n`experiments/{HERE.name}/run.py{' --quick' * options.quick}{said}`, {platform.machine()}. What "
          "it says: [README.md](README.md).")
    report.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
