#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Incast over an emulated network: Spillway against TCP cubic and bbr, with loss and with a tenant.

  experiments/incast_lab/run.py [--quick] [--json FILE] [--rounds N] [--kernel]

Needs root, or user namespaces. Prints Markdown; result.md is its last full output. With --kernel, which needs root,
the switch runs in the kernel and Spillway deliberately sends too much; the last full output of that is
result_kernel.md.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

USER = ["--scenario", str(HERE / "incast.scn"), "--dataplane", "user"]
KERNEL = ["--scenario", str(HERE / "oversend.scn"), "--dataplane", "bpf"]
SHARES = ("0.1%", "1%", "5%")
NOTHING_WRONG = "nothing wrong"
CONDITIONS = {NOTHING_WRONG: [],
              **{f"{share} random loss": ["--loss", share] for share in SHARES},
              **{f"{share} loss in bursts": ["--bursty", share] for share in SHARES},
              "a tenant takes half the link": ["--background", "from=host1 to=host0 protocol=udp rate=50%"]}
QUICK_CONDITIONS = (NOTHING_WRONG, "1% random loss", "a tenant takes half the link")
TARGETS = (5, 10, 20)  # per cent of Spillway's packets to be trimmed
QUICK_TARGETS = (10,)


def measure(options, name, condition):
    """Prints one row of the table, and returns it with the data behind it."""
    found = json.loads(report.output_of([options.spillway, "bench", "incast", "--rounds", str(options.rounds), "--json",
                                         *condition]))
    ours, cubic, bbr = found["protocols"]
    times = [" / ".join(f"{one[key]:.0f}" for key in ("p50_ms", "p99_ms", "max_ms")) for one in (ours, cubic, bbr)]
    simulated = found["simulated"]["p50_ms"]
    print(report.row([name, times[0], report.per_cent(ours["trimmed"], ours["packets"]),
                      report.per_cent(ours["missing"], ours["packets"]), f"{ours['beyond_bound']} of {ours['messages']}",
                      *times[1:], f"{simulated:.0f}", f"{ours['p50_ms'] / simulated:.2f}"]), flush=True)
    return found, ours


def in_user_space(options, claims):
    for name in QUICK_CONDITIONS if options.quick else CONDITIONS:
        found, ours = measure(options, name, [*USER, *CONDITIONS[name]])
        claims.add(f"incast, {name}: messages beyond their bound", ours["beyond_bound"], report.at_most(0))
        claims.add(f"incast, {name}: p99 over what the link needs", ours["p99_ms"] / found["ideal_ms"],
                   report.at_most(1.3) if name == NOTHING_WRONG else None)
        claims.add(f"incast, {name}: p99 over that of TCP cubic", ours["p99_ms"] / found["protocols"][1]["p99_ms"])
        claims.add(f"incast, {name}: lab over simulator, p50", ours["p50_ms"] / found["simulated"]["p50_ms"],
                   report.Bar(0.85, 1.15))
    return found["ideal_ms"]


def in_the_kernel(options, claims):
    for target in QUICK_TARGETS if options.quick else TARGETS:
        name = f"{target}% to be trimmed"
        found, ours = measure(options, name, [*KERNEL, "--set", f"job.trimmed-target={target}%"])
        claims.add(f"kernel's switch, {name}: messages beyond their bound", ours["beyond_bound"], report.at_most(0))
        claims.add(f"kernel's switch, {name}: p99 over what the link needs", ours["p99_ms"] / found["ideal_ms"],
                   report.at_most(1.15), paper="HotNets'24 proposes to send a little too much: no figure")
        claims.add(f"kernel's switch, {name}: trimmed, per cent", 100 * ours["trimmed"] / ours["packets"],
                   report.Bar(0.8 * target, 1.2 * target))
    return found["ideal_ms"]


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_size("--rounds", 40, 10, "of each row")
    parser.add_argument("--kernel", action="store_true", help="over-send through the kernel's switch")
    options = parser.parse_args()
    claims = report.Claims(options.quick)
    print(report.head(["times of a round in ms: p50 / p99 / max", "Spillway", "trimmed", "missing", "beyond its bound",
                       "TCP cubic", "TCP bbr", "simulated p50", "lab over simulated"]))
    ideal_ms = (in_the_kernel if options.kernel else in_user_space)(options, claims)
    beside = "" if options.kernel else ", twice that for whole packets beside the tenant"
    print(f"\nThe link alone needs {ideal_ms:.0f} ms{beside}; {options.rounds} rounds each.")
    claims.finish(options)


if __name__ == "__main__":
    main()
