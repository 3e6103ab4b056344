#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A million operations between real processes: memory must stay flat, and no datagram may be refused. Then the tests
that begin every counter just before its limit, and those of epochs.

Prints tables in Markdown: operations per second, each rank's resident memory after 1, 10, 50 and 100 % of the
operations, and refused datagrams by reason. Exits with 1 if memory grew by more than 4 MiB between 10 % (in short
runs: 50 %) and 100 %, a datagram was refused, a result was wrong, or a test failed.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.patience import wait_until
from harness.processes import RankProcesses, python, run

EXAMPLES = """examples:
  tests/runtime/endurance.py build/release/lib/libspillway.so
  tests/runtime/endurance.py build/release/lib/libspillway.so --operations 50000 --ranks 4 --json endurance.json
  tests/runtime/endurance.py build/release/lib/libspillway.so --operations 5000 --no-edges

Ranks of one machine share memory unless they are told not to: here they are, so that everything goes through
sockets; --local-copy lets them.
"""
SHARES = (1, 10, 50, 100)  # percent
MOST_GROWTH_MIB = 4.0
# Operations until all records of ended ones have been filled once: earlier growth is not a leak.
WARM_UP = 20_000
PAGE = os.sysconf("SC_PAGE_SIZE")
EDGE_TESTS_S = 600
EDGE_TESTS = {"transport_tests": "*Edge*:*Epoch*", "net_tests": "*Epoch*", "sim_tests": "*Edge*"}


