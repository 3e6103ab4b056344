#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Incast over an emulated network: Spillway against TCP cubic and bbr, with loss and with a tenant.

  experiments/incast_lab/run.py [--spillway BINARY] [--rounds N] [--kernel]

Needs root, or user namespaces. Prints Markdown; result.md is its last output. With --kernel, which
needs root, the switch is the one in the kernel and Spillway sends too much on purpose; its last
output is result_kernel.md.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

USER = ["--scenario", str(HERE / "incast.scn"), "--dataplane", "user"]
KERNEL = ["--scenario", str(HERE / "oversend.scn"), "--dataplane", "bpf"]

CONDITIONS = [("nothing wrong", [])]
for share in ("0.1%", "1%", "5%"):
    CONDITIONS.append((f"{share} random loss", ["--loss", share]))
for share in ("0.1%", "1%", "5%"):
    CONDITIONS.append((f"{share} loss in bursts", ["--bursty", share]))
CONDITIONS.append(
    ("a tenant takes half the link", ["--background", "from=host1 to=host0 protocol=udp rate=50%"])
)

# Of Spillway's packets, how many shall be trimmed.
TARGETS = [(f"{share} to be trimmed", ["--set", f"job.trimmed-target={share}"])
           for share in ("5%", "10%", "20%")]


def measure(spillway, rounds, condition):
    command = [spillway, "bench", "incast", "--rounds", str(rounds), "--json", *condition]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def times(row):
    return [f"{row[key]:.0f}" for key in ("p50_ms", "p99_ms", "max_ms")]


def percent(part, whole):
    return f"{100 * part / max(whole, 1):.2f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spillway", default=str(ROOT / "build/release/bin/spillway"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--kernel", action="store_true", help="over-send through the kernel's switch")
    arguments = parser.parse_args()

    print("| times of a round in ms: p50 / p99 / max | Spillway | trimmed | missing | beyond its bound "
          "| TCP cubic | TCP bbr | simulated p50 | lab over simulated |")
    print("|---|---|---|---|---|---|---|---|---|")
    network = KERNEL if arguments.kernel else USER
    for name, condition in TARGETS if arguments.kernel else CONDITIONS:
        result = measure(arguments.spillway, arguments.rounds, [*network, *condition])
        ours, cubic, bbr = result["protocols"]
        cells = [
            name,
            " / ".join(times(ours)),
            percent(ours["trimmed"], ours["packets"]),
            percent(ours["missing"], ours["packets"]),
            f"{ours['beyond_bound']} of {ours['messages']}",
            " / ".join(times(cubic)),
            " / ".join(times(bbr)),
            f"{result['simulated']['p50_ms']:.0f}",
            f"{ours['p50_ms'] / result['simulated']['p50_ms']:.2f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
    beside = "" if arguments.kernel else ", twice that for whole packets beside the tenant"
    print(f"\nThe link alone needs {result['ideal_ms']:.0f} ms{beside}; {arguments.rounds} rounds each.")


if __name__ == "__main__":
    main()
