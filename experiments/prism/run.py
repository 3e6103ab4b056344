#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A few real ranks among virtual ones, against the same job with only real ranks; and worlds of thousands.

  experiments/prism/run.py [--quick] [--json FILE] [--part accuracy|scale] [--ranks N...] [--models NAME...]
                           [--presets NAME...] [--steps N] [--rate RATE] [--worlds N...] [--python FILE]

accuracy: examples/train.py in a lab, with all ranks and with two real ones. It needs root, or user namespaces,
python3-torch, libopenblas0, and one core per rank: ranks that share cores slow each other down, virtual ones do not.
scale: two real ranks of many, without a lab. Prints Markdown; result.md is its last output.
"""
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

MODELS = {  # arguments of examples/train.py; all ranks share a batch
    "cnn": ["--model", "cnn", "--batch", "512"],
    "cnn-small-batch": ["--model", "cnn", "--batch", "32"],
    "charlm": ["--model", "charlm", "--batch", "64"],
    "hybrid": ["--model", "hybrid"],  # worker.py's own, with tensor and data parallel groups
    "asleep": ["--model", "asleep"],  # the same, computed by an imaginary accelerator
}
REAL = (0, 1)
TRIES = 2
WARM_UP = 3  # steps that do not count
MOST_MEAN, MOST_MEMORY, MOST_MINUTES = 2.0, 1.0, 80.0


# ---- accuracy ----

def worker(options, folder, model, steps):
    return [options.python, str(HERE / "worker.py"), str(folder), *MODELS[model], "--backend", "spillway", "--steps", str(steps),
            "--test-samples", "64"]


def in_lab(options, preset, hosts):
    return ["--preset", preset, *(["--hosts", str(hosts)] if hosts else []), "--rate", options.rate, "--quiet", "--env",
            "SPILLWAY_DEBUG=NONE"]


def lab_words(options):
    return [word for each in ("--rate", options.rate, "--quiet", "--env", "SPILLWAY_DEBUG=NONE") for word in (f"--lab={each}",)]


def found_in(folder):
    """Every rank's output, and the step time: the median after the warm-up, at the lowest rank."""
    ranks = {int(file.stem): json.loads(file.read_text()) for file in folder.glob("*.json")}
    return ranks, statistics.median(ranks[min(ranks)]["step_ms"][WARM_UP:])


def real_run(options, model, ranks, preset):
    with tempfile.TemporaryDirectory() as folder:
        report.output_of([options.spillway, "lab", "run", *in_lab(options, preset, ranks), "--",
                          *worker(options, folder, model, options.steps)], TRIES)
        return found_in(pathlib.Path(folder))


def stage_words(options, ranks, *more):
    return [options.spillway, "emulate", "stage", "--world", str(ranks), "--real", ",".join(map(str, REAL)), *more]


def table_for(options, model, ranks, preset, folder):
    """Time and memory of the model's calls in the same network. A first run finds out which calls there are."""
    shapes, table = folder / "shapes.json", folder / "table.json"
    with tempfile.TemporaryDirectory() as aside:
        report.output_of([*stage_words(options, ranks, "--rate", options.rate, "--report", str(shapes)), "--",
                          *worker(options, aside, model, 3)], TRIES)
    report.output_of([options.spillway, "emulate", "calibrate", str(table), "--like", str(shapes), "--preset", preset, "--ranks",
                      str(ranks), "--repeats", str(options.repeats), *lab_words(options)], TRIES)
    return table


def staged_run(options, model, ranks, preset, table):
    with tempfile.TemporaryDirectory() as folder:
        report.output_of([*stage_words(options, ranks, "--table", str(table), "--preset", preset), *lab_words(options), "--",
                          *worker(options, folder, model, options.steps)], TRIES)
        return found_in(pathlib.Path(folder))


