#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces over an emulated network: exact against the links' limit, tolerant against Gloo, and with late ranks.

  experiments/allreduce_lab/run.py [--quick] [--json FILE] [--part exact|tolerant|late]

Needs root, or user namespaces, and python3-torch for Gloo. Prints Markdown; result.md is its last full output.
"""
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

RATE_MBIT = 250  # of the preset clean; given as --rate, so that the lab keeps it and the bound is right
EXACT = [(mtu, ranks, size) for mtu in (1500, 9000) for ranks in (4, 8) for size in (4, 16)]  # size in MB
TOLERANT = [(preset, size, iterations) for preset in ("congested", "incast")
            for size, iterations in (("256K", 200), ("1M", 150), ("4M", 60))]
QUICK_EXACT = [(9000, 4, 4)]
QUICK_TOLERANT = [("congested", "1M", 40), ("incast", "1M", 40)]
COMPUTE_MS = 50
CATCHING_UP = 10  # steps


def lab(options, network, command):
    return report.output_of([options.spillway, "lab", "run", "--quiet", *network, "--", *command])


def bench(options, network, *arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        lab(options, network, [options.spillway, "bench", "allreduce", "-I", "-J", file.name, *arguments])
        return json.loads(pathlib.Path(file.name).read_text())["results"][0]


def bound_ms(ranks, size, mtu):
    """The links' limit: each carries 2 (n - 1) / n of the tensor each way, as full Ethernet frames of UDP."""
    return 2 * (ranks - 1) / ranks * size * 8 / (RATE_MBIT * 1e6) * 1e3 * (mtu + 38) / (mtu - 28)


def exact(options, claims):
    print("\n## Exact, nothing wrong\n")
    print(report.head(["MTU", "ranks", "MB", "p50 ms", "the links' bound ms", "ratio"]))
    for mtu, ranks, size in QUICK_EXACT if options.quick else EXACT:
        found = bench(options, ["--preset", "clean", "--rate", f"{RATE_MBIT}mbit", "--hosts", str(ranks), "--mtu", str(mtu)],
                      "-b", f"{size}M", "-e", f"{size}M", "-n", "20", "-c", "1")
        p50 = found["in_place_per_iter"]["p50_us"] / 1e3
        bound = bound_ms(ranks, size * 2**20, mtu)
        print(report.row([str(mtu), str(ranks), str(size), f"{p50:.1f}", f"{bound:.1f}", f"{p50 / bound:.3f}"]), flush=True)
        claims.add(f"exact all-reduce, MTU {mtu}, {ranks} ranks, {size} MB: p50 over the links' bound", p50 / bound,
                   report.at_most(1.08))


def tolerant(options, claims):
    print("\n## Planes of 5 bits, beside Gloo, 4 ranks\n")
    print(report.head(["network", "bytes", "Spillway p50 / p99 ms", "Gloo p50 / p99 ms", "p99 ratio", "NMSE"]))
    for preset, size, iterations in QUICK_TOLERANT if options.quick else TOLERANT:
        found = bench(options, ["--preset", preset], "-b", size, "-e", size, "-n", str(iterations), "--codec", "planes",
                      "--bits", "5", "--bits-back", "5", "--compare", "gloo")
        ours, gloo = found["in_place_per_iter"], found["rivals"]["gloo"]["per_iter"]
        times = [f"{one['p50_us'] / 1e3:.1f} / {one['p99_us'] / 1e3:.1f}" for one in (ours, gloo)]
        ratio = ours["p99_us"] / gloo["p99_us"]
        print(report.row([preset, size, *times, f"{ratio:.2f}", f"{found['nmse']:.2g}"]), flush=True)
        name = f"tolerant all-reduce, {preset}, {size}"
        claims.add(f"{name}: p99 over Gloo's", ratio, report.at_most(0.333))
        claims.add(f"{name}: squared error of the sum, of its energy", found["nmse"], report.at_most(0.02))


def late(options, claims):
    print(f"\n## One of 8 ranks stopped for 200 ms at random steps: {COMPUTE_MS} ms of computing and 1 MB\n")
    print(report.head(["deadlines", "pauses", "others' p50 ms", "p99 ms", "p99 over the undisturbed p50", "late, by rank",
                       "pauses, by rank"]))
    usual = None
    for least, pause in ((0, 0), (0, 200), (0.75, 200)):
        output = lab(options, ["--preset", "clean", "--hosts", "8"],
                     [sys.executable, str(HERE / "late_rank.py"), options.library,
                      *map(str, (options.steps, 2**18, least, pause, COMPUTE_MS))])
        ranks = sorted((json.loads(line[line.index("{"):]) for line in output.splitlines() if "{" in line),
                       key=lambda rank: rank["rank"])
        # A paused rank's steps until it has caught up do not count against the others.
        times = sorted(time for rank in ranks for step, time in enumerate(rank["times"])
                       if not any(0 <= step - paused < CATCHING_UP for paused in rank["paused"]))
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        usual = usual or p50
        named = [max(rank["late"][peer] for rank in ranks if rank["rank"] != peer) for peer in range(len(ranks))]
        print(report.row(["learned" if least else "none", "yes" if pause else "no", f"{p50:.1f}", f"{p99:.1f}",
                          f"{p99 / usual:.2f}", str(named), str([len(rank["paused"]) for rank in ranks])]), flush=True)
        if pause:
            claims.add(f"one of 8 ranks paused now and then, {'learned' if least else 'no'} deadlines: the others' p99 over "
                       "their undisturbed p50", p99 / usual, report.at_most(1.3) if least else None)


PARTS = {"exact": exact, "tolerant": tolerant, "late": late}


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_argument("--library", default=str(report.BUILD / "lib/libspillway.so"), help="libspillway.so")
    parser.add_parts(PARTS)
    parser.add_size("--steps", 300, 120, "of the late ranks")
    options = parser.parse_args()
    print(f"# All-reduces over an emulated network, {RATE_MBIT} Mb/s")
    report.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
