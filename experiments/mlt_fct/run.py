#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MLT's table: flow completion times of Spillway against DCTCP, and where the gain comes from.

  experiments/mlt_fct/run.py [--spillway BINARY] [--quick]

Prints Markdown; result.md is its last output. --quick shrinks the tensors tenfold.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

DCTCP = ["job.protocol=dctcp", "switch.mode=ecn", "switch.priorities=1"]

WORKLOADS = [
    ("9 MB per worker, sharded over all servers (62.5 kB a shard)", ["job.bytes=9MB"]),
    ("1 MB per worker, sharded over all servers (6.9 kB a shard)", ["job.bytes=1MB"]),
    (
        "9 MB per worker, each server with its own three workers (2.25 MB a message)",
        ["job.bytes=9MB", "job.grouped=yes", "job.unsolicited=64k"],
    ),
]
RIVALS = [
    ("DCTCP, minimum RTO 1 ms", ["job.rto-min=1ms"]),
    ("DCTCP, minimum RTO 10 ms", ["job.rto-min=10ms"]),
    ("DCTCP, minimum RTO 200 ms", ["job.rto-min=200ms"]),
    ("DCTCP, 200 ms, tail loss probe", ["job.rto-min=200ms", "job.tail-loss-probe=yes"]),
]

VARIANTS = [
    ("Spillway", []),
    ("with selective dropping", ["switch.early-drop=300k"]),
    ("without priorities", ["switch.priorities=1"]),
    ("loss bound 0", ["job.loss=0%"]),
    ("trimming fabric (256 B)", ["switch.trim=256"]),
    ("DCTCP-like window", ["job.controller=dctcp"]),
    ("TIMELY-like window", ["job.controller=timely"]),
    ("without credit", ["job.unsolicited=100MB"]),
    ("without credit, selective dropping", ["job.unsolicited=100MB", "switch.early-drop=300k"]),
    ("without credit, without priorities", ["job.unsolicited=100MB", "switch.priorities=1"]),
    ("without credit, trimming fabric", ["job.unsolicited=100MB", "switch.trim=256"]),
]

# Few large flows, where one path or many makes the difference.
PERMUTATION = ["job.pattern=permutation", "job.bytes=10MB", "job.unsolicited=128k", "job.packet=4068"]
PATHS = [
    ("Spillway, 1 path (per-flow ECMP)", ["job.paths=1"]),
    ("Spillway, 4 paths", ["job.paths=4"]),
    ("Spillway, 16 paths", ["job.paths=16"]),
    ("Spillway, 64 paths", ["job.paths=64"]),
    ("Spillway, switches spread packets", ["job.paths=1", "topology.spreading=packet"]),
    ("DCTCP, per-flow ECMP", DCTCP + ["job.rto-min=10ms"]),
]


def simulate(spillway, settings):
    command = [spillway, "sim", "run", str(HERE / "mlt_fct.scn"), "--json"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    result = json.loads(done.stdout)
    if not result["finished"]:
        sys.exit(f"{' '.join(command)}: flows were left when the limit came")
    return result["jobs"][0]


def milliseconds(us):
    return f"{us / 1000:.3g}"


def change(ours, theirs):
    return f"{100 * (ours / theirs - 1):+.0f} %"


def compare_with_dctcp(spillway, workload):
    ours = simulate(spillway, workload)
    completion = ours["completion"]
    print("| | mean ms | p50 | p99 | max | makespan | timeouts | Spillway's mean | Spillway's p99 |")
    print("|---|---|---|---|---|---|---|---|---|")

    def row(name, job, mean, p99):
        times = [milliseconds(job["completion"][key]) for key in ("mean_us", "p50_us", "p99_us", "max_us")]
        cells = [name, *times, milliseconds(job["makespan_us"]), str(job["timeouts"]), mean, p99]
        print("| " + " | ".join(cells) + " |", flush=True)

    row("Spillway, 1 % bound", ours, "", "")
    for name, settings in RIVALS:
        theirs = simulate(spillway, DCTCP + workload + settings)
        row(
            name,
            theirs,
            change(completion["mean_us"], theirs["completion"]["mean_us"]),
            change(completion["p99_us"], theirs["completion"]["p99_us"]),
        )


def show_where_it_comes_from(spillway, workload):
    print("| | mean ms | p99 | front layer mean | back layer mean | makespan | lost | resent | trimmed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, settings in VARIANTS:
        job = simulate(spillway, settings + workload)
        layers = sorted(job["by_priority"], key=lambda layer: layer["priority"])
        percent = [f"{100 * job[key] / max(job['sent'], 1):.2f} %" for key in ("missing", "resent", "trimmed")]
        cells = [
            name,
            milliseconds(job["completion"]["mean_us"]),
            milliseconds(job["completion"]["p99_us"]),
            milliseconds(layers[-1]["completion"]["mean_us"]),
            milliseconds(layers[0]["completion"]["mean_us"]),
            milliseconds(job["makespan_us"]),
            *percent,
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def compare_paths(spillway):
    print("| | mean ms | p50 | p99 | makespan | over the ideal | marked | lost |")
    print("|---|---|---|---|---|---|---|---|")
    for name, settings in PATHS:
        job = simulate(spillway, PERMUTATION + settings)
        times = [milliseconds(job["completion"][key]) for key in ("mean_us", "p50_us", "p99_us")]
        percent = [f"{100 * job[key] / max(job['sent'], 1):.2f} %" for key in ("arrived_marked", "missing")]
        cells = [name, *times, milliseconds(job["makespan_us"]), f"{job['slowdown']:.2f}", *percent]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spillway", default=str(ROOT / "build/release/bin/spillway"))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    workloads = [("900 kB per worker", ["job.bytes=900k"])] if options.quick else WORKLOADS
    for name, workload in workloads:
        print(f"## {name}\n")
        compare_with_dctcp(options.spillway, workload)
        print()
    name, workload = workloads[0]
    print(f"## What each part does: {name}\n")
    show_where_it_comes_from(options.spillway, workload)
    if not options.quick:
        print("\n## Paths: a permutation of 10 MB flows on the same fabric\n")
        compare_paths(options.spillway)


if __name__ == "__main__":
    main()
