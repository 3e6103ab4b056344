#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of examples/train.py whose next forward pass overlaps with gradients that still travel (--overlap), against
DistributedDataParallel over Spillway and over Gloo. Everything is exact.

  experiments/overlap/run.py [--quick] [--json FILE] [--models NAME...] [--presets NAME...] [--ratios R...]
                             [--rate N] [--steps N] [--rounds N] [--python FILE]

A ratio is communication over computation; it sets the batch. Needs root, or user namespaces, python3-torch,
libopenblas0 and dataset-fashion-mnist. Prints Markdown; result.md is its last full output.
"""
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

RANKS = 4
MODELS = ("deep", "vgg")
PRESETS = ("clean", "congested", "oversubscribed")
FRAME, SEGMENT = 1538, 1448  # bytes of an Ethernet frame on the wire, and of TCP's data in it
FIRST_BATCH = 256
SAMPLES = 60_000             # of Fashion-MNIST: a batch has at most so many
TRIES = 3                    # torch 1.13's Gloo sometimes aborts when its process ends
WITH_DDP = "tcp,spillway-exact"
OVERLAPPED = "tcp,spillway,spillway-flat"  # exact by a variable: only `spillway` has a twin without priority
LEVEL = (0.97, 1.03)         # transports are level if DDP's steps over them are so similar
GAIN, NO_LOSS = 1.15, 0.98


def compare(options, preset, model, batch, transports, script=()):
    """The median step by transport."""
    with tempfile.TemporaryDirectory() as out:
        command = [options.spillway, "lab", "compare", "--preset", preset, "--rate", f"{options.rate}mbit", "--rounds", str(options.rounds),
                   "--env", "SPILLWAY_CODEC=exact", "--transports", transports, "--out", out, "--", options.python,
                   str(report.ROOT / "examples/train.py"), "--backend", "{backend}", "--log", "{log}", "--model", model,
                   "--batch", str(batch), "--steps", str(options.steps), "--epochs", str(options.steps),
                   "--evaluate-every", str(options.steps), "--test-samples", str(RANKS), *script]
        report.output_of(command, TRIES)
        found = json.loads(pathlib.Path(out, "report.json").read_text())
    return {run["transport"]: run["metrics"]["step_p50_ms"] for run in found["runs"]}


def computing(options, model, batch):
    """The median step of all ranks at once, without communication, and the model's number of parameters."""
    found = report.output_of([options.python, str(HERE / "computing.py"), "--model", model, "--batch", str(batch), "--steps",
                              str(options.steps), "--ranks", str(RANKS)])
    return json.loads(found)["step_ms"], json.loads(found)["parameters"]


def communication_ms(options, parameters):
    """The time that a host's link needs for its share of an all-reduce in full TCP segments."""
    size = 4 * parameters * 2 * (RANKS - 1) / RANKS
    return size * FRAME / SEGMENT * 8 / (options.rate * 1e6) * 1e3


def batch_for(options, ratio, first_ms, parameters):
    """The batch whose computation takes communication / ratio, if computation grows with it."""
    batch = FIRST_BATCH * communication_ms(options, parameters) / ratio / first_ms
    return RANKS * max(1, min(round(batch / RANKS), SAMPLES // RANKS))


def claims_of(name, ddp, overlap, claims):
    is_level = LEVEL[0] <= ddp["spillway-exact"] / ddp["tcp"] <= LEVEL[1]
    bar = report.at_least(GAIN if is_level else NO_LOSS)
    claims.add(f"{name}: DDP over overlap, both over Spillway, median step", ddp["spillway-exact"] / overlap["spillway"], bar)
    claims.add(f"{name}: DDP over Gloo over overlap over Spillway, median step", ddp["tcp"] / overlap["spillway"], bar)
    claims.add(f"{name}: DDP over overlap without priority, both over Spillway, median step",
               ddp["spillway-exact"] / overlap["spillway-flat"])
    claims.add(f"{name}: DDP over overlap, both over Gloo, median step", ddp["tcp"] / overlap["tcp"])


def measure(options, claims):
    print("Median steps in ms. The ratio is communication over computation; computing is a step without communication.\n")
    print(report.head(["model", "ratio", "batch", "computing", "network", "DDP, Gloo", "DDP, Spillway", "overlap, Gloo",
                       "overlap, without priority", "overlap, Spillway"]))
    for model in options.models:
        first_ms, parameters = computing(options, model, FIRST_BATCH)
        for ratio in options.ratios:
            batch = batch_for(options, ratio, first_ms, parameters)
            step_ms, _ = computing(options, model, batch)
            for preset in options.presets:
                ddp = compare(options, preset, model, batch, WITH_DDP)
                overlap = compare(options, preset, model, batch, OVERLAPPED, ["--overlap"])
                times = (ddp["tcp"], ddp["spillway-exact"], overlap["tcp"], overlap["spillway-flat"], overlap["spillway"])
                print(report.row([model, f"{ratio:g}", str(batch), f"{step_ms:.0f}", preset,
                                  *(f"{time:.0f}" for time in times)]), flush=True)
                claims_of(f"{model}, ratio {ratio:g}, {preset}", ddp, overlap, claims)


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_size("--models", list(MODELS), ["deep"], "of examples/train.py", type=str, nargs="+", choices=MODELS,
                    metavar="NAME")
    parser.add_size("--presets", list(PRESETS), ["clean"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--ratios", [0.5, 1.0, 2.0], [2.0], "communication over computation", type=float, nargs="+", metavar="R")
    parser.add_size("--rate", 250, 50, "of the links, in Mb/s")
    parser.add_size("--steps", 40, 5, "of training")
    parser.add_size("--rounds", 2, 1, "of each transport; they take turns")
    parser.add_argument("--python", default="/usr/bin/python3", metavar="FILE", help="with torch (/usr/bin/python3, Debian's)")
    options = parser.parse_args()
    print(f"# Overlap with the next forward pass\n\n`experiments/overlap/run.py{' --quick' * options.quick} --rate "
          f"{options.rate} --steps {options.steps} --rounds {options.rounds}`\n")
    claims = report.Claims(options.quick)
    measure(options, claims)
    claims.finish(options)


if __name__ == "__main__":
    main()
