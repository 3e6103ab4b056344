#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Codes that are never sent: bits per value at every hop and all-reduce times, against other codes.

  experiments/asc/run.py [--quick] [--json FILE] [--part bits|time] [--tasks clicks words layers] [--ranks 4 8 16]

Needs python3-torch, the target experiment_channel, bible-kjv for words and dataset-fashion-mnist for layers.
README.md explains the tables.
"""
import math
import pathlib
import platform
import statistics
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from asc.native import WORKS, Group, Hops, Library, Outcome, Way
from asc.recording import Step, recorded, rounded
from common import report, training
from common.channel import DEFAULT_LIBRARY
from gradients.sparse_models import TASKS

import torch

RATE = 1e9            # links, bits per second
BITS = 8              # per whole number
LEARNED = 2           # first steps, in which coders only learn
TIMED = 3             # simulated steps; the last one counts
PLANES = range(1, 17)
AS_THEY_ARE = {"none (fp32)": 32.0, "fp16": 16.0}
SHIPPED, WORTH = "asc, as shipped", 0.97  # send a table if it shortens the message to this share
MODELLED = ("packed", "atalanta", "dual-length", "one-table", "inline", "parametric", "adaptive", "asc", SHIPPED)
NOTHING = (4.66, "OSCAR: all-reduce 4.66 times faster than without compression, on average")
ATALANTA = (1.05, "OSCAR: all-reduce 1.05 times faster than with Atalanta, on average")
PAPERS = {"bits, Atalanta over ours": ATALANTA, "bits, Atalanta over the last step's table alone": ATALANTA,
          "bits, none over ours": NOTHING, "all-reduce time, one core, none over ours": NOTHING,
          "all-reduce time, simulated, fp32 over coded": NOTHING}


# ---- Planes of equal error ----

class Planes(NamedTuple):
    """Interpolated between two precisions by the logarithm of the error."""
    precision: float
    wire_bits: float
    seconds: float
    error: float


def between(error: float, one: Planes, other: Planes) -> Planes:
    part = math.log(one.error / error) / math.log(one.error / other.error)
    return Planes(*(a + part * (b - a) for a, b in zip(one[:3], other[:3])), error)


def planes_of_error(library: Library, gradients: torch.Tensor, error: float) -> Optional[Planes]:
    """The planes, in both directions, whose mean is as far from the true one; with one plane it may be nearer."""
    truth, before = gradients.mean(0), None
    group = Group(library, len(gradients), RATE)
    for precision in PLANES:
        outcome = group.mean(Way("planes", precision), gradients)
        found = Planes(precision, outcome.bits, outcome.seconds, training.relative_error(outcome.mean, truth))
        if found.error <= error:
            return between(error, before, found) if before is not None else found
        before = found
    return None


# ---- Bits ----

class Codes(NamedTuple):
    bits: Dict[str, List[float]]     # per value, by code and number of ranks in the sum
    seconds: Dict[str, List[float]]  # per value on one core, by code: to encode, to decode, to learn


def coded(library: Library, steps: Sequence[Step]) -> Codes:
    """Mean and median over the steps after learning."""
    ranks, length = steps[0].integers.shape
    hops = Hops(library, ranks, length)
    found = [hops.step(step.integers) for step in steps][LEARNED:]
    for step in found:
        step.bits[SHIPPED] = [sent if sent < WORTH * known else known
                              for known, sent in zip(step.bits["asc"], step.bits["inline"])]
        step.seconds[SHIPPED] = step.seconds["asc"]
    bits = {code: [statistics.fmean(step.bits[code][hop] for step in found) for hop in range(ranks)]
            for code in found[0].bits}
    seconds = {code: [statistics.median(step.seconds[code][work] for step in found) for work in range(len(WORKS))]
               for code in found[0].seconds}
    return Codes({**{code: [bits] * ranks for code, bits in AS_THEY_ARE.items()}, **bits}, seconds)


def ring_bits(hops: Sequence[float]) -> float:
    """Mean over an all-reduce round a ring: every partial sum once, and as many times the complete one."""
    return (sum(hops[:-1]) + (len(hops) - 1) * hops[-1]) / (2 * (len(hops) - 1))


def ring_seconds(hops: Sequence[float], length: int, works: Sequence[float] = (0.0, 0.0)) -> float:
    """A ring that waits for every step: a chunk is on the wire, or one core decodes one message and encodes the next,
    whichever takes longer. The complete sum is encoded once."""
    encode, decode = works[:2]
    steps = [max(bits / RATE, encode + decode) for bits in hops[:-1]] + [encode]
    return length / len(hops) * (sum(steps) + (len(hops) - 1) * max(hops[-1] / RATE, decode))


def bits_table(codes: Codes, planes: Optional[Planes], length: int) -> str:
    ranks = len(codes.bits["asc"])
    shown = sorted({1, 2, ranks // 2, ranks})

    def cells(code: str, hops: Sequence[float], works: Optional[Sequence[float]]) -> List[str]:
        return [code, *(f"{hops[hop - 1]:.3f}" for hop in shown), f"{ring_bits(hops):.3f}",
                f"{1e3 * ring_seconds(hops, length):.2f}",
                f"{1e3 * ring_seconds(hops, length, works):.2f}" if works else ""]

    rows = [cells(code, codes.bits[code], None) for code in (*AS_THEY_ARE, "entropy")]
    rows += [cells(code, codes.bits[code], codes.seconds[code]) for code in MODELLED]
    if planes is not None:
        rows.append(cells("planes, the same error, direct", [planes.precision] * ranks, None))
    return report.table(["ranks in the sum:", *map(str, shown), "all-reduce, ring", "ms, codecs of no cost", "ms, one core"],
                        rows)


def add_bits(where: str, codes: Codes, planes: Optional[Planes], length: int, ratios: report.Ratios) -> None:
    ours = ring_bits(codes.bits[SHIPPED])
    for name, code in (("Atalanta", "atalanta"), ("none", "none (fp32)"), ("fp16", "fp16"), ("bit packing", "packed"),
                       ("one table", "one-table"), ("a table sent with each message", "inline"),
                       ("the last step's table alone", "asc")):
        ratios.add(where, f"bits, {name} over ours", ring_bits(codes.bits[code]) / ours)
    ratios.add(where, "bits, ours over the entropy of each message", ours / ring_bits(codes.bits["entropy"]))
    ratios.add(where, "bits, Atalanta over the last step's table alone",
               ring_bits(codes.bits["atalanta"]) / ring_bits(codes.bits["asc"]))
    if planes is not None:
        ratios.add(where, "bits, planes of the same error over ours", planes.precision / ours)
    ours = ring_seconds(codes.bits[SHIPPED], length, codes.seconds[SHIPPED])
    for name, code, works in (("none", "none (fp32)", (0.0, 0.0)), ("bit packing", "packed", codes.seconds["packed"])):
        ratios.add(where, f"all-reduce time, one core, {name} over ours", ring_seconds(codes.bits[code], length, works) / ours)


# ---- Times ----

def outcomes_of(library: Library, steps: Sequence[Step], way: Way) -> Tuple[Outcome, float]:
    """The last step's outcome after all earlier ones, and its error. With error feedback that is the rounding error."""
    group = Group(library, len(steps[0].gradients), RATE)
    outcome = [group.mean(way, step.gradients) for step in steps][-1]
    gradients = steps[-1].gradients
    return outcome, (rounded(gradients, BITS).error if way.tensor else
                     training.relative_error(outcome.mean, gradients.mean(0)))


