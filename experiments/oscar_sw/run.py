#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients with zeros: predicted supports and a sketch of misses, against plain count sketches, the union and top-k.

  experiments/oscar_sw/run.py [--quick] [--json FILE] [--out experiments/oscar_sw/result.md] [--tasks clicks words layers]

Needs python3-torch, the target experiment_channel, bible-kjv for words and dataset-fashion-mnist for layers.
README.md explains the tables.
"""
import functools
import pathlib
import platform
import statistics
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report, sweep, training
from common.channel import DEFAULT_LIBRARY
from gradients.sparse_models import TASKS, Size
from oscar_sw.reducer import LIMIT, Library, Reducer, Reduction

import torch

OURS, LAST = "predicted-counter", "predicted-last"
STRONG, PUBLISHED = "peeled", "peeled-raw"
LEAST_CELLS, PUBLISHED_CELLS = 130, 200  # per hundred values: LHC's demonstration takes two cells each
HEADROOM, MEMORY = 1.25, 0.9             # the scale over the usual largest value, and how slowly it follows
KEPT_SHARE = {"layers": 0.05}            # of a dense gradient: smaller values become zero, and error feedback
WARM_UP = 10                             # uncounted steps: the first one is dense
LINK = 100e6                             # bits per second, so that the network is the limit
ERRORS = (0.0, 0.01, 0.1)
MEDIAN_CELLS = (130, 200, 400, 1000, 3000)


class Setting(NamedTuple):
    name: str
    scheme: Optional[str]  # None: the ranks' plain mean
    size: int = 0
    has_ours_bits: bool = False  # sized to take as many bits as ours


BASELINE = Setting("none (baseline)", None)
FIRST = (BASELINE, Setting("predicted, counters (ours)", OURS, LEAST_CELLS), Setting("predicted, last", LAST, LEAST_CELLS),
         Setting("LHC, 1.3 cells, coded index", STRONG, LEAST_CELLS),
         Setting("LHC, 2 cells, bitmap", PUBLISHED, PUBLISHED_CELLS),
         Setting("S2, 2 cells, bitmap", "median-raw", PUBLISHED_CELLS), Setting("union, two rounds", "union"))
MINE = FIRST[1]
EQUAL = (Setting("LHC, ours' bits, coded index", STRONG, LEAST_CELLS, True),
         Setting("LHC, ours' bits, bitmap", PUBLISHED, LEAST_CELLS, True),
         Setting("S2, ours' bits, bitmap", "median-raw", LEAST_CELLS, True),
         Setting("top-k, at most ours' bits", "top-k", 30_000, True))
SETTINGS = {setting.name: setting for setting in (*FIRST, *EQUAL)}


# ---- One run ----

class Quantizer:
    """One scale for all ranks, from earlier steps' largest magnitude, which all of them know."""

    def __init__(self, kept_share: Optional[float]) -> None:
        self._kept_share, self._peak, self._threshold = kept_share, 0.0, 0.0

    def integers(self, values: torch.Tensor) -> Tuple[torch.Tensor, float]:
        """The integers, and the factor from values to them."""
        magnitudes = values.abs()
        peak = float(magnitudes.max())
        scale = LIMIT / (HEADROOM * max(self._peak or peak, 1e-30))
        self._peak = MEMORY * (self._peak or peak) + (1 - MEMORY) * peak
        integers = (values * scale).round().clamp(-LIMIT, LIMIT)
        if self._kept_share is not None:
            dropped = values.numel() - int(self._kept_share * values.numel())
            threshold = float(magnitudes.flatten().kthvalue(dropped).values)
            integers[magnitudes < (self._threshold or threshold)] = 0
            self._threshold = MEMORY * (self._threshold or threshold) + (1 - MEMORY) * threshold
        return integers.int(), scale


class SparseMean:
    """The ranks' mean through a reducer, with error feedback: each rank keeps what is not in the sum."""

    def __init__(self, library: Library, setting: Setting, length: int, ranks: int, target_bits: float,
                 kept_share: Optional[float]) -> None:
        self._open = lambda size: Reducer(library, setting.scheme, size, length, ranks)
        self._size, self._target_bits = float(setting.size), target_bits if setting.has_ours_bits else None
        self._most = length  # a larger size makes no difference
        self._reducer, self._quantizer = self._open(setting.size), Quantizer(kept_share)
        self._owed = torch.zeros(ranks, length)
        self.reductions: List[Reduction] = []
        self.errors: List[float] = []

    def integers(self, gradients: List[torch.Tensor]) -> Tuple[torch.Tensor, torch.Tensor, float]:
        values = torch.stack(gradients) + self._owed
        return values, *self._quantizer.integers(values)

    def __call__(self, step: int, gradients: List[torch.Tensor]) -> torch.Tensor:
        values, integers, scale = self.integers(gradients)
        total, is_used, reduction = self._reducer.reduce(step, integers)
        self._owed = values - integers * is_used / scale
        self.reductions.append(reduction)
        self.errors.append(training.relative_error(total.double(), integers.sum(0).double()))
        self.resize()
        return total.float() / (scale * len(gradients))

    def resize(self) -> None:
        """Moves slowly towards the target bits: steps vary, and cells per value should not."""
        if self._target_bits is not None:
            recent = statistics.fmean(found.bits() for found in self.reductions[-WARM_UP:])
            self._size = min(max(self._size * min(max(self._target_bits / recent, 0.9), 1.1), 5.0), self._most)
            self._reducer = self._open(int(self._size))


