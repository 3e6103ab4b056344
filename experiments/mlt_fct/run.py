#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MLT's table: flow completion times of Spillway against DCTCP, and the source of the gain.

  experiments/mlt_fct/run.py [--quick] [--json FILE]

Prints Markdown; result.md is its last full output. --quick shrinks the tensors tenfold and skips the paths.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

MLT_MEAN, MLT_P99 = -43.1, -91.8  # per cent, against DCTCP

DCTCP = ["job.protocol=dctcp", "switch.mode=ecn", "switch.priorities=1"]

WORKLOADS = [
    ("9 MB per worker, sharded over all servers (62.5 kB a shard)", ["job.bytes=9MB"]),
    ("1 MB per worker, sharded over all servers (6.9 kB a shard)", ["job.bytes=1MB"]),
    (
        "9 MB per worker, each server with its own three workers (2.25 MB a message)",
        ["job.bytes=9MB", "job.grouped=yes", "job.unsolicited=64k"],
    ),
]
QUICK_WORKLOADS = [("900 kB per worker", ["job.bytes=900k"])]
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
    ("loss bound 0", ["job.loss-bound=0%"]),
    ("trimming fabric (256 B)", ["switch.trim=256"]),
    ("without credit", ["job.unsolicited=100MB"]),
    ("without credit, selective dropping", ["job.unsolicited=100MB", "switch.early-drop=300k"]),
    ("without credit, without priorities", ["job.unsolicited=100MB", "switch.priorities=1"]),
    ("without credit, trimming fabric", ["job.unsolicited=100MB", "switch.trim=256"]),
]

# Few large flows, for which it matters whether there is one path or many.
PERMUTATION = ["job.pattern=permutation", "job.bytes=10MB", "job.unsolicited=128k", "job.packet=4068"]
ONE_PATH, SIXTEEN_PATHS = "Spillway, 1 path (per-flow ECMP)", "Spillway, 16 paths"
PATHS = [
    (ONE_PATH, ["job.paths=1"]),
    ("Spillway, 4 paths", ["job.paths=4"]),
    (SIXTEEN_PATHS, ["job.paths=16"]),
    ("Spillway, 64 paths", ["job.paths=64"]),
    ("Spillway, switches spread packets", ["job.paths=1", "topology.spreading=packet"]),
    ("DCTCP, per-flow ECMP", DCTCP + ["job.rto-min=10ms"]),
]


def simulate(options, settings):
    command = [options.spillway, "sim", "run", str(HERE / "mlt_fct.scn"), "--json"]
    for setting in settings:
        command += ["--set", setting]
    result = json.loads(report.output_of(command))
    if not result["finished"]:
        sys.exit(f"{' '.join(command)}: flows were left when the limit came")
    return result["jobs"][0]


def milliseconds(us):
    return f"{us / 1000:.3g}"


def times_of(job, *keys):
    return [milliseconds(job["completion"][key]) for key in keys]


def shares_of(job, *keys):
    return [report.per_cent(job[key], job["sent"]) for key in keys]


def change(ours, theirs, key):
    """Change from theirs to ours, in per cent."""
    return 100 * (ours["completion"][key] / theirs["completion"][key] - 1)


def compare_with_dctcp(options, claims, title, workload):
    print(report.head(["", "mean ms", "p50", "p99", "max", "makespan", "timeouts", "Spillway's mean", "Spillway's p99"]))

    def show(name, job, *changes):
        print(report.row([name, *times_of(job, "mean_us", "p50_us", "p99_us", "max_us"), milliseconds(job["makespan_us"]),
                          str(job["timeouts"]), *changes]), flush=True)

    ours = simulate(options, workload)
    show("Spillway, 1 % bound", ours, "", "")
    for name, settings in RIVALS:
        theirs = simulate(options, DCTCP + workload + settings)
        mean, p99 = change(ours, theirs, "mean_us"), change(ours, theirs, "p99_us")
        show(name, theirs, f"{mean:+.0f} %", f"{p99:+.0f} %")
        for what, found, floor in (("mean", mean, MLT_MEAN), ("p99", p99, MLT_P99)):
            claims.add(f"{title}; {what} of completion from that of {name}, per cent", found, report.at_most(floor),
                       f"MLT: {floor} %")


def show_where_it_comes_from(options, workload):
    print(report.head(["", "mean ms", "p99", "front layer mean", "back layer mean", "makespan", "lost", "resent",
                       "trimmed"]))
    for name, settings in VARIANTS:
        job = simulate(options, settings + workload)
        layers = sorted(job["by_priority"], key=lambda layer: layer["priority"])
        print(report.row([name, *times_of(job, "mean_us", "p99_us"), *times_of(layers[-1], "mean_us"),
                          *times_of(layers[0], "mean_us"), milliseconds(job["makespan_us"]),
                          *shares_of(job, "missing", "resent", "trimmed")]), flush=True)


def compare_paths(options, claims):
    print(report.head(["", "mean ms", "p50", "p99", "makespan", "over the ideal", "marked", "lost"]))
    jobs = {}
    for name, settings in PATHS:
        job = jobs[name] = simulate(options, PERMUTATION + settings)
        print(report.row([name, *times_of(job, "mean_us", "p50_us", "p99_us"), milliseconds(job["makespan_us"]),
                          f"{job['slowdown']:.2f}", *shares_of(job, "arrived_marked", "missing")]), flush=True)
    claims.add("a permutation of large flows; p99 of completion, 16 paths from 1, per cent",
               change(jobs[SIXTEEN_PATHS], jobs[ONE_PATH], "p99_us"),
               paper="MLT and DLCP spread packets: no figure of its own")


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    options = parser.parse_args()
    claims = report.Claims(options.quick)
    workloads = QUICK_WORKLOADS if options.quick else WORKLOADS
    for title, workload in workloads:
        print(f"## {title}\n")
        compare_with_dctcp(options, claims, title, workload)
        print()
    title, workload = workloads[0]
    print(f"## What each part does: {title}\n")
    show_where_it_comes_from(options, workload)
    if not options.quick:
        print("\n## Paths: a permutation of 10 MB flows on the same fabric\n")
        compare_paths(options, claims)
    claims.finish(options)


if __name__ == "__main__":
    main()
