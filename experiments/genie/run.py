#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recorded training runs replayed as real traffic without their computation; and a job of 512 ranks on other
networks.

  experiments/genie/run.py [--quick] [--json FILE] [--part replay|whatif] [--models NAME...] [--ranks N...]
                           [--presets NAME...] [--steps N] [--rate RATE] [--python FILE]

replay: records examples/train.py in a lab and replays its trace there; needs root, or user namespaces, python3-torch,
libopenblas0, dataset-fashion-mnist and bible-kjv. whatif: simulates flows. Prints Markdown; result.md is its last
output.
"""
import json
import pathlib
import resource
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

MODELS = {  # arguments of examples/train.py: two networks, one also with half the computing per byte
    "cnn": ["--model", "cnn"],
    "cnn-small-batch": ["--model", "cnn", "--batch", "32"],
    "charlm": ["--model", "charlm"],
}
TRANSPORTS = {"Spillway": "udp", "TCP": "tcp"}  # by carrier; both run Spillway's collectives
TRIES = 2
MOST_MEAN, MOST_WORST = 3.0, 8.0  # per cent


# ---- replay ----

def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_lab(options, preset, ranks, carrier, variables, command):
    """The output of a command at every host of the lab, and the processor time of command and lab."""
    before = processor_s()
    told = [word for variable in (f"SPILLWAY_CARRIER={carrier}", "SPILLWAY_DEBUG=NONE", *variables)
            for word in ("--env", variable)]
    text = report.output_of([options.spillway, "lab", "run", "--preset", preset, "--hosts", str(ranks), "--rate",
                             options.rate, "--quiet", *told, "--", *command], TRIES)
    return text, processor_s() - before


def of_rank_0(text):
    """Rank 0's output, as JSON."""
    return json.loads("\n".join(line[len("[0] "):] for line in text.splitlines() if line.startswith("[0] ")))


def trained(options, model, ranks, preset, carrier, folder):
    """A run's seconds by the ranks' clocks, and its processor time. Leaves its trace in the folder."""
    _, processor = in_lab(options, preset, ranks, carrier, [f"SPILLWAY_EXECUTION_TRACE={folder}"],
                          [options.python, str(report.ROOT / "examples/train.py"), "--backend", "spillway", *MODELS[model],
                           "--steps", str(options.steps), "--test-samples", "64", "--threads", "1"])
    shown = json.loads(report.output_of([options.spillway, "emulate", "show", folder, "--json"]))
    return shown["span_us"] / 1e6, processor


def cell(options, model, ranks, preset, carrier):
    """A run, its replay, and the same run again, each as returned by trained()."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as again:
        real = trained(options, model, ranks, preset, carrier, first)
        text, processor = in_lab(options, preset, ranks, carrier, [],
                                 [options.spillway, "emulate", "run", "--trace", first, "--json"])
        replayed = of_rank_0(text)["replays"][0]["time_us"] / 1e6
        return real, (replayed, processor), trained(options, model, ranks, preset, carrier, again)


def replay(options, claims):
    print(f"\n## Replays\n\n{options.steps} steps of training at {options.rate}, recorded; their replay in the same network; and "
          "the same training once more, which says how far apart two runs are here. Milliseconds a step, all of the run "
          "counted; seconds of processor, the lab's included.\n")
    print(report.head(["model", "ranks", "network", "over", "trained", "replayed", "error", "trained again", "differs",
                       "processor, trained", "replayed"]))
    errors, apart, costs = [], [], []
    for model in options.models:
        for ranks in options.ranks:
            for preset in options.presets:
                for transport, carrier in TRANSPORTS.items():
                    (real, real_processor), (replayed, processor), (again, _) = cell(options, model, ranks, preset, carrier)
                    error, difference = (100 * (other / real - 1) for other in (replayed, again))
                    errors.append(abs(error))
                    apart.append(abs(difference))
                    costs.append((processor + 1e-9) / (real_processor + 1e-9))
                    each = 1e3 / options.steps
                    print(report.row([model, str(ranks), preset, transport, f"{each * real:.1f}", f"{each * replayed:.1f}",
                                      f"{error:+.1f} %", f"{each * again:.1f}", f"{difference:+.1f} %", f"{real_processor:.1f}",
                                      f"{processor:.1f}"]), flush=True)
                    claims.add(f"{model}, {ranks} ranks, {preset}, {transport}: error of the replay, per cent", error)
    claims.add("mean error of replays, per cent", statistics.mean(errors), report.at_most(MOST_MEAN))
    claims.add("worst error of replays, per cent", max(errors), report.at_most(MOST_WORST))
    claims.add("mean difference of two runs that are alike, per cent", statistics.mean(apart))
    claims.add("processor of a replay over that of training", statistics.geometric_mean(costs))


# ---- whatif ----

JOB = ["--tensor", "8", "--data", "64", "--layers", "32", "--hidden", "4096", "--node-ranks", "8"]  # 512 ranks
WAYS = {
    "TCP, ring": ["--transport", "tcp", "--algorithm", "ring"],
    "TCP, ring, fp16": ["--transport", "tcp", "--algorithm", "ring", "--bits", "16"],
    "Spillway exact, ring": ["--algorithm", "ring"],
    "Spillway exact": [],
    "planes, 5 bits": ["--bits", "5"],
    "entropy, 4 bits": ["--bits", "4"],
    "levels, added by switches": ["--bits", "8", "--algorithm", "switch"],
}
RATES = ("10gbit", "25gbit", "100gbit")
OVERSUBSCRIPTIONS = (1, 4)


def whatif(options, claims):
    print("\n## What if: a step of 512 ranks, data and tensor parallel, in ms\n\n"
          f"`spillway emulate simulate {' '.join(JOB)} --rate RATE --oversubscription N ...`, as flows: no queues, no loss.\n")
    print(report.head(["over", *(f"{rate}, {share}:1" for share in OVERSUBSCRIPTIONS for rate in RATES)]))
    for way, arguments in WAYS.items():
        times = []
        for share in OVERSUBSCRIPTIONS:
            for rate in RATES:
                found = json.loads(report.output_of([options.spillway, "emulate", "simulate", *JOB, *arguments, "--rate", rate,
                                                     "--oversubscription", str(share), "--json"]))
                times.append(found["time_us"] / 1e3)
                claims.add(f"512 ranks, {rate}, {share}:1, {way}: step, ms", times[-1])
        print(report.row([way, *(f"{time:.0f}" for time in times)]), flush=True)


PARTS = {"replay": replay, "whatif": whatif}


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--models", list(MODELS), ["cnn"], "models", type=str, nargs="+", choices=list(MODELS), metavar="NAME")
    parser.add_size("--ranks", [4, 8], [4], "hosts of the lab", nargs="+")
    parser.add_size("--presets", ["clean", "congested", "oversubscribed"], ["clean"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--steps", 12, 6, "of training")
    parser.add_argument("--rate", default="200mbit", help="of hosts' links (200mbit)")
    parser.add_argument("--python", default="/usr/bin/python3", metavar="FILE", help="with torch (/usr/bin/python3, Debian's)")
    options = parser.parse_args()
    print(f"# Genie: replays\n\n`experiments/genie/run.py{' --quick' * options.quick} --steps {options.steps} --rate {options.rate}`")
    report.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
