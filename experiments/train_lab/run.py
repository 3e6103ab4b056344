#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/train.py over emulated networks: time to equal accuracy and step times, over TCP and over Spillway.

  experiments/train_lab/run.py [--quick] [--json FILE] [--part congestion|slow|gray|clean] [--steps N] [--seeds N]

Needs root, or user namespaces, python3-torch, libopenblas0 and dataset-fashion-mnist. Prints Markdown; result.md is
its last full output.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

RANKS = 4
PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
PRESETS = ("congested", "incast")
TRANSPORTS = ("spillway", "spillway-exact", "tcp")
NETWORKS = {"one machine, without the lab": None,
            "250 Mb/s": ["--preset", "clean"],
            "10 Gb/s": ["--preset", "clean", "--rate", "10gbit"],
            "10 Gb/s, MTU 9000": ["--preset", "clean", "--rate", "10gbit", "--mtu", "9000"]}
QUICK_PRESETS, QUICK_TRANSPORTS, QUICK_NETWORKS = ("incast",), ("spillway",), ("250 Mb/s",)
SPEED_UP = "MLT: 12 to 62.2 % faster; DLCP: up to 84.3 %"


def script(backend, log, seed, steps):
    return [PYTHON, str(report.ROOT / "examples/train.py"), "--backend", backend, "--log", log, "--seed", str(seed),
            "--steps", str(steps), "--evaluate-every", "25", "--test-samples", "10000"]


def compare(options, network, transports, seed=1, steps=None):
    """The runs of one `spillway lab compare`, by transport."""
    with tempfile.TemporaryDirectory() as out:
        report.output_of([options.spillway, "lab", "compare", *network, "--set", f"seed={seed}", "--transports", transports,
                          "--out", out, "--", *script("{backend}", "{log}", seed, steps or options.steps)])
        found = json.loads(pathlib.Path(out, "report.json").read_text())
    return {run["transport"]: run["metrics"] for run in found["runs"]}, found["target_accuracy"]


