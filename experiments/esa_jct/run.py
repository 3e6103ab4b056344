#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ESA's curve: completion times of training jobs that share one switch's slots, by policy and number of slots.

  experiments/esa_jct/run.py [--quick] [--json FILE]

Prints Markdown; result.md is its last full output. --quick has fewer steps, three sizes and one seed.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

ESA_OVER_ATP, ESA_OVER_SWITCHML = 1.35, 1.89  # "up to"; the second is second-hand

JOBS = 8
STATIC, FIRST_COME, PREEMPTIVE = "static", "first-come", "preemptive"
POLICIES = {
    STATIC: ["aggregate.policy=static", f"aggregate.pools={JOBS}"],
    FIRST_COME: ["aggregate.policy=first-come"],
    PREEMPTIVE: ["aggregate.policy=preemptive"],
}

PLENTY = 8192
SLOTS = [PLENTY, 2048, 819, 256, 64, 16, JOBS]
QUICK_SLOTS = [PLENTY, 819, JOBS]
BY_LAYER = ["training.urgency=priority"]
# Links and processors ten times as fast; the transport's timeouts stay.
FAST = ["topology.rate=10gbit"] + [
    f"training.{job + 1}.{setting}"
    for job in range(JOBS)
    for setting in (["forward=20us", "backward=40us"] if job % 2 == 0 else ["forward=80us", "backward=160us"])
    + [f"start={100 * job}us"]
]


class Result:
    """Runs that differ only by their seed."""

    def __init__(self, runs):
        self._runs = runs
        self.packets = [run["adders"][0]["packets"] for run in runs]

    def completion(self, kind=""):
        """Mean in ms over the jobs whose names begin with `kind`."""
        times = [job["completion_us"] for run in self._runs for job in run["jobs"] if job["name"].startswith(kind)]
        return sum(times) / len(times) / 1000

    def of_jobs(self, key):
        return sum(job[key] for run in self._runs for job in run["jobs"])

    def of_switch(self, *keys):
        return sum(packets[key] for packets in self.packets for key in keys)

    def parts(self):
        """Parts that asked the switch for a slot."""
        return self.of_switch("claims", "adds", "emits", "evictions", "expired", "collisions", "late", "overlaps")


def simulate(options, settings):
    command = [options.spillway, "sim", "jobs", str(HERE / "esa_jct.scn"), "--json"]
    for setting in [f"training.steps={options.steps}", *settings]:
        command += ["--set", setting]
    runs = []
    for seed in range(1, options.seeds + 1):
        run = json.loads(report.output_of([*command, "--seed", str(seed)]))
        for job in run["jobs"]:
            if job["end"] != "done":
                sys.exit(f"{' '.join(command)} --seed {seed}: {job['name']} is {job['end']} {job['failure']}")
        runs.append(run)
    return Result(runs)


COLUMNS = ["slots", "policy", "mean JCT, ms", "VGG", "ResNet", "collisions", "evictions", "flushes", "repeats"]


def show(slots, name, result):
    print(report.row([str(slots), name, *(f"{result.completion(kind):.1f}" for kind in ("", "vgg", "resnet")),
                      report.per_cent(result.of_switch("collisions"), result.parts()),
                      report.per_cent(result.of_switch("evictions"), result.parts()),
                      str(result.of_jobs("flushes_sent")), str(result.of_jobs("sums_repeated"))]), flush=True)


def sweep(options, sizes, settings):
    print(report.head(COLUMNS))
    found = {}
    for slots in sizes:
        for name, policy in POLICIES.items():
            found[slots, name] = simulate(options, [f"aggregate.slots={slots}", *policy, *settings])
            show(slots, name, found[slots, name])
    return found


def ratio(found, slots, rival):
    return found[slots, rival].completion() / found[slots, PREEMPTIVE].completion()


def compare(found, sizes):
    print(report.head(["slots", "of plenty", "over first-come", "over static", "preemptive from plenty"]))
    for slots in sizes:
        kept = found[slots, PREEMPTIVE].completion() / found[PLENTY, PREEMPTIVE].completion()
        print(report.row([str(slots), report.per_cent(slots, PLENTY, 1), f"{ratio(found, slots, FIRST_COME):.2f}",
                          f"{ratio(found, slots, STATIC):.2f}", f"{kept:.2f}"]))


def claim(claims, found, sizes):
    least = sizes[-1]
    claims.add("mean JCT, first-come's over preemptive's, at the number of slots where it is most",
               max(ratio(found, slots, FIRST_COME) for slots in sizes), report.at_least(ESA_OVER_ATP),
               f"ESA over ATP: up to {ESA_OVER_ATP}")
    claims.add("the same, static's over preemptive's", max(ratio(found, slots, STATIC) for slots in sizes),
               report.at_least(ESA_OVER_SWITCHML), f"ESA over SwitchML: up to {ESA_OVER_SWITCHML} (second-hand)")
    claims.add(f"mean JCT, first-come's over preemptive's, {PLENTY} slots: nobody needs to be preempted",
               ratio(found, PLENTY, FIRST_COME), report.Bar(0.95, 1.05))
    claims.add(f"preemptive, mean JCT with {least} slots over that with {PLENTY}",
               found[least, PREEMPTIVE].completion() / found[PLENTY, PREEMPTIVE].completion(), report.at_most(1.1))


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_size("--seeds", 2, 1, "runs of each")
    parser.add_size("--steps", 8, 3, "of every job")
    options = parser.parse_args()
    claims = report.Claims(options.quick)
    sizes = QUICK_SLOTS if options.quick else SLOTS
    print("## Eight jobs, half of them communication-heavy, 1 Gb/s\n")
    found = sweep(options, sizes, [])
    print("\n## Preemption against the others: mean JCT, theirs over its own\n")
    compare(found, sizes)
    claim(claims, found, sizes)
    if not options.quick:
        print("\n## Preemption by layer alone, all jobs alike\n")
        print(report.head(COLUMNS))
        for slots in sizes[-2:]:
            show(slots, "by layer", simulate(options, [f"aggregate.slots={slots}", *POLICIES[PREEMPTIVE], *BY_LAYER]))
        print("\n## The same jobs ten times as fast, 10 Gb/s\n")
        sweep(options, QUICK_SLOTS, FAST)
    claims.finish(options)


if __name__ == "__main__":
    main()