def accuracy(options, claims):
    print(f"\n## All ranks, and two of them\n\n{options.steps} steps at {options.rate}; milliseconds a step, the median; the run "
          "with all ranks once more, which says how far apart two runs are here; the largest difference of a real rank's peak "
          "memory.\n")
    print(report.head(["model", "ranks", "network", "all real", "2 real", "error", "all real again", "differs", "memory, all real",
                       "2 real", "differs"]))
    errors, memory, apart = [], [], []
    for model in options.models:
        for ranks in options.ranks:
            for preset in options.presets:
                with tempfile.TemporaryDirectory() as folder:
                    table = table_for(options, model, ranks, preset, pathlib.Path(folder))
                    everybody, real_ms = real_run(options, model, ranks, preset)
                    few, staged_ms = staged_run(options, model, ranks, preset, table)
                _, again_ms = real_run(options, model, ranks, preset)
                error, difference = (100 * (other / real_ms - 1) for other in (staged_ms, again_ms))
                peaks = [(everybody[rank]["peak_kib"] / 1024, few[rank]["peak_kib"] / 1024) for rank in REAL]
                worst = max(peaks, key=lambda pair: abs(pair[1] / pair[0] - 1))
                off = 100 * (worst[1] / worst[0] - 1)
                errors.append(abs(error))
                memory.append(abs(off))
                apart.append(abs(difference))
                print(report.row([model, str(ranks), preset, f"{real_ms:.1f}", f"{staged_ms:.1f}", f"{error:+.2f} %",
                                  f"{again_ms:.1f}", f"{difference:+.2f} %", f"{worst[0]:.0f} MiB", f"{worst[1]:.0f} MiB",
                                  f"{off:+.2f} %"]), flush=True)
                claims.add(f"{model}, {ranks} ranks, {preset}: error of the step's time, per cent", error)
    claims.add("mean error of steps' times, per cent", statistics.mean(errors), report.at_most(MOST_MEAN), "0.58 (PrismLLM)")
    claims.add("worst error of steps' times, per cent", max(errors), None, "1.98 (PrismLLM, second-hand)")
    claims.add("worst difference of a real rank's peak memory, per cent", max(memory), report.at_most(MOST_MEMORY),
               "under 0.01 (PrismLLM)")
    claims.add("mean difference of two runs that are alike, per cent", statistics.mean(apart))


# ---- scale ----

def scale(options, claims):
    print(f"\n## Two real ranks of thousands\n\n`spillway emulate stage --world N --real 0,1 --rate 400gbit --node-ranks 8`, "
          f"{options.steps} steps of cnn, a sample a rank. Bootstrap is all before the first step, imports included.\n")
    print(report.head(["ranks", "whole run, s", "bootstrap, s", "init_process_group, s", "step, ms", "a real rank, MiB",
                       "the stage, MiB"]))
    for world in options.worlds:
        with tempfile.TemporaryDirectory() as name:
            folder, begin = pathlib.Path(name), time.monotonic()
            ranks_folder, said = folder / "ranks", folder / "report.json"
            ranks_folder.mkdir()
            report.output_of([*stage_words(options, world, "--rate", "400gbit", "--node-ranks", "8", "--report", str(said)), "--",
                              *worker(options, ranks_folder, "cnn", options.steps), "--batch", str(world)])
            took = time.monotonic() - begin
            ranks, step_ms = found_in(ranks_folder)
            stage = json.loads(said.read_text())
        most = {what: max(rank[what] for rank in ranks.values()) for what in ("bootstrap_s", "init_s", "peak_kib")}
        print(report.row([str(world), f"{took:.1f}", f"{most['bootstrap_s']:.2f}", f"{most['init_s']:.2f}", f"{step_ms:.1f}",
                          f"{most['peak_kib'] / 1024:.0f}", f"{stage['stage_mib']:.0f}"]), flush=True)
        claims.add(f"{world} ranks: the whole run, minutes", took / 60, report.at_most(MOST_MINUTES),
                   "within 80 (PrismLLM at 8,192 GPUs, second-hand)" if world == 8192 else None)
        claims.add(f"{world} ranks: bootstrap, s", most["bootstrap_s"], None,
                   "44.3 (PrismLLM, second-hand)" if world == 8192 else None)
        claims.add(f"{world} ranks: share of ranks that are real, per cent", 100 * len(REAL) / world, report.at_most(1.0),
                   "under 1 (PrismLLM)")


PARTS = {"accuracy": accuracy, "scale": scale}


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--ranks", [8, 16], [4], "of the job", nargs="+")
    parser.add_size("--models", list(MODELS), ["cnn"], "models", type=str, nargs="+", choices=list(MODELS), metavar="NAME")
    parser.add_size("--presets", ["clean"], ["clean"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--steps", 20, 8, "of training")
    parser.add_size("--repeats", 9, 3, "of each collective that is measured")
    parser.add_size("--worlds", [1024, 8192], [1024], "of two real ranks", nargs="+")
    parser.add_argument("--rate", default="200mbit", help="of hosts' links (200mbit)")
    parser.add_argument("--python", default="/usr/bin/python3", metavar="FILE", help="with torch (/usr/bin/python3, Debian's)")
    options = parser.parse_args()
    # As a lab does for its hosts.
    os.environ.setdefault("SPILLWAY_LIBRARY", str(report.BUILD / "lib/libspillway.so"))
    print(f"# Prism: few real ranks\n\n`experiments/prism/run.py{' --quick' * options.quick} --steps {options.steps} --rate "
          f"{options.rate}`")
    report.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