def simulated(library: Library, steps: Sequence[Step]) -> Dict[str, Tuple[Outcome, float]]:
    """Each way in its own group."""
    ways = {"fp32, direct": Way("fp32"), "fp32, ring": Way("fp32", is_ring=True), "fp16, direct": Way("fp16"),
            "entropy, direct": Way("entropy", BITS, 1), "entropy, ring": Way("entropy", BITS, 1, True),
            "entropy, no memory": Way("entropy", BITS)}
    return {name: outcomes_of(library, steps[-TIMED:] if way.tensor else steps[-1:], way) for name, way in ways.items()}


def time_table(found: Dict[str, Tuple[Outcome, float]], planes: Optional[Planes]) -> str:
    rows = [[name, f"{1e3 * outcome.seconds:.2f}", f"{outcome.bits:.2f}", f"{error:.2g}", str(outcome.tables)]
            for name, (outcome, error) in found.items()]
    if planes is not None:
        rows.append([f"planes, {planes.precision:.2f} bits, direct", f"{1e3 * planes.seconds:.2f}", f"{planes.wire_bits:.2f}",
                     f"{planes.error:.2g}", "0"])
    return report.table(["", "ms", "bits per value on the wire", "squared error, of the energy", "tables sent"], rows)


def add_times(where: str, found: Dict[str, Tuple[Outcome, float]], planes: Optional[Planes],
              ratios: report.Ratios) -> None:
    fastest = min(found[name][0].seconds for name in ("entropy, direct", "entropy, ring"))
    times = {"fp32": min(found[name][0].seconds for name in ("fp32, direct", "fp32, ring")),
             "fp16": found["fp16, direct"][0].seconds}
    if planes is not None:
        times["planes of the same error"] = planes.seconds
    for name, seconds in times.items():
        ratios.add(where, f"all-reduce time, simulated, {name} over coded", seconds / fastest)