def run_one(library: Library, size: Size, bits: Dict[str, float], task_name: str, name: str, seed: int) -> sweep.Record:
    torch.set_num_threads(1)
    setting = SETTINGS[name]
    with torch.backends.mkldnn.flags(enabled=False):
        task = TASKS[task_name](seed, size)
        mean = (training.plain_mean if setting.scheme is None else
                SparseMean(library, setting, task.length(), size.ranks, bits.get(task_name, 0.0), KEPT_SHARE.get(task_name)))
        loss = 0.0
        for step in range(size.steps):
            gradients, loss = task.gradients(step)
            task.learn_from(mean(step, gradients))
        record = {"task": task_name, "setting": setting.name, "seed": seed, "accuracy": task.accuracy(), "loss": loss}
    return record if setting.scheme is None else {**record, **summary(mean, task.length(), size.ranks)}


def summary(mean: SparseMean, length: int, ranks: int) -> Dict[str, Any]:
    counted = mean.reductions[min(WARM_UP, len(mean.reductions) - 1):]
    total = {name: sum(getattr(found, name) for found in counted) for name in Reduction._fields}
    cuts = [len(counted) * at // 4 for at in range(5)]
    return {"bits": statistics.fmean(found.bits() for found in counted) / length,
            "density": total["nonzero"] / (len(counted) * length),
            "missed": total["misses"] / max(total["nonzero"], 1),
            "idle": 1 - (total["nonzero"] - total["misses"]) / max(total["predicted"], 1),
            "unused": total["unused"] / max(total["nonzero"] * ranks, 1),
            "error": statistics.fmean(mean.errors[min(WARM_UP, len(mean.errors) - 1):]),
            "missed_over_time": [sum(f.misses for f in some) / max(sum(f.nonzero for f in some), 1)
                                 for some in (counted[begin:end] for begin, end in zip(cuts, cuts[1:]))]}


# ---- Consecutive steps, for measurements without training ----

def recorded_steps(library: Library, size: Size, task_name: str, kept: int = 10) -> List[torch.Tensor]:
    """The ranks' integers in the last steps."""
    task = TASKS[task_name](1, size)
    mean = SparseMean(library, Setting("", "union"), task.length(), size.ranks, 0.0, KEPT_SHARE.get(task_name))
    steps = []
    for step in range(min(size.steps, 40)):
        gradients, _ = task.gradients(step)
        steps.append(mean.integers(gradients)[1])
        task.learn_from(mean(step, gradients))
    return steps[-kept:]


class Point(NamedTuple):
    bits: float   # per value
    error: float  # squared, over the sum's energy


def point(library: Library, scheme: str, size: int, steps: Sequence[torch.Tensor], least: int = 0) -> Point:
    """Mean bits and median error over the last steps. Magnitudes below `least` are not sent."""
    ranks, length = steps[0].shape
    reducer, found = Reducer(library, scheme, size, length, ranks), []
    for step, integers in enumerate(steps):
        total, _, reduction = reducer.reduce(step, integers * (integers.abs() >= least))
        found.append(Point(reduction.bits() / length,
                           training.relative_error(total.double(), integers.sum(0).double())))
    counted = found[-5:]
    return Point(statistics.fmean(p.bits for p in counted), statistics.median(p.error for p in counted))


def points_of(library: Library, scheme: str, steps: Sequence[torch.Tensor]) -> List[Point]:
    """Points from the most to the least that a scheme can send."""
    if scheme == "median":
        return [point(library, scheme, cells, steps[-5:]) for cells in MEDIAN_CELLS]
    if scheme == "top-k":
        most = max(int((integers != 0).sum(1).max()) for integers in steps)
        return [point(library, scheme, max(most * part // 12, 1), steps[-5:]) for part in range(1, 13)]
    return [point(library, scheme, LEAST_CELLS, steps, least) for least in (1, 2, 3, 4, 6, 8)]


def bits_at_error(points: Sequence[Point], error: float) -> str:
    """The fewest bits that leave at most this error."""
    good = [point.bits for point in points if point.error <= error]
    return f"{min(good):.2f}" if good else "none"


def codec_seconds(library: Library, scheme: str, size: int, steps: Sequence[torch.Tensor]) -> float:
    """One rank's computation in a step: its part, and the sum's values. The minimum over the last steps, in processor
    time, because other programs may use the processor too."""
    sums = [integers.sum(0, dtype=torch.int32).clamp(-LIMIT, LIMIT)[None] for integers in steps]
    reducer, times = Reducer(library, scheme, size, sums[0].shape[1], 1), []
    for step, total in enumerate(sums):
        begin = time.process_time()
        reducer.reduce(step, total)
        times.append(time.process_time() - begin)
    return min(times[-5:])


# ---- Tables ----

def by_task(records: Sequence[sweep.Record], tasks: Sequence[str], settings: Sequence[Setting], cell: Any) -> str:
    return report.table(["", *tasks], ([setting.name, *(cell(sweep.chosen(records, task=task, setting=setting.name), task)
                                                         for task in tasks)] for setting in settings))


def accuracy_cell(records: Sequence[sweep.Record], some: Sequence[sweep.Record], task: str) -> str:
    baseline = sweep.chosen(records, task=task, setting=BASELINE.name)
    return f"{sweep.accuracy(some)} ({sweep.mean_and_spread(sweep.points(some, baseline), '+')})"


def number_cell(name: str, some: Sequence[sweep.Record], _task: str) -> str:
    return f"{sweep.mean_of(some, name):.3g}"


def share_cell(name: str, some: Sequence[sweep.Record], _task: str) -> str:
    return f"{100 * sweep.mean_of(some, name):.1f} %"


def over_time_table(records: Sequence[sweep.Record], tasks: Sequence[str]) -> str:
    rows = []
    for task in tasks:
        for setting in FIRST[1:3]:
            series = [record["missed_over_time"] for record in sweep.chosen(records, task=task, setting=setting.name)]
            rows.append([task, setting.name, *(f"{100 * statistics.fmean(at):.0f} %" for at in zip(*series))])
    width = max(len(cells) for cells in rows)
    return report.table(["task", "prediction", *(f"quarter {at + 1}" for at in range(width - 2))], rows)


def error_table(library: Library, streams: Dict[str, List[torch.Tensor]]) -> str:
    schemes = {MINE.name: OURS, FIRST[3].name: STRONG, "S2, coded index": "median", "union, two rounds": "union",
               "top-k": "top-k"}
    rows = []
    for name, scheme in schemes.items():
        points = [points_of(library, scheme, steps) for steps in streams.values()]
        rows.append([name, *(bits_at_error(some, error) for some in points for error in ERRORS)])
    return report.table(["", *(f"{task}, {error:g}" for task in streams for error in ERRORS)], rows)


def step_seconds(library: Library, records: Sequence[sweep.Record], task: str, setting: Setting,
                 steps: Sequence[torch.Tensor]) -> Tuple[float, float]:
    """Seconds of an all-reduce through owners over links of 100 Mb/s: on the wire, and in the codec."""
    ranks, length = steps[0].shape
    bits = sweep.mean_of(sweep.chosen(records, task=task, setting=setting.name), "bits")
    return (2 * bits * length * (ranks - 1) / ranks / LINK,
            codec_seconds(library, setting.scheme, setting.size, steps))


def tables(records: Sequence[sweep.Record], tasks: Sequence[str], seconds: Any, errors: str) -> str:
    sparse = (*FIRST[1:], *EQUAL)
    return "\n".join([
        "\n## Test accuracy, per cent (points from the baseline of the same seed)\n",
        by_task(records, tasks, (*FIRST, *EQUAL), functools.partial(accuracy_cell, records)),
        "## Bits a value, one direction\n", by_task(records, tasks, sparse, functools.partial(number_cell, "bits")),
        "## Squared error of the sum of integers, of its energy\n",
        by_task(records, tasks, sparse, functools.partial(number_cell, "error")),
        "## Misses, of the values that are not zero\n", over_time_table(records, tasks),
        "## Predicted values that are zero\n", by_task(records, tasks, FIRST[1:3], functools.partial(share_cell, "idle")),
        "## Values that stay owed to the next step, of the union's\n",
        by_task(records, tasks, sparse, functools.partial(share_cell, "unused")),
        "## Milliseconds of an all-reduce at 100 Mb/s: wire + codec of one rank\n",
        report.table(["", *tasks], ([setting.name, *(" + ".join(f"{1000 * part:.2f}" for part in seconds[task, setting.name])
                                                      for task in tasks)] for setting in FIRST[1:])),
        "## Bits a value at which a single step's error is at most 0, 0.01, 0.1 of the sum's energy\n", errors])


# ---- Claims ----

def add_claims(claims: report.Claims, records: Sequence[sweep.Record], tasks: Sequence[str], seconds: Any) -> None:
    for task in tasks:
        found = {setting.name: sweep.chosen(records, task=task, setting=setting.name) for setting in (*FIRST, *EQUAL)}
        mine, paper = found[MINE.name], "OSCAR: 1.18 times faster than the best CountSketch"
        time_of = {name: sum(seconds[task, name]) for name in (setting.name for setting in FIRST[1:])}
        best = {"with a coded index": (FIRST[3],), "with a bitmap": FIRST[4:6]}
        equal = {"with a coded index": EQUAL[:1], "with a bitmap": EQUAL[1:3]}
        for how, settings in best.items():
            bits_of = min(sweep.mean_of(found[setting.name], "bits") for setting in settings)
            claims.add(f"{task}: bits, the best count sketch {how} over ours", bits_of / sweep.mean_of(mine, "bits"),
                       report.at_least(1.18), paper)
            claims.add(f"{task}: all-reduce at 100 Mb/s with our codecs, the best count sketch {how} over ours",
                       min(time_of[setting.name] for setting in settings) / time_of[MINE.name])
        for how, settings in equal.items():
            rival = max(sweep.mean_of(found[setting.name], "accuracy") for setting in settings)
            claims.add(f"{task}: points over the best count sketch {how} of as many bits",
                       sweep.mean_of(mine, "accuracy") - rival, report.at_least(3), "OSCAR: accuracy 3 % better")
        claims.add(f"{task}: points from the baseline", statistics.fmean(sweep.points(mine, found[BASELINE.name])),
                   report.at_least(-0.5))
        claims.add(f"{task}: points over top-k of as many bits",
                   sweep.mean_of(mine, "accuracy") - sweep.mean_of(found[EQUAL[3].name], "accuracy"))
        claims.add(f"{task}: misses, of the values that are not zero", sweep.mean_of(mine, "missed"))
        claims.add(f"{task}: bits over those of the union in two rounds",
                   sweep.mean_of(mine, "bits") / sweep.mean_of(found["union, two rounds"], "bits"))


# ---- Results ----

def make_parser() -> report.Parser:
    parser = report.Parser(__doc__)
    parser.add_size("--tasks", list(TASKS), ["clicks", "words"], "models", type=str, nargs="+", choices=list(TASKS))
    parser.add_size("--seeds", 3, 1, "runs of each setting")
    parser.add_size("--steps", 120, 16, "of training")
    parser.add_argument("--jobs", type=report.positive, default=2, metavar="N", help="runs at a time, a core each (2)")
    parser.add_argument("--library", type=pathlib.Path, default=DEFAULT_LIBRARY, help="libexperiment_channel.so")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="for the tables, in place of standard output")
    parser.set_defaults(runs=None)  # read by sweep.run_all()
    return parser


def run_settings(library: Library, size: Size, bits: Dict[str, float], settings: Sequence[Setting],
                 options: Any) -> List[sweep.Record]:
    calls = [(task, setting.name, seed) for task in options.tasks for setting in settings
             for seed in range(1, options.seeds + 1)]
    return sweep.run_all(functools.partial(run_one, library, size, bits), calls, options)


def main() -> None:
    options = make_parser().parse_args()
    library, claims, size = Library(options.library), report.Claims(options.quick), Size(steps=options.steps)
    records = run_settings(library, size, {}, FIRST, options)
    lengths = {task: TASKS[task](1, size).length() for task in options.tasks}
    bits = {task: lengths[task] * sweep.mean_of(sweep.chosen(records, task=task, setting=MINE.name), "bits")
            for task in options.tasks}
    records += run_settings(library, size, bits, EQUAL, options)
    torch.set_num_threads(1)
    streams = {task: recorded_steps(library, size, task) for task in options.tasks}
    seconds = {(task, setting.name): step_seconds(library, records, task, setting, streams[task])
               for task in options.tasks for setting in FIRST[1:]}
    add_claims(claims, records, options.tasks, seconds)
    heading = (f"# Last measured\n\n`experiments/{HERE.name}/run.py{' --quick' * options.quick} --seeds {options.seeds} "
               f"--steps {options.steps}`: {len(records)} runs, {size.ranks} ranks of {size.batch} samples a step (layers: "
               f"{TASKS['layers'].BATCH}); torch {torch.__version__}, {platform.machine()}. Mean ± standard deviation over "
               "seeds. What it says: [README.md](README.md).\n")
    sweep.write(options, heading + tables(records, options.tasks, seconds, error_table(library, streams)), claims)


if __name__ == "__main__":
    main()
