#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training while switches overflow: what bounded loss, priority and selective drop gain at equal bits.

  experiments/mlt_training/run.py [--quick] [--json FILE] [--part servers|collectives|spines] [--steps N] [--rate RATE]

Eight workers, with and without parameter servers, over switches that trim and over plain ones; every row is compared
with the same collectives and codec over TCP. Needs root, or user namespaces, python3-torch and dataset-fashion-mnist.
Prints Markdown; result.md is its last full output.
"""
import json
import pathlib
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

WORKERS = 8
PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
CONGESTION_CONTROLS = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
EXPENDABLE = 4  # packets of lower importance are dropped first
PAPER = "MLT: 12 to 62.2 % faster; DLCP: up to 84.3 %"
PLANES = {"name": "planes", "bits": 16}
LOSS_BOUND = 0.1  # as in MLT
NOTHING = {"codec": {**PLANES, "importance": 4}, "loss_bound": 0.0, "priority": 3}
FOR_ALL = {"SPILLWAY_PEER_TIMEOUT": "20"}  # ten hosts share the machine's processors


class Variant(NamedTuple):
    """The difference between two rows: attach()'s arguments, and the hosts' congestion control if they use TCP."""
    hook: Dict[str, Any]
    tcp: Optional[str] = None


TCP = {control: Variant({"loss_bound": LOSS_BOUND}, control) for control in ("cubic", "bbr")}
OURS = {
    "none of them": Variant(NOTHING),
    "bounded loss": Variant({**NOTHING, "loss_bound": LOSS_BOUND}),
    "priority": Variant({**NOTHING, "priority": "layer"}),
    "bounded loss and selective drop": Variant({**NOTHING, "codec": PLANES, "loss_bound": LOSS_BOUND}),
    "together": Variant({"loss_bound": LOSS_BOUND}),
}
QUICK_OURS = ("none of them", "together")

# Queues of 64 KiB: a tenth of what eight workers may have in flight.
SWITCHES = {"trim": ["--mode", "spillway"], "mark": ["--mode", "ecn"], "only drop": ["--mode", "drop-tail"]}
QUICK_SWITCHES = ("trim", "only drop")


class Fabric(NamedTuple):
    name: str
    servers: int
    scenario: str
    switches: str

    def arguments(self, options) -> List[str]:
        return ["--scenario", str(HERE / self.scenario), "--hosts", str(WORKERS + self.servers), "--rate", options.rate,
                *SWITCHES[self.switches]]


class Rivals:
    """The TCP carriers whose congestion control this kernel has."""

    def __init__(self) -> None:
        kernel = CONGESTION_CONTROLS.read_text().split() if CONGESTION_CONTROLS.exists() else []
        self.there = [control for control in TCP if control in kernel]

    def explain(self) -> None:
        for control in TCP:
            if control not in self.there:
                print(f"\nTCP {control} is left out: this kernel has no {control} (modprobe tcp_{control}).")


def measure(options, fabric: Fabric, variant: Variant) -> Dict[str, Any]:
    """Worker 0's log, and the switches' counters."""
    variables = {**FOR_ALL, **({} if variant.tcp is None else {"SPILLWAY_CARRIER": "tcp"})}
    control = [] if variant.tcp is None else ["--tcp", variant.tcp]
    with tempfile.NamedTemporaryFile(suffix=".json") as log:
        output = report.output_of([
            options.spillway, "lab", "run", "--json", *fabric.arguments(options), *control,
            *(word for name, value in variables.items() for word in ("--env", f"{name}={value}")), "--",
            PYTHON, str(HERE / "worker.py"), "--spillway", options.spillway, "--servers", str(fabric.servers), "--steps",
            str(options.steps), "--seed", str(options.seed), "--hook", json.dumps({"codec": PLANES, **variant.hook}),
            "--log", log.name])
        found = json.loads(pathlib.Path(log.name).read_text())
    ports = json.loads(output)["fabric"]["ports"]
    trimmed, dropped = ([sum(levels) for levels in zip(*(port[key] for port in ports))]
                        for key in ("trimmed_by_importance", "dropped_by_importance"))
    return {**found, "switch_trimmed": sum(trimmed), "dropped_expendable": sum(dropped[:EXPENDABLE]),
            "dropped_others": sum(dropped[EXPENDABLE:])}


def ratio_text(tcp: Dict[str, Dict[str, Any]], control: str, found: Dict[str, Any]) -> str:
    return f"{tcp[control]['step_ms'] / found['step_ms']:.2f}" if control in tcp else ""


def show(fabric: Fabric, name: str, found: Dict[str, Any], tcp: Dict[str, Dict[str, Any]]) -> None:
    print(report.row([fabric.name, fabric.switches, name, f"{found['step_ms']:.0f}",
                      f"{found['p50_ms']:.0f} / {found['p99_ms']:.0f}", ratio_text(tcp, "cubic", found),
                      ratio_text(tcp, "bbr", found), f"{100 * found['accuracy']:.2f} %",
                      report.per_cent(found["repeated"], found["packets"]), str(found["switch_trimmed"]),
                      f"{found['dropped_expendable']} / {found['dropped_others']}"]), flush=True)


def claim(claims: report.Claims, fabric: Fabric, tcp: Dict[str, Dict[str, Any]], ours: Dict[str, Dict[str, Any]],
          bar: Optional[report.Bar]) -> None:
    together = ours["together"]
    where = f"{fabric.name}, switches that {fabric.switches}"
    for control, found in tcp.items():
        claims.add(f"{where}: step of TCP {control} over ours", found["step_ms"] / together["step_ms"], bar, PAPER)
        claims.add(f"{where}: points of accuracy from TCP {control}", 100 * (together["accuracy"] - found["accuracy"]),
                   report.at_least(-0.3))
    for name, found in ours.items():
        if name not in ("none of them", "together"):
            claims.add(f"{where}: step with none of them over {name}",
                       ours["none of them"]["step_ms"] / found["step_ms"])
    claims.add(f"{where}: step with none of them over all together",
               ours["none of them"]["step_ms"] / together["step_ms"])


def run_fabric(options, claims: report.Claims, rivals: Rivals, fabric: Fabric, names: Sequence[str],
               bar: Optional[report.Bar]) -> None:
    tcp, ours = {}, {}
    for control in rivals.there:
        tcp[control] = measure(options, fabric, TCP[control])
        show(fabric, f"TCP {control}", tcp[control], tcp)
    for name in names:
        ours[name] = measure(options, fabric, OURS[name])
        show(fabric, name, ours[name], tcp)
    claim(claims, fabric, tcp, ours, bar)


def run_part(options, claims: report.Claims, title: str, fabrics: Sequence[Fabric], names: Sequence[str],
             bar: Optional[report.Bar]) -> None:
    print(f"\n## {title}\n")
    rivals = Rivals()
    print(report.head(["network", "full switches", "variant", "step ms", "p50 / p99", "faster than cubic", "than bbr",
                       "accuracy", "sent again", "packets trimmed", "dropped: expendable / others"]))
    for fabric in fabrics:
        run_fabric(options, claims, rivals, fabric, names, bar)
    rivals.explain()


def kinds(options) -> Sequence[str]:
    return QUICK_SWITCHES if options.quick else tuple(SWITCHES)


def servers(options, claims: report.Claims) -> None:
    counts = (1,) if options.quick else (1, 2)
    run_part(options, claims, "Parameter servers",
             [Fabric(f"{WORKERS} workers, {count} server{'s' * (count > 1)}", count, "one_switch.scn", kind)
              for count in counts for kind in kinds(options)], QUICK_OURS if options.quick else tuple(OURS),
             report.at_least(1.4))


def collectives(options, claims: report.Claims) -> None:
    run_part(options, claims, "All-reduce among the workers",
             [Fabric(f"{WORKERS} workers", 0, "one_switch.scn", kind) for kind in kinds(options)], tuple(OURS), None)


def spines(options, claims: report.Claims) -> None:
    run_part(options, claims, "Four spines, over which flows are hashed",
             [Fabric(f"{WORKERS} workers, 4 spines", 0, "four_spines.scn", kind) for kind in kinds(options)],
             ("none of them", "bounded loss", "together"), None)


PARTS = {"servers": servers, "collectives": collectives, "spines": spines}


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--steps", 200, 30, "of training")
    parser.add_argument("--rate", default="200mbit", help="of every host's link (200mbit): the network is the limit")
    parser.add_argument("--seed", type=int, default=1, help="of the training (1)")
    options = parser.parse_args()
    print(f"# Training where switches overflow\n\n`experiments/mlt_training/run.py{' --quick' * options.quick} --steps "
          f"{options.steps} --rate {options.rate}`: {WORKERS} workers, {PLANES['bits']} bits a value everywhere, a loss "
          f"bound of {LOSS_BOUND:.0%} where there is one.")
    parts = {"servers": servers} if options.quick and options.part is None else PARTS
    report.run_parts(parts, options)


if __name__ == "__main__":
    main()