def on_this_machine(options, backend):
    """p50 and p99 of the step times without a lab, started as torchrun does."""
    library = pathlib.Path(options.spillway).resolve().parent.parent / "lib" / "libspillway.so"
    launch = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511",
              "OMP_NUM_THREADS": "1", "PYTHONPATH": str(report.ROOT / "python"), "SPILLWAY_LIBRARY": str(library)}
    with tempfile.NamedTemporaryFile() as log:
        command = script(backend, log.name, 1, options.steps // 3)
        ranks = [subprocess.Popen(command, env={**launch, "RANK": str(rank)}, stdout=subprocess.DEVNULL)
                 for rank in range(RANKS)]
        if any([rank.wait() for rank in ranks]):
            sys.exit(f"{' '.join(command)}: a rank failed")
        events = [json.loads(line) for line in open(log.name)]
    times = sorted(event["step_ms"] for event in events if event["event"] == "step")
    return {"step_p50_ms": statistics.median(times), "step_p99_ms": times[len(times) * 99 // 100]}


def steps_of(first, second, key):
    return f"{first[key]:.0f} / {second[key]:.0f}"


def congestion(options, claims, rate="1gbit"):
    print(f"\n## Congestion on links of {rate}: {options.steps} steps, {RANKS} ranks\n")
    print(report.head(["network", "seed", "step p50, TCP / Spillway ms", "step p99", "p99 ratio", "accuracy",
                       "s until then, TCP / Spillway", "faster", "final accuracy, TCP / Spillway"]))
    for preset in QUICK_PRESETS if options.quick else PRESETS:
        pairs = []
        for seed in range(1, options.seeds + 1):
            runs, target = compare(options, ["--preset", preset, "--rate", rate], "tcp,spillway", seed)
            tcp, ours = runs["tcp"], runs["spillway"]
            pairs.append({"faster": tcp["seconds_to_target"] / ours["seconds_to_target"],
                          "p99": ours["step_p99_ms"] / tcp["step_p99_ms"],
                          "points": 100 * (ours["final_accuracy"] - tcp["final_accuracy"])})
            print(report.row([preset, str(seed), steps_of(tcp, ours, "step_p50_ms"), steps_of(tcp, ours, "step_p99_ms"),
                              f"{pairs[-1]['p99']:.2f}", f"{100 * target:.1f} %",
                              f"{tcp['seconds_to_target']:.1f} / {ours['seconds_to_target']:.1f}",
                              f"{pairs[-1]['faster']:.2f}",
                              f"{100 * tcp['final_accuracy']:.2f} / {100 * ours['final_accuracy']:.2f} %"]), flush=True)
        faster, p99, points = (statistics.fmean(pair[key] for pair in pairs) for key in ("faster", "p99", "points"))
        print(report.row([f"**{preset}**", "mean", "", "", "", "", "", f"**{faster:.2f}**", f"{points:+.2f} points"]),
              flush=True)
        name = f"training, {preset}, {rate}"
        claims.add(f"{name}: time to the same accuracy, TCP's over ours", faster, report.at_least(1.6), SPEED_UP)
        claims.add(f"{name}: p99 of a step over TCP's", p99, report.at_most(0.333))
        claims.add(f"{name}: points of final accuracy from the lossless run", points, report.at_least(-0.5))


def slow(options, claims):
    """The network is the limit here, not the processors that all hosts of the lab share."""
    congestion(options, claims, rate="200mbit")


def gray(options, claims):
    """The transports alternate, so that other load on the machine affects both."""
    steps = options.steps // 3
    print(f"\n## One host's link silently loses 1 %: {steps} steps\n")
    print(report.head(["transport", "turn", "p50, nothing lost / 1 % ms", "ratio", "p99"]))
    for transport in QUICK_TRANSPORTS if options.quick else TRANSPORTS:
        ratios = []
        for turn in range(1, options.seeds + 1):
            whole, lossy = (compare(options, ["--preset", "gray", "--set", f"fault.share={share}"], transport,
                                    steps=steps)[0][transport] for share in ("0%", "1%"))
            ratios.append(lossy["step_p50_ms"] / whole["step_p50_ms"])
            print(report.row([transport, str(turn), steps_of(whole, lossy, "step_p50_ms"), f"{ratios[-1]:.3f}",
                              steps_of(whole, lossy, "step_p99_ms")]), flush=True)
        ratio = statistics.fmean(ratios)
        print(report.row([f"**{transport}**", "mean", "", f"**{ratio:.3f}**", ""]), flush=True)
        claims.add(f"training over {transport}, one link silently loses 1 %: p50 of a step over that without loss", ratio,
                   report.at_most(1.05) if transport == "spillway" else None,
                   "MLT: 0.01 to 1 % on one worker's link, no figure for steps")


def clean(options, claims):
    steps = options.steps // 3
    print(f"\n## Nothing wrong: exact Spillway beside Gloo over TCP, {steps} steps\n")
    print(report.head(["network", "turn", "p50, TCP / exact ms", "ratio", "p99"]))
    for name in QUICK_NETWORKS if options.quick else NETWORKS:
        ratios = []
        for turn in range(1, options.seeds + 1):
            if NETWORKS[name] is None:
                tcp, ours = on_this_machine(options, "gloo"), on_this_machine(options, "spillway")
            else:
                runs = compare(options, NETWORKS[name], "tcp,spillway-exact", steps=steps)[0]
                tcp, ours = runs["tcp"], runs["spillway-exact"]
            ratios.append(ours["step_p50_ms"] / tcp["step_p50_ms"])
            print(report.row([name, str(turn), steps_of(tcp, ours, "step_p50_ms"), f"{ratios[-1]:.3f}",
                              steps_of(tcp, ours, "step_p99_ms")]), flush=True)
        claims.add(f"training, exact, nothing wrong, {name}: p50 of a step over Gloo's", statistics.fmean(ratios),
                   report.at_most(1.03))


PARTS = {"congestion": congestion, "slow": slow, "gray": gray, "clean": clean}
QUICK_PARTS = ("congestion", "gray")


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--steps", 300, 60, "of training; a third of them where nothing is learnt")
    parser.add_size("--seeds", 3, 1, "runs of each row, with seeds 1, 2, ...")
    options = parser.parse_args()
    print(f"# Training over emulated networks\n\n`experiments/train_lab/run.py{' --quick' * options.quick} --steps "
          f"{options.steps} --seeds {options.seeds}`")
    parts = {name: PARTS[name] for name in QUICK_PARTS} if options.quick and options.part is None else PARTS
    report.run_parts(parts, options)


if __name__ == "__main__":
    main()