# ---- Results ----

def speed_table(all_codes: Sequence[Codes]) -> str:
    rows = [[code, *(f"{1e-6 / max(statistics.median(codes.seconds[code][work] for codes in all_codes), 1e-12):.0f}"
                     for work in range(len(WORKS)))] for code in MODELLED[:-1]]
    return report.table(["million values a second, one core", *WORKS], rows)


def make_parser() -> report.Parser:
    parser = report.Parser(__doc__)
    parser.add_parts(("bits", "time"))
    parser.add_size("--tasks", list(TASKS), ["words"], "models", type=str, nargs="+", choices=list(TASKS))
    parser.add_size("--ranks", [4, 8, 16], [4, 8], "ranks", nargs="+")
    parser.add_size("--steps", 60, 12, "of training")
    parser.add_size("--kept", 8, 5, "of these, the last that are coded")
    parser.add_argument("--library", type=pathlib.Path, default=DEFAULT_LIBRARY, help="libexperiment_channel.so")
    return parser


def main() -> None:
    options = make_parser().parse_args()
    library, claims, all_codes = Library(options.library), report.Claims(options.quick), []
    ratios = report.Ratios(claims)
    print(f"# Last measured\n\n`experiments/{HERE.name}/run.py{' --quick' * options.quick} --steps {options.steps} --kept "
          f"{options.kept}`, {platform.machine()}. What it says: [README.md](README.md).")
    for where, steps in ((f"{task}, {ranks} ranks", recorded(task, ranks, options.steps, options.kept, BITS))
                         for task in options.tasks for ranks in options.ranks):
        length = steps[-1].gradients.shape[1]
        planes = planes_of_error(library, steps[-1].gradients, rounded(steps[-1].gradients, BITS).error)
        if options.part != "time":
            all_codes.append(coded(library, steps))
            print(f"\n## {where}, {length:,} values: bits per value, and a ring over links of 1 Gb/s, computed\n")
            print(bits_table(all_codes[-1], planes, length), flush=True)
            add_bits(where, all_codes[-1], planes, length, ratios)
        if options.part != "bits":
            found = simulated(library, steps)
            print(f"\n## {where}: an all-reduce over links of 1 Gb/s, simulated, codecs of no cost\n")
            print(time_table(found, planes), flush=True)
            add_times(where, found, planes, ratios)
    if all_codes:
        print("\n## Speed of the codes, as used above: medians\n")
        print(speed_table(all_codes))
    ratios.add_means("mean of all", PAPERS)
    claims.finish(options)


if __name__ == "__main__":
    main()
