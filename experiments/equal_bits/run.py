#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of examples/train.py at equal bits: Spillway against TCP cubic and bbr, and against TCP with torch's fp16
hook.

  experiments/equal_bits/run.py [--quick] [--json FILE] [--part slow|fast] [--presets NAME...] [--steps N] [--rounds N]

slow is 250 Mb/s, where the network is the limit; fast is 1 Gb/s, where two cores are. Needs root, or user namespaces,
python3-torch, libopenblas0 and dataset-fashion-mnist. Prints Markdown; result.md is its last full output.
"""
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

RANKS = 4
PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
PRESETS = ("clean", "congested", "incast", "oversubscribed", "gray", "wan")  # the last at 250 Mb/s only
TRANSPORTS = ("tcp", "tcp-bbr", "tcp-fp16", "spillway-exact", "spillway-16", "spillway", "spillway-over-tcp")
BITS = {"tcp": 32, "tcp-bbr": 32, "tcp-fp16": 16, "spillway-exact": 32, "spillway-16": 16, "spillway": 5,
        "spillway-over-tcp": 5}
SLOW, FAST = "250mbit", "1000mbit"
WAN = "500mbit"  # a fixed rate. A step over cubic takes ten seconds there,
WAN_SHARE = 6    # so it gets one step per so many elsewhere
TRIES = 3        # torch 1.13's Gloo sometimes aborts when its process ends
FRAME, SEGMENT = 1538, 1448  # bytes of an Ethernet frame on the wire, and of TCP's data in it
BETTER_THAN_CUBIC = ("congested", "gray")


def compare(options, preset, rate, steps):
    """The runs of one `spillway lab compare` by transport, its notes, and the model's number of parameters."""
    with tempfile.TemporaryDirectory() as out:
        command = [options.spillway, "lab", "compare", "--preset", preset, "--rate", rate, "--rounds", str(options.rounds),
                   "--transports", ",".join(TRANSPORTS), "--out", out, "--", PYTHON,
                   str(report.ROOT / "examples/train.py"), "--backend", "{backend}", "--log", "{log}", "--steps", str(steps),
                   "--evaluate-every", str(steps)]
        report.output_of(command, TRIES)
        found = json.loads(pathlib.Path(out, "report.json").read_text())
        log = pathlib.Path(found["runs"][0]["log"]).read_text().splitlines()
    return {run["transport"]: run["metrics"] for run in found["runs"]}, found["notes"], json.loads(log[-1])["parameters"]


def bound_ms(parameters, bits, rate):
    """The time that a host's link needs for its share of an all-reduce in full TCP segments; no transport is faster."""
    size = parameters * bits / 8 * 2 * (RANKS - 1) / RANKS
    return size * FRAME / SEGMENT * 8 / (int(rate.removesuffix("mbit")) * 1e6) * 1e3


def claims_of(preset, rate, runs, claims):
    name = f"{preset}, {rate}"
    p50 = {transport: metrics["step_p50_ms"] for transport, metrics in runs.items()}
    claims.add(f"{name}: exact over the better TCP, median step", p50["spillway-exact"] / min(p50["tcp"], p50["tcp-bbr"]),
               report.at_most(1.0))
    if preset in BETTER_THAN_CUBIC:
        claims.add(f"{name}: exact over cubic, median step", p50["spillway-exact"] / p50["tcp"], report.at_most(0.9))
    claims.add(f"{name}: 16 bits over cubic with fp16, median step", p50["spillway-16"] / p50["tcp-fp16"],
               report.at_most(0.85))
    claims.add(f"{name}: 5 bits over cubic with fp16, median step", p50["spillway"] / p50["tcp-fp16"],
               report.at_most(0.45))
    claims.add(f"{name}: 5 bits over cubic, p99 of a step", runs["spillway"]["step_p99_ms"] / runs["tcp"]["step_p99_ms"],
               report.at_most(0.333))


def measure(options, claims, rate):
    print(f"\n## Links of {rate}: {options.steps} steps, {RANKS} ranks\n\nMedian step, its p99, the longest of the first "
          "steps (which are in neither), in ms; what the links alone need for so many bits; how much of the time the "
          "busiest link was in use; packets trimmed and lost.\n")
    print(report.head(["network", "transport", "p50", "p99", "first", "bound", "link use", "trimmed", "lost"]))
    notes = []
    for preset in options.presets:
        if preset == "wan" and rate != SLOW:
            continue
        own_rate = WAN if preset == "wan" else rate
        steps = max(options.steps // WAN_SHARE, 5) if preset == "wan" else options.steps
        runs, noted, parameters = compare(options, preset, own_rate, steps)
        notes += [f"{preset}: {note}" for note in noted]
        for transport, metrics in runs.items():
            print(report.row([preset, transport, *(f"{metrics[key]:.0f}" for key in
                                                   ("step_p50_ms", "step_p99_ms", "step_first_ms")),
                              f"{bound_ms(parameters, BITS[transport], own_rate):.0f}",
                              f"{100 * metrics['link_use']:.0f} %", f"{metrics['trimmed_packets']:.0f}",
                              f"{metrics['lost_packets']:.0f}"]), flush=True)
        claims_of(preset, own_rate, runs, claims)
    print("".join(f"\n- {note}" for note in notes))


def slow(options, claims):
    measure(options, claims, SLOW)


def fast(options, claims):
    measure(options, claims, FAST)


PARTS = {"slow": slow, "fast": fast}


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--presets", list(PRESETS), ["incast"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--steps", 60, 8, "of training")
    parser.add_size("--rounds", 1, 1, "of each transport; they take turns")
    options = parser.parse_args()
    print(f"# At equal bits\n\n`experiments/equal_bits/run.py{' --quick' * options.quick} --steps {options.steps} --rounds "
          f"{options.rounds}`")
    parts = {"slow": slow} if options.quick and options.part is None else PARTS
    report.run_parts(parts, options)


if __name__ == "__main__":
    main()
