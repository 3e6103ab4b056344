#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/train.py over emulated networks: time to the same accuracy and step times, over TCP and over Spillway.

  experiments/train_lab/run.py [--spillway BINARY] [--part congestion|slow|gray|clean] [--steps N] [--seeds N]

Needs root, or user namespaces, python3-torch, libopenblas0 and dataset-fashion-mnist. Prints Markdown; result.md is its
last output.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RANKS = 4
PYTHON = "/usr/bin/python3"  # Debian's, which Debian's torch belongs to


def script(backend, log, seed, steps):
    return [PYTHON, str(ROOT / "examples" / "train.py"), "--backend", backend, "--log", log, "--seed", str(seed),
            "--steps", str(steps), "--evaluate-every", "25", "--test-samples", "10000"]


def compare(options, network, transports, seed=1, steps=None):
    """The runs of one `spillway lab compare`, by transport."""
    with tempfile.TemporaryDirectory() as out:
        command = [options.spillway, "lab", "compare", *network, "--set", f"seed={seed}", "--transports", transports,
                   "--out", out, "--", *script("{backend}", "{log}", seed, steps or options.steps)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}")
        report = json.loads(pathlib.Path(out, "report.json").read_text())
    return {run["transport"]: run["metrics"] for run in report["runs"]}, report["target_accuracy"]


def on_this_machine(options, backend):
    """Without a lab, as torchrun would start it: p50 and p99 of the step times."""
    library = pathlib.Path(options.spillway).resolve().parent.parent / "lib" / "libspillway.so"
    launch = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511",
              "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python"), "SPILLWAY_LIBRARY": str(library)}
    with tempfile.NamedTemporaryFile() as log:
        command = script(backend, log.name, 1, options.steps // 3)
        ranks = [subprocess.Popen(command, env={**launch, "RANK": str(rank)}, stdout=subprocess.DEVNULL)
                 for rank in range(RANKS)]
        if any([rank.wait() for rank in ranks]):
            sys.exit(f"{' '.join(command)}: a rank failed")
        events = [json.loads(line) for line in open(log.name)]
    times = sorted(event["step_ms"] for event in events if event["event"] == "step")
    return {"step_p50_ms": statistics.median(times), "step_p99_ms": times[len(times) * 99 // 100]}


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def congestion(options, rate="1gbit"):
    print(f"\n## Congestion on links of {rate}: {options.steps} steps, 4 ranks\n\n"
          "| network | seed | step p50, TCP / Spillway ms | step p99 | p99 ratio | accuracy | s until then, TCP / Spillway | "
          "faster | final accuracy, TCP / Spillway |\n|---|---|---|---|---|---|---|---|---|")
    for preset in ("congested", "incast"):
        pairs = []
        for seed in range(1, options.seeds + 1):
            runs, target = compare(options, ["--preset", preset, "--rate", rate], "tcp,spillway", seed)
            tcp, ours = runs["tcp"], runs["spillway"]
            pairs.append((tcp, ours))
            print(f"| {preset} | {seed} | {tcp['step_p50_ms']:.0f} / {ours['step_p50_ms']:.0f} | "
                  f"{tcp['step_p99_ms']:.0f} / {ours['step_p99_ms']:.0f} | {ours['step_p99_ms'] / tcp['step_p99_ms']:.2f} | "
                  f"{100 * target:.1f} % | {tcp['seconds_to_target']:.1f} / {ours['seconds_to_target']:.1f} | "
                  f"{tcp['seconds_to_target'] / ours['seconds_to_target']:.2f} | "
                  f"{100 * tcp['final_accuracy']:.2f} / {100 * ours['final_accuracy']:.2f} % |", flush=True)
        faster = mean(tcp["seconds_to_target"] / ours["seconds_to_target"] for tcp, ours in pairs)
        points = mean(100 * (ours["final_accuracy"] - tcp["final_accuracy"]) for tcp, ours in pairs)
        print(f"| **{preset}** | mean | | | | | | **{faster:.2f}** | {points:+.2f} points |", flush=True)


def slow(options):
    """Where the network is the limit, and not the processors that all hosts of the lab share."""
    congestion(options, rate="200mbit")


def gray(options):
    """The two take turns: what else the machine does then falls on both."""
    print(f"\n## One host's link silently loses 1 %: {options.steps // 3} steps\n\n"
          "| transport | turn | p50, nothing lost / 1 % ms | ratio | p99 |\n|---|---|---|---|---|")
    for transport in ("spillway", "spillway-exact", "tcp"):
        ratios = []
        for turn in range(1, options.seeds + 1):
            whole, lossy = (compare(options, ["--preset", "gray", "--set", f"fault.share={share}"], transport,
                                    steps=options.steps // 3)[0][transport] for share in ("0%", "1%"))
            ratios.append(lossy["step_p50_ms"] / whole["step_p50_ms"])
            print(f"| {transport} | {turn} | {whole['step_p50_ms']:.0f} / {lossy['step_p50_ms']:.0f} | {ratios[-1]:.3f} | "
                  f"{whole['step_p99_ms']:.0f} / {lossy['step_p99_ms']:.0f} |", flush=True)
        print(f"| **{transport}** | mean | | **{mean(ratios):.3f}** | |", flush=True)


def clean(options):
    print(f"\n## Nothing wrong: exact Spillway beside Gloo over TCP, {options.steps // 3} steps\n\n"
          "| network | turn | p50, TCP / exact ms | ratio | p99 |\n|---|---|---|---|---|")
    networks = {"one machine, without the lab": None, "1 Gb/s": ["--preset", "clean"],
                "10 Gb/s": ["--preset", "clean", "--rate", "10gbit"],
                "10 Gb/s, MTU 9000": ["--preset", "clean", "--rate", "10gbit", "--mtu", "9000"]}
    for name, network in networks.items():
        for turn in range(1, options.seeds + 1):
            if network is None:
                tcp, ours = on_this_machine(options, "gloo"), on_this_machine(options, "spillway")
            else:
                runs = compare(options, network, "tcp,spillway-exact", steps=options.steps // 3)[0]
                tcp, ours = runs["tcp"], runs["spillway-exact"]
            print(f"| {name} | {turn} | {tcp['step_p50_ms']:.0f} / {ours['step_p50_ms']:.0f} | "
                  f"{ours['step_p50_ms'] / tcp['step_p50_ms']:.3f} | {tcp['step_p99_ms']:.0f} / {ours['step_p99_ms']:.0f} |",
                  flush=True)


PARTS = {"congestion": congestion, "slow": slow, "gray": gray, "clean": clean}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spillway", default=str(ROOT / "build" / "release" / "bin" / "spillway"))
    parser.add_argument("--part", choices=list(PARTS), help="only this one")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row, with seeds 1, 2, ...")
    options = parser.parse_args()
    print(f"# Training over emulated networks\n\n`experiments/train_lab/run.py --steps {options.steps} "
          f"--seeds {options.seeds}`")
    for name, part in PARTS.items():
        if options.part in (None, name):
            part(options)


if __name__ == "__main__":
    main()