def resident_mib(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20


class Watch(threading.Thread):
    """Reads one rank's output, and samples its memory as it progresses."""

    def __init__(self, process, progress):
        super().__init__(daemon=True)
        self.process, self.progress = process, progress
        self.samples = []  # (operations, MiB)
        self.began = None  # at the first sample: starting processes does not count
        self.per_second = None  # set at the end

    def run(self):
        for line in self.process.stdout:
            if line == "done\n":
                self.per_second = (self.samples[-1][0] - self.samples[0][0]) / (time.monotonic() - self.began)
                return
            self.began = self.began or time.monotonic()
            self.samples.append((int(line), resident_mib(self.process.pid)))
            self.progress(int(line))

    def resident_at(self, share, operations):
        return next(mib for done, mib in self.samples if done * 100 >= share * operations)


def show_progress(operations):
    """On a terminal only."""
    began = time.monotonic()

    def show(done):
        if sys.stderr.isatty():
            rate = done / max(time.monotonic() - began, 1e-9)
            print(f"\r{done} of {operations} operations, {rate:.0f}/s ", end="", file=sys.stderr, flush=True)
    return show


def metrics_of(path):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    ended = sum(int(count) for count in re.findall(r'operations_total{.*outcome="done"} (\d+)', text))
    refused = {reason: int(count) for reason, count in
               re.findall(r'disbelieved_total{.*reason="(\w+)"} (\d+)', text)}
    failed = sum(int(count) for count in re.findall(r'operations_total{.*outcome="failed"} (\d+)', text))
    held = re.search(r"memory_bytes{.*} (\d+)", text)
    return {"ended": ended, "failed": failed, "refused": refused, "held_mib": int(held[1]) / 2**20 if held else None}


def final_metrics(paths, operations):
    """Waits until the metrics cover all operations and have been written again since: refusals are written later."""
    def written():
        return [path.stat().st_mtime_ns for path in paths]

    wait_until(lambda: all(metrics_of(path)["ended"] >= operations for path in paths), "metrics of all operations")
    for _ in range(2):  # the first may have begun earlier
        last = written()
        wait_until(lambda: all(map(int.__gt__, written(), last)), "metrics that are written again")
    return [metrics_of(path) for path in paths]


def errors_of(ranks):
    """The errors of ranks that did not reach their end; releases the others."""
    for rank, process in enumerate(ranks.processes):
        errors = process.finish()[1].strip()
        if process.returncode != 0:
            yield f"rank {rank} ended with {process.returncode}: {errors}"


def end(ranks):
    for process in ranks.processes:
        process.tell()
    ranks.finish()


def run_ranks(arguments, folder):
    variables = {"SPILLWAY_METRICS_FILE": f"{folder}/%r.prom",
                 "SPILLWAY_LOCAL_COPY": "1" if arguments.local_copy else "0"}
    command = python(HERE / "endurance_rank.py", arguments.library.resolve(), arguments.operations)
    with RankProcesses(arguments.ranks, lambda rank: command, stdin=subprocess.PIPE, variables=variables) as ranks:
        progress = show_progress(arguments.operations)
        watches = [Watch(process, progress if rank == 0 else lambda _: None)
                   for rank, process in enumerate(ranks.processes)]
        for watch in watches:
            watch.start()
        for watch in watches:
            watch.join()
        if not all(watch.per_second for watch in watches):
            raise AssertionError("\n".join(errors_of(ranks)))
        if sys.stderr.isatty():
            print(file=sys.stderr)
        metrics = final_metrics([pathlib.Path(folder, f"{rank}.prom") for rank in range(arguments.ranks)],
                                arguments.operations)
        rows = [row_of(rank, watch, arguments, metrics[rank]) for rank, watch in enumerate(watches)]
        end(ranks)
    return {"operations": arguments.operations, "ranks": arguments.ranks,
            "per_second": min(watch.per_second for watch in watches), "of_ranks": rows}


def row_of(rank, watch, arguments, metrics):
    resident = {share: watch.resident_at(share, arguments.operations) for share in SHARES}
    warm = max(arguments.operations // 10, min(WARM_UP, arguments.operations // 2))
    growth = resident[100] - watch.resident_at(warm * 100 / arguments.operations, arguments.operations)
    return {"rank": rank, "resident_mib": resident, "growth_mib": growth, "samples": watch.samples, **metrics}


def faults_of(result):
    for row in result["of_ranks"]:
        if row["growth_mib"] > MOST_GROWTH_MIB:
            yield f"rank {row['rank']} grew by {row['growth_mib']:.1f} MiB, more than {MOST_GROWTH_MIB:.0f}"
        if not row["refused"] or sum(row["refused"].values()) > 0:
            yield f"rank {row['rank']} refused {row['refused'] or 'what it did not tell'}"
        if row["failed"] > 0 or row["ended"] < result["operations"]:
            yield f"rank {row['rank']}: {row['ended']} operations ended, {row['failed']} failed"


def print_ranks(result):
    print(f"{result['operations']} operations of {result['ranks']} ranks, {result['per_second']:.0f} a second\n")
    reasons = list(result["of_ranks"][0]["refused"])
    heads = ["rank", *(f"RSS at {share} %" for share in SHARES), "growth", "held", *reasons]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in result["of_ranks"]:
        resident = [f"{mib:.1f} MiB" for mib in row["resident_mib"].values()]
        held = "?" if row["held_mib"] is None else f"{row['held_mib']:.1f} MiB"
        counts = [str(row["refused"].get(reason, "?")) for reason in reasons]
        print("| " + " | ".join([str(row["rank"]), *resident, f"{row['growth_mib']:+.1f} MiB", held, *counts]) + " |")
    print(flush=True)


def run_edge_tests(folder, scratch):
    results = []
    for name, wanted in EDGE_TESTS.items():
        binary, report = folder / name, pathlib.Path(scratch, f"{name}.json")
        if not binary.exists():
            results.append({"tests": name, "run": 0, "failed": 0, "fault": f"{binary} is not built"})
            continue
        process = run([binary, f"--gtest_filter={wanted}", f"--gtest_output=json:{report}"], EDGE_TESTS_S)
        outcome = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"tests": 0, "failures": 0}
        fault = None if process.returncode == 0 and outcome["tests"] > 0 else process.stdout[-2000:]
        results.append({"tests": name, "run": outcome["tests"], "failed": outcome["failures"], "fault": fault})
    return results


def print_edge_tests(results):
    print("| counters and epochs at their edges | tests | failed |\n|---|---|---|")
    for result in results:
        print(f"| `{result['tests']}` | {result['run']} | {result['failed']} |")
    print(flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path, help="libspillway.so; tests are those of its build")
    parser.add_argument("--operations", type=int, default=1_000_000, metavar="N", help="default: 1000000")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the numbers, for programs")
    parser.add_argument("--local-copy", action="store_true", help="let ranks share memory")
    parser.add_argument("--no-edges", action="store_true", help="the operations alone")
    arguments = parser.parse_args()
    if arguments.operations < 100 or arguments.ranks < 2:
        parser.error("it takes at least 100 operations and 2 ranks")
    return arguments


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = run_ranks(arguments, folder)
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
        print_ranks(result)
        faults = list(faults_of(result))
        if not arguments.no_edges:
            result["edges"] = run_edge_tests(arguments.library.resolve().parent.parent / "bin", folder)
            print_edge_tests(result["edges"])
            faults += [f"{edge['tests']}: {edge['fault']}" for edge in result["edges"] if edge["fault"]]
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
