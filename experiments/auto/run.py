#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The codec auto against every fixed choice: time to equal accuracy, including trials, and step times after them.

  experiments/auto/run.py [--quick] [--json FILE] [--presets NAME...] [--rates RATE...] [--variants NAME...]
                         [--steps N] [--seeds N]

Fixed choices are Gloo over TCP cubic and bbr with 32 and 16 bits, and all of Spillway's codes. Needs root, or user
namespaces, python3-torch, libopenblas0 and dataset-fashion-mnist. Prints Markdown; result.md is its last output.
"""
import json
import pathlib
import statistics
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Tuple, Union

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

RANKS = 4
PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
TRIES = 3                    # torch 1.13's Gloo sometimes aborts when its process ends
FIRST_STEPS = 3              # they make connections and buffers; no median contains them
BELOW_BEST = 0.01            # of accuracy: near the best, curves are flat, and crossing is luck
CLOSE = 1.05                 # to the best fixed choice
FOR_ALL = ["--env", "SPILLWAY_PEER_TIMEOUT=20"]  # all hosts share the machine's processors


class Variant(NamedTuple):
    hook: Union[str, Dict[str, Any]]
    tcp: str = "cubic"

    def words(self) -> str:
        return self.hook if isinstance(self.hook, str) else json.dumps(self.hook)

    @property
    def is_rival(self) -> bool:
        """True for Gloo, which learns what exact steps learn."""
        return isinstance(self.hook, str)


def planes(bits: int) -> Variant:
    return Variant({"codec": {"name": "planes", "bits": bits}})


EXACT, AUTO, FP32 = "exact", "auto", "fp32, TCP cubic"
VARIANTS = {EXACT: Variant({"codec": {"name": "exact"}}),
            FP32: Variant("fp32"), "fp32, TCP bbr": Variant("fp32", "bbr"),
            "fp16, TCP cubic": Variant("fp16"), "fp16, TCP bbr": Variant("fp16", "bbr"),
            **{f"planes, {bits} bits": planes(bits) for bits in (16, 8, 5)},
            "levels, 4 bits": Variant({"codec": {"name": "levels"}}),
            "entropy, 10 bits": Variant({"codec": {"name": "entropy", "bits": 10}}),
            "entropy, 8 bits": Variant({"codec": {"name": "entropy"}}),
            AUTO: Variant({"codec": {"name": "auto"}})}
QUICK_VARIANTS = (EXACT, FP32, "planes, 5 bits", AUTO)


class Run(NamedTuple):
    """One training. Seconds count its steps only: evaluations take equally long with every variant."""
    step_ms: List[float]
    curve: List[Tuple[int, float]]   # (steps taken, accuracy)
    choices: List[Dict[str, Any]]
    kept_up: bool

    def behind_trials(self) -> float:
        """Median milliseconds of the steps after the trials."""
        first = max(FIRST_STEPS, self.choices[0]["step"] if self.choices else 0)
        return statistics.median(self.step_ms[first:] or self.step_ms)

    def seconds_to(self, target: float, curve: List[Tuple[int, float]]) -> float:
        """Seconds until `curve` reaches the target. Steps beyond those taken count as the others' mean."""
        steps = next(step for step, accuracy in curve if accuracy >= target)
        mean = statistics.fmean(self.step_ms[FIRST_STEPS:] or self.step_ms)
        return (sum(self.step_ms[:steps]) + mean * max(0, steps - len(self.step_ms))) / 1e3


def train(options, preset: str, rate: str, variant: Variant, seed: int) -> Run:
    steps = min(options.rival_steps, options.steps) if variant.is_rival else options.steps
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as log:
        words = [options.spillway, "lab", "run", "--json", "--preset", preset, "--hosts", str(RANKS), "--rate", rate, "--tcp",
                 variant.tcp, "--set", f"seed={seed}", *FOR_ALL, "--", PYTHON, str(HERE / "worker.py"), "--steps",
                 str(steps), "--schedule", str(options.steps), "--seed", str(seed), "--evaluate-every",
                 str(options.evaluate_every), "--test-samples", str(options.test_samples), "--hook", variant.words(),
                 "--log", log.name]
        lab = json.loads(report.output_of(words, TRIES))
        events = [json.loads(line) for line in pathlib.Path(log.name).read_text().splitlines()]
    return Run([event["step_ms"] for event in events if event["event"] == "step"],
               [(event["step"], event["accuracy"]) for event in events if event["event"] == "evaluation"],
               [event for event in events if event["event"] == "choice"], lab["pace"]["kept_up"])


