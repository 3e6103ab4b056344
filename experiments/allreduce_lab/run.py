#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces over an emulated network: exact beside what the links allow, tolerant beside Gloo, with late ranks.

  experiments/allreduce_lab/run.py [--spillway BINARY] [--library LIBRARY] [--part exact|tolerant|late]

Needs root, or user namespaces, and python3-torch for Gloo. Prints Markdown; result.md is its last output.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RATE = 1e9


def lab(spillway, options, command):
    done = subprocess.run([spillway, "lab", "run", "--quiet", *options, "--", *command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def bench(spillway, network, *arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        lab(spillway, network, [spillway, "bench", "allreduce", "-I", "-J", file.name, *arguments])
        return json.load(open(file.name))


def bound_ms(ranks, size, mtu):
    """Every link carries 2 (n - 1) / n of the tensor each way, as full Ethernet frames of UDP."""
    return 2 * (ranks - 1) / ranks * size * 8 / RATE * 1e3 * (mtu + 38) / (mtu - 28)


def exact(spillway):
    print("\n## Exact, nothing wrong\n\n| MTU | ranks | MB | p50 ms | the links' bound ms | ratio |\n|---|---|---|---|---|---|")
    for mtu in (1500, 9000):
        for ranks in (4, 8):
            for size in (4, 16):
                result = bench(spillway, ["--preset", "clean", "--hosts", str(ranks), "--mtu", str(mtu)], "-b", f"{size}M",
                               "-e", f"{size}M", "-n", "20", "-c", "1")
                p50 = result["results"][0]["in_place_per_iter"]["p50_us"] / 1e3
                bound = bound_ms(ranks, size * 2**20, mtu)
                print(f"| {mtu} | {ranks} | {size} | {p50:.1f} | {bound:.1f} | {p50 / bound:.3f} |", flush=True)


def tolerant(spillway):
    print("\n## Tolerant, 5 planes, beside Gloo, 4 ranks\n\n"
          "| network | MB | Spillway p50 / p99 ms | Gloo p50 / p99 ms | p99 ratio | NMSE |\n|---|---|---|---|---|---|")
    for preset in ("congested", "incast"):
        for size, iterations in (("256K", 200), ("1M", 150), ("4M", 60)):
            result = bench(spillway, ["--preset", preset], "-b", size, "-e", size, "-n", str(iterations), "--mode", "tolerant",
                           "--precision", "5", "--gather-precision", "5", "--compare", "gloo")
            row = result["results"][0]
            ours, gloo = row["in_place_per_iter"], row["rivals"]["gloo"]["per_iter"]
            print(f"| {preset} | {size} | {ours['p50_us'] / 1e3:.1f} / {ours['p99_us'] / 1e3:.1f} | "
                  f"{gloo['p50_us'] / 1e3:.1f} / {gloo['p99_us'] / 1e3:.1f} | {ours['p99_us'] / gloo['p99_us']:.2f} | "
                  f"{row['nmse']:.2g} |", flush=True)


COMPUTE_MS = 50
CATCHING_UP = 10  # steps


def late(spillway, library):
    print(f"\n## One of 8 ranks stopped for 200 ms at random steps: {COMPUTE_MS} ms of computing and 1 MB\n\n"
          "| deadlines | pauses | others' p50 ms | p99 ms | p99 over the undisturbed p50 | late, by rank | pauses, by rank |\n"
          "|---|---|---|---|---|---|---|")
    usual = None
    for least, pause in ((0, 0), (0, 200), (0.75, 200)):
        output = lab(spillway, ["--preset", "clean", "--hosts", "8"],
                     [sys.executable, str(HERE / "late_rank.py"), library, "300", str(2**18), str(least), str(pause),
                      str(COMPUTE_MS)])
        ranks = sorted((json.loads(line[line.index("{"):]) for line in output.splitlines() if "{" in line),
                       key=lambda rank: rank["rank"])
        # What a paused rank takes, until it has caught up, is not the others' business.
        times = sorted(time for rank in ranks for step, time in enumerate(rank["times"])
                       if not any(0 <= step - paused < CATCHING_UP for paused in rank["paused"]))
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        usual = usual or p50
        named = [max(rank["late"][peer] for rank in ranks if rank["rank"] != peer) for peer in range(len(ranks))]
        print(f"| {'learned' if least else 'none'} | {'yes' if pause else 'no'} | {p50:.1f} | {p99:.1f} | {p99 / usual:.2f} "
              f"| {named} | {[len(rank['paused']) for rank in ranks]} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spillway", default=str(ROOT / "build/release/bin/spillway"))
    parser.add_argument("--library", default=str(ROOT / "build/release/lib/libspillway.so"))
    parser.add_argument("--part", choices=("exact", "tolerant", "late"))
    arguments = parser.parse_args()
    print("# All-reduces over an emulated network, 1 Gb/s")
    if arguments.part in (None, "exact"):
        exact(arguments.spillway)
    if arguments.part in (None, "tolerant"):
        tolerant(arguments.spillway)
    if arguments.part in (None, "late"):
        late(arguments.spillway, arguments.library)


if __name__ == "__main__":
    main()
