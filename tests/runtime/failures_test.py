#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank is killed, stopped or disconnected in the middle of all-reduces, at a random moment. Every other rank gets
an error that names it, in less than two seconds of a quiet machine, and ends by itself.

    tests/runtime/failures_test.py LIBRARY [--times N] [--seed S]

Ranks are processes, on loopback or, as root, in network namespaces. Prints how long the others took to name the rank,
by kind of failure, and the seed that repeats the order of failures. A trial takes two to four seconds on two
processors, mostly to start processes: a thousand take about an hour.

On a busy machine, ranks may get no processor for a while, so the peer timeout and the limit grow with the machine's
slowness before each trial. A trial that fails while its ranks were starved is repeated: a rank that was silent for that
reason is blamed rightly. lib/transport/endpoint_test.cc holds the two seconds to virtual time.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.namespaces import NetworkNamespaces, contain
from harness.patience import Limit, StallWatch, slowdown, slowest
from harness.processes import RankProcesses, python

LIMIT_S = 2.0
PEER_TIMEOUT_S = 1.4  # the library's default
LONGEST_TIMEOUT_S = 8.0  # no live rank waits this long for a processor
QUIET = 1.5  # a machine that is slower than this is busy
PEER_FAILED = 5


class Crashed(AssertionError):
    """A rank ended with an error of its own, such as a wrong sum. No busy machine explains that."""


class Trial:
    """The machine's speed during one trial, and what follows from it. `stalls` must be entered for the trial."""

    def __init__(self):
        self.slowdown = slowest()
        self.stalls = StallWatch()
        self.variables = {"SPILLWAY_PEER_TIMEOUT": self.peer_timeout() if self.slowdown > QUIET else None}

    def peer_timeout(self):
        return f"{min(PEER_TIMEOUT_S * self.slowdown, LONGEST_TIMEOUT_S):.1f}"

    def was_starved(self):
        """True if the trial's ranks or this process had no processor for a while, or the machine is busy now."""
        stood_still = self.stalls.longest_s > PEER_TIMEOUT_S / 4
        return stood_still or slowest() > QUIET

    def limit(self):
        return LIMIT_S * max(self.slowdown, slowdown()) + self.stalls.longest_s


def kill(ranks, victim, _):
    ranks[victim].send_signal(signal.SIGKILL)


def stop(ranks, victim, _):
    ranks[victim].send_signal(signal.SIGSTOP)


def unplug_at_switch(_, victim, network):
    network.unplug_at_switch(victim)


def unplug_at_host(_, victim, network):
    network.unplug_at_host(victim)


ON_LOOPBACK = [kill, stop]
IN_NAMESPACES = [kill, stop, unplug_at_switch, unplug_at_host]


def outcome_of(rank, process):
    """A rank's report of its end, which it must have reached by itself."""
    output, errors = process.finish()
    if process.returncode != 0 or "{" not in output:
        raise Crashed(f"rank {rank} ended with {process.returncode}: {output}{errors}")
    return json.loads(output[output.index("{"):])


def check_survivor(rank, victim, outcome, struck_at, trial):
    """Returns how long the rank took to notice."""
    names = {int(name) for name in re.findall(r"rank (\d+)", outcome["message"])} - {rank}
    if outcome["status"] != PEER_FAILED or f"rank {victim} " not in outcome["message"]:
        raise AssertionError(f"rank {rank} does not blame rank {victim}: {outcome}, names {names}")
    took = outcome["at"] - struck_at
    if took <= 0:
        raise AssertionError(f"rank {rank} failed before anything had happened to rank {victim}: {outcome}")
    if took >= LIMIT_S and took >= trial.limit():
        raise AssertionError(f"rank {rank} took {took:.2f} s to find out: {outcome['message']}")
    return took


def check_victim(victim, process, strike):
    """A victim that is not dead notices as well."""
    if strike is not kill:
        process.send_signal(signal.SIGCONT)
        outcome = outcome_of(victim, process)
        if outcome["status"] != PEER_FAILED:
            raise AssertionError(f"rank {victim}, back again, says {outcome}")


def fail_once(library, world, strike, network, chance, trial):
    victim = chance.randrange(world)
    seed = chance.randrange(1 << 30)
    meeting = f"{network.address(0)}:5000" if network else None
    prefix = network.enter if network else lambda rank: []
    command = python(HERE / "reducing_rank.py", library, seed)
    with trial.stalls, RankProcesses(world, lambda rank: command, meeting, prefix,
                                     variables=trial.variables) as ranks:
        trial.stalls.watch(ranks.processes)
        ranks.expect_line("ready")
        time.sleep(chance.uniform(0, 0.3))  # any moment will do
        struck_at = time.monotonic()
        strike(ranks, victim, network)
        took = [check_survivor(rank, victim, outcome_of(rank, ranks[rank]), struck_at, trial)
                for rank in range(world) if rank != victim]
        check_victim(victim, ranks[victim], strike)
    return took


def one_failure(library, number, seed, in_namespaces):
    """Repeats it if its ranks were starved."""
    limit = Limit()
    while True:
        chance = random.Random(f"{seed}/{number}")
        world = chance.randint(2, 6)
        strike = chance.choice(IN_NAMESPACES if in_namespaces else ON_LOOPBACK)
        trial = Trial()
        try:
            with NetworkNamespaces(world) if in_namespaces else contextlib.nullcontext() as network:
                return world, strike, fail_once(library, world, strike, network, chance, trial)
        except Crashed:
            raise
        except AssertionError as error:
            if not trial.was_starved() or limit.left() == 0:
                raise
            print(f"once more, for the machine was busy (stalled for up to {trial.stalls.longest_s:.2f} s): {error}")


def percentile(took, share):
    return took[min(int(len(took) * share), len(took) - 1)]


def print_distribution(times):
    """Prints how long survivors took to name the rank, by kind of failure."""
    print(f"{'until the rank was named':30} {'trials':>6} {'ranks':>6} {'median':>8} {'95 %':>8} {'longest':>8}")
    for name, trials in sorted(times.items()):
        took = sorted(seconds for trial in trials for seconds in trial)
        print(f"{name:30} {len(trials):6} {len(took):6} {statistics.median(took):6.3f} s "
              f"{percentile(took, 0.95):6.3f} s {took[-1]:6.3f} s")


def main():
    contain()
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    may_use_namespaces = os.geteuid() == 0
    if not may_use_namespaces:
        print("on loopback only: network namespaces need root")
    times = {}
    failures = 0
    began = time.monotonic()
    for number in range(arguments.times):
        in_namespaces = may_use_namespaces and number % 2 == 1
        place = "namespaces" if in_namespaces else "loopback"
        try:
            world, strike, took = one_failure(arguments.library.resolve(), number, arguments.seed,
                                              in_namespaces)
        except AssertionError as error:
            print(f"failure {number} ({place}): {error}", file=sys.stderr)
            failures += 1
            continue
        print(f"{number:3} {place:10} {world} ranks, {strike.__name__:16} "
              + " ".join(f"{seconds:.3f}" for seconds in took), flush=True)
        times.setdefault(f"{strike.__name__} ({place})", []).append(took)
        times.setdefault(strike.__name__, []).append(took)
    print_distribution(times)
    duration = time.monotonic() - began
    print(f"{arguments.times - failures} of {arguments.times} trials right in {duration:.0f} s, "
          f"{duration / max(arguments.times, 1):.1f} s each")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