class Cell:
    """All variants on one network, by seed."""

    def __init__(self) -> None:
        self.runs: Dict[str, List[Run]] = {}
        self._targets: List[float] = []

    def add(self, runs: Dict[str, Run]) -> None:
        """Adds the runs of one seed."""
        self._targets.append(min(max(accuracy for _, accuracy in run.curve) for name, run in runs.items()
                                 if not VARIANTS[name].is_rival) - BELOW_BEST)
        for name, run in runs.items():
            self.runs.setdefault(name, []).append(run)

    def seconds(self, name: str) -> float:
        """Seconds to equal accuracy, mean over seeds."""
        curves = self.runs[EXACT if VARIANTS[name].is_rival else name]
        return statistics.fmean(run.seconds_to(target, curve.curve)
                                for run, curve, target in zip(self.runs[name], curves, self._targets))

    def step_ms(self, name: str) -> float:
        return statistics.fmean(run.behind_trials() for run in self.runs[name])

    def final(self, name: str) -> float:
        return statistics.fmean(run.curve[-1][1] for run in self.runs[EXACT if VARIANTS[name].is_rival else name])

    def fixed(self) -> List[str]:
        return [name for name in self.runs if name != AUTO]

    def target(self) -> float:
        return statistics.fmean(self._targets)

    def notes(self) -> List[str]:
        late = not all(run.kept_up for runs in self.runs.values() for run in runs)
        said = [f"seed {seed}, step {choice['step']}: {choice['codec']}: {choice['why']} ({'; '.join(choice['trials'])})"
                for seed, run in enumerate(self.runs[AUTO], 1) for choice in run.choices]
        return ["a lab was late: its times do not hold"] * late + said


def show(network: str, cell: Cell) -> None:
    for name, runs in cell.runs.items():
        choices = ", ".join(run.choices[-1]["codec"] for run in runs if run.choices)
        behind = ", ".join(str(run.choices[0]["step"]) for run in runs if run.choices)
        print(report.row([network, name, f"{cell.step_ms(name):.0f}", f"{cell.seconds(name):.1f}",
                          f"{100 * cell.target():.1f} %", f"{cell.seconds(FP32) / cell.seconds(name):.2f}",
                          "" if VARIANTS[name].is_rival else f"{100 * cell.final(name):.2f} %", choices, behind]),
              flush=True)


def claim(network: str, cell: Cell, claims: report.Claims) -> None:
    for what, of in (("median step behind the trials", cell.step_ms), ("time to the same accuracy, trials counted",
                                                                      cell.seconds)):
        best = min(cell.fixed(), key=of)
        claims.add(f"{network}: {what}, auto over the best fixed choice", of(AUTO) / of(best), report.at_most(CLOSE))
        print(f"\n{network}: {what}: the best fixed choice is {best}, {of(best):.4g}; auto {of(AUTO):.4g}")
    for rival in (name for name in cell.runs if VARIANTS[name].is_rival):
        claims.add(f"{network}: time to the same accuracy, {rival} over auto", cell.seconds(rival) / cell.seconds(AUTO),
                   report.at_least(1.0))
    claims.add(f"{network}: points of final accuracy from exact", 100 * (cell.final(AUTO) - cell.final(EXACT)),
               report.at_least(-0.5))


def accuracy(options, claims: report.Claims) -> None:
    notes: List[str] = []
    for preset in options.presets:
        for rate in options.rates:
            network, cell = f"{preset}, {rate}", Cell()
            for seed in range(1, options.seeds + 1):
                cell.add({name: train(options, preset, rate, VARIANTS[name], seed)
                          for name in options.variants})
            print(f"\n## {network}: {options.steps} steps, {RANKS} ranks, seeds 1 to {options.seeds}\n")
            print(report.head(["network", "variant", "step p50, ms", "s to accuracy", "accuracy",
                               "faster than fp32, cubic", "final accuracy", "chosen", "behind so many steps"]))
            show(network, cell)
            claim(network, cell, claims)
            notes += [f"{network}: {note}" for note in cell.notes()]
    print("".join(f"\n- {note}" for note in notes))


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts({"accuracy": accuracy})
    parser.add_size("--presets", ["wan", "congested"], ["clean"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--rates", ["100mbit", "1000mbit"], ["100mbit"], "of every host's link", type=str, nargs="+",
                    metavar="RATE")
    parser.add_size("--variants", list(VARIANTS), list(QUICK_VARIANTS), "of " + "; ".join(VARIANTS), type=str, nargs="+",
                    metavar="NAME", choices=list(VARIANTS))
    parser.add_size("--steps", 300, 24, "of training")
    parser.add_size("--rival-steps", 30, 8, "over TCP, which are timed; what they learn is what exact ones do")
    parser.add_size("--seeds", 3, 1, "runs of each row, with seeds 1, 2, ...")
    parser.add_size("--evaluate-every", 10, 12, "steps")
    parser.add_size("--test-samples", 10_000, 1000, "to evaluate with")
    options = parser.parse_args()
    print(f"# A code that is found by trial\n\n`experiments/auto/run.py{' --quick' * options.quick} --steps "
          f"{options.steps} --seeds {options.seeds}`")
    report.run_parts({"accuracy": accuracy}, options)


if __name__ == "__main__":
    main()
