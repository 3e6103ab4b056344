#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients that are added on their way: time to equal accuracy, and the load on owners' links.

  experiments/thc/run.py [--quick] [--json FILE] [--part accuracy|bytes|scale] [--steps N] [--seeds N] [--rate RATE]

accuracy: THC added by owners, servers or switches, against fp32 and fp16 over TCP and against planes. bytes: the load
on an owner's link, with such a switch and without. scale: a step with an agreed scale and with a predicted one. Needs
root, or user namespaces, python3-torch, libopenblas0 and dataset-fashion-mnist. Prints Markdown; result.md is its
last output.
"""
import json
import pathlib
import statistics
import sys
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Union

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
TRIES = 3                    # torch 1.13's Gloo sometimes aborts when its process ends
FIRST_STEPS = 3              # they make connections and buffers; no median contains them
BELOW_BEST = 0.01            # of accuracy: near the best, curves are flat, and crossing is luck
LEAVES = 2
FOR_ALL = {"SPILLWAY_PEER_TIMEOUT": "20"}  # up to twelve hosts share the machine's processors
THC = {"codec": {"name": "levels", "bits": 4}}
BY_SERVERS = "THC: 1.28 to 1.33 by a software server"
IN_SWITCH = "THC: 1.40 to 1.47 in the network"


class Variant(NamedTuple):
    """How gradients travel: worker.py's hook, and the network's support."""
    hook: Union[str, Dict[str, Any]]
    aggregate: bool = False
    servers_per_rank: float = 0.0

    def words(self) -> str:
        return self.hook if isinstance(self.hook, str) else json.dumps(self.hook)


FP32, FP16, PLANES = "fp32, TCP", "fp16, TCP", "planes, 5 bits"
OWNERS, SERVERS, SWITCH, PREDICTED = "THC by owners", "THC by servers", "THC in the switch", "the same, predicted scale"
VARIANTS = {
    FP32: Variant("fp32"),
    FP16: Variant("fp16"),
    PLANES: Variant({"codec": {"name": "planes", "bits": 5}}),
    OWNERS: Variant(THC),
    SERVERS: Variant(THC, servers_per_rank=0.5),
    SWITCH: Variant(THC, aggregate=True),
    PREDICTED: Variant({"codec": {"name": "levels", "bits": 4, "predicted_scale": True}}, aggregate=True),
}
PAPER = {OWNERS: (1.28, BY_SERVERS), SERVERS: (1.28, BY_SERVERS), SWITCH: (1.40, IN_SWITCH), PREDICTED: (1.40, IN_SWITCH)}
PRESETS = ("incast", "oversubscribed")
QUICK_VARIANTS = (FP32, OWNERS, SWITCH)


# ---- The lab ----

def network(options, preset: str, hosts: int, aggregate: bool) -> List[str]:
    """Arguments of `lab run`. Uplinks carry half of what their hosts can send, whatever their number."""
    uplinks = ["--set", f"topology.uplink-rate={50 * hosts // LEAVES}%"] if preset == "oversubscribed" else []
    return ["--preset", preset, "--hosts", str(hosts), "--rate", options.rate, "--tcp", "cubic", *uplinks,
            *["--aggregate"] * aggregate]


def variables(preset: str, hosts: int) -> List[str]:
    racks = {"SPILLWAY_RACK_RANKS": str(hosts // LEAVES)} if preset == "oversubscribed" else {}
    return [word for name, value in {**FOR_ALL, **racks}.items() for word in ("--env", f"{name}={value}")]


def lab_run(options, preset: str, hosts: int, aggregate: bool, more: List[str], command: List[str]) -> Dict[str, Any]:
    """The lab's report."""
    words = [options.spillway, "lab", "run", "--json", *network(options, preset, hosts, aggregate), *more,
             *variables(preset, hosts), "--", PYTHON, *command]
    return json.loads(report.output_of(words, TRIES))


def home(lab: Dict[str, Any]) -> str:
    """Where the switch ran, and whether it kept up."""
    return f"{'kernel' if lab['dataplane'] == 'bpf' else 'user space'}{'' if lab['pace']['kept_up'] else ', late'}"


# ---- Training ----

class Training(NamedTuple):
    """One run. Seconds count its steps only: evaluations take equally long with every variant."""
    median_ms: float
    p99_ms: float
    curve: List[Any]  # (seconds, accuracy) per evaluation
    whole: float      # share of the switches' sums that were completed there
    home: str

    def final(self) -> float:
        return self.curve[-1][1]

    def best(self) -> float:
        return max(accuracy for _, accuracy in self.curve)

    def seconds_to(self, target: float) -> float:
        return next(seconds for seconds, accuracy in self.curve if accuracy >= target)


def whole_share(lab: Dict[str, Any]) -> float:
    """The share of slots taken whose sum left complete."""
    packets = [adder["packets"] for adder in lab["fabric"]["adders"]]
    taken, whole = (sum(counts[name] for counts in packets) for name in ("claims", "emits"))
    return whole / taken if taken else 0.0


def training_of(events: List[Dict[str, Any]], lab: Dict[str, Any]) -> Training:
    times = [event["step_ms"] for event in events if event["event"] == "step"]
    curve = [(sum(times[:event["step"]]) / 1e3, event["accuracy"]) for event in events if event["event"] == "evaluation"]
    later = sorted(times[FIRST_STEPS:])
    return Training(statistics.median(later), later[len(later) * 99 // 100], curve, whole_share(lab), home(lab))


def train(options, preset: str, ranks: int, variant: Variant, seed: int, steps: int, more: List[str]) -> Training:
    servers = int(ranks * variant.servers_per_rank)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as log:
        lab = lab_run(options, preset, ranks + servers, variant.aggregate, ["--set", f"seed={seed}", *more],
                      [str(HERE / "worker.py"), "--spillway", options.spillway, "--servers", str(servers), "--steps",
                       str(steps), "--seed", str(seed), "--evaluate-every", str(options.evaluate_every), "--test-samples",
                       str(options.test_samples), "--hook", variant.words(), "--log", log.name])
        return training_of([json.loads(line) for line in pathlib.Path(log.name).read_text().splitlines()], lab)


class Cell:
    """All variants in one network with one number of ranks, by seed."""

    def __init__(self) -> None:
        self.runs: Dict[str, List[Training]] = {}
        self._targets: List[float] = []

    def add(self, runs: Dict[str, Training]) -> None:
        """Adds the runs of one seed."""
        self._targets.append(min(run.best() for run in runs.values()) - BELOW_BEST)
        for name, run in runs.items():
            self.runs.setdefault(name, []).append(run)

    def mean(self, name: str, what: Callable[[Training], float]) -> float:
        return statistics.fmean(what(run) for run in self.runs[name])

    def seconds(self, name: str) -> List[float]:
        return [run.seconds_to(target) for run, target in zip(self.runs[name], self._targets)]

    def faster(self, name: str, than: str) -> float:
        """Ratio of times to equal accuracy, mean over seeds."""
        return statistics.fmean(theirs / ours for ours, theirs in zip(self.seconds(name), self.seconds(than)))

    def points(self, name: str) -> float:
        return 100 * statistics.fmean(run.final() - base.final() for run, base in zip(self.runs[name], self.runs[FP32]))

    def target(self) -> float:
        return statistics.fmean(self._targets)

    def notes(self) -> List[str]:
        """Reasons why the cell's rows cannot be compared."""
        homes = {run.home for runs in self.runs.values() for run in runs}
        late = ["a lab was late: its times do not hold"] if any("late" in home for home in homes) else []
        places = {home.split(",")[0] for home in homes}
        return late + (["the switch was not in the same place for all: times also tell these apart"] * (len(places) > 1))


def variants_of(options, preset: str) -> List[str]:
    """Servers are separate hosts: with thin uplinks, their location would decide the result."""
    names = QUICK_VARIANTS if options.quick else VARIANTS
    return [name for name in names if preset == "incast" or VARIANTS[name].servers_per_rank == 0]


def show(preset: str, ranks: int, cell: Cell) -> None:
    for name, runs in cell.runs.items():
        paper = PAPER.get(name, (0, ""))[1].removeprefix("THC: ").split(" by ")[0].split(" in ")[0]
        print(report.row([preset, str(ranks), name, runs[0].home, f"{cell.mean(name, lambda run: run.median_ms):.0f}",
                          f"{cell.mean(name, lambda run: run.p99_ms):.0f}", f"{statistics.fmean(cell.seconds(name)):.1f}",
                          f"{100 * cell.target():.1f} %", f"**{cell.faster(name, FP32):.2f}**", paper,
                          f"{100 * cell.mean(name, Training.final):.2f} %", f"{cell.points(name):+.2f}",
                          f"{100 * cell.mean(name, lambda run: run.whole):.1f} %" if VARIANTS[name].aggregate else ""]),
              flush=True)


def claim(preset: str, ranks: int, cell: Cell, claims: report.Claims) -> None:
    where = f"{preset}, {ranks} ranks"
    for name in cell.runs:
        if name == FP32:
            continue
        least, paper = PAPER.get(name, (None, None))
        claims.add(f"{where}, {name}: time to the same accuracy, fp32's over ours", cell.faster(name, FP32),
                   None if least is None else report.at_least(least), paper)
        claims.add(f"{where}, {name}: points of final accuracy from fp32", cell.points(name), report.at_least(-0.5))
    claims.add(f"{where}: time to the same accuracy, THC by owners over THC in the switch", cell.faster(SWITCH, OWNERS),
               paper="THC: about 1.1, the one figure over the other")


def accuracy(options, claims: report.Claims) -> None:
    print(f"\n## Time to the same accuracy: {options.steps} steps, seeds 1 to {options.seeds}, links of {options.rate}\n")
    print(report.head(["network", "ranks", "variant", "switch", "step p50, ms", "p99", "s to accuracy", "accuracy",
                       "faster than fp32", "THC's", "final accuracy", "points from fp32", "sums whole in the switch"]))
    notes: List[str] = []
    for preset in options.presets:
        for ranks in options.ranks:
            cell = Cell()
            for seed in range(1, options.seeds + 1):
                cell.add({name: train(options, preset, ranks, VARIANTS[name], seed, options.steps, [])
                          for name in variants_of(options, preset)})
            show(preset, ranks, cell)
            claim(preset, ranks, cell, claims)
            notes += [f"{preset}, {ranks} ranks: {note}" for note in cell.notes()]
    print("".join(f"\n- {note}" for note in notes))


# ---- Bytes ----

class Carried(NamedTuple):
    """Bytes on an owner's link."""
    down: float
    up: float
    home: str


def carried(options, hosts: int, servers: int, aggregate: bool) -> Carried:
    """On the server's link, or the mean of all links if all ranks are owners."""
    owners = range(hosts - servers, hosts) if servers else range(hosts)
    with tempfile.TemporaryDirectory() as folder:
        lab = lab_run(options, "clean", hosts, aggregate, [],
                      [str(HERE / "sums.py"), "--spillway", options.spillway, "--servers", str(servers), "--values",
                       str(options.values), "--rounds", str(options.rounds), "--folder", folder])
        up = [int(pathlib.Path(folder, str(rank)).read_text()) for rank in owners]
    down = {port["port"]: port["sent_bytes"] for port in lab["fabric"]["ports"]}
    return Carried(statistics.fmean(down[f"switch0->host{rank}"] for rank in owners), statistics.fmean(up), home(lab))


def half_of(with_switch: float, without: float) -> float:
    """If every rank is an owner, half of its link's load each way is for other ranks' shards, which a switch does not
    change. The rest is the owner's."""
    return 2 * with_switch / without - 1


def claim_bytes(claims: report.Claims, name: str, hosts: int, down: float, up: float) -> None:
    for way, share in (("down, to be added", down), ("up, results", up)):
        claims.add(f"{name}: bytes {way}, with the switch over without, times {hosts - 1}", share * (hosts - 1),
                   report.Bar(0.95, 1.05), f"1/(n-1) of direct exchange: {1 / (hosts - 1):.3f}")


def bytes_part(options, claims: report.Claims) -> None:
    print(f"\n## An owner's link, {options.rounds} all-reduces of {options.values:,} values, 4 bits\n")
    print("MB that the link carried in the whole run, the same code without a switch that adds and with one; and the "
          "owner's part of it, with over without. Down: the switch port's counter; up: the host's.\n")
    print(report.head(["hosts", "owners", "switch", "down, MB", "up, MB", "owner's part down", "up", "1/(n-1)"]))
    for hosts in options.hosts:
        for servers, owners in ((0, "all ranks"), (1, "one server")):
            without, with_switch = (carried(options, hosts, servers, aggregate) for aggregate in (False, True))
            shares = [with_switch.down / without.down, with_switch.up / without.up] if servers else [
                half_of(with_switch.down, without.down), half_of(with_switch.up, without.up)]
            print(report.row([str(hosts), owners, with_switch.home,
                              f"{without.down / 1e6:.2f} / {with_switch.down / 1e6:.2f}",
                              f"{without.up / 1e6:.2f} / {with_switch.up / 1e6:.2f}", *(f"{share:.3f}" for share in shares),
                              f"{1 / (hosts - 1):.3f}"]), flush=True)
            claim_bytes(claims, f"{hosts} hosts, {owners}", hosts, *shares)


# ---- Scale ----

def milliseconds(text: str) -> float:
    return float(text.removesuffix("us")) / 1e3 if text.endswith("us") else float(text.removesuffix("ms"))


def scale(options, claims: report.Claims) -> None:
    ranks = min(options.ranks)
    steps = max(options.steps // 3, FIRST_STEPS + 5)
    print(f"\n## A scale that is agreed on, and one that is predicted: {steps} steps, {ranks} ranks, `incast`\n")
    print("Median steps, of turns that alternate. A round trip is twice two links there and back.\n")
    print(report.head(["delay of a link", "round trip, ms", "agreed on, ms", "predicted, ms", "saved, ms", "of a step",
                       "round trips saved"]))
    for delay in options.delays:
        found: Dict[str, List[float]] = {SWITCH: [], PREDICTED: []}
        for turn in range(1, options.seeds + 1):
            for name, medians in found.items():
                medians.append(train(options, "incast", ranks, VARIANTS[name], turn, steps, ["--delay", delay]).median_ms)
        agreed, predicted = (statistics.fmean(medians) for medians in found.values())
        round_trip = 4 * milliseconds(delay)
        print(report.row([delay, f"{round_trip:g}", f"{agreed:.1f}", f"{predicted:.1f}", f"{agreed - predicted:+.1f}",
                          report.per_cent(agreed - predicted, agreed, 1), f"{(agreed - predicted) / round_trip:+.1f}"]),
              flush=True)
        claims.add(f"links of {delay}: median step with a predicted scale over one that is agreed on", predicted / agreed,
                   report.at_most(1.0))


PARTS = {"accuracy": accuracy, "bytes": bytes_part, "scale": scale}


def main():
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--steps", 200, 24, "of training; a third of them for scale")
    parser.add_size("--seeds", 3, 1, "runs of each row, with seeds 1, 2, ...")
    parser.add_size("--ranks", [4, 8], [4], "that train", nargs="+")
    parser.add_size("--presets", list(PRESETS), ["incast"], "networks", type=str, nargs="+", metavar="NAME")
    parser.add_size("--evaluate-every", 10, 8, "steps")
    parser.add_size("--test-samples", 10_000, 1000, "to evaluate with")
    parser.add_size("--hosts", [4, 8], [4], "of part bytes", nargs="+")
    parser.add_size("--values", 1 << 21, 1 << 20, "of an all-reduce of part bytes")
    parser.add_size("--rounds", 10, 3, "all-reduces of part bytes")
    parser.add_size("--delays", ["10us", "500us", "2ms"], ["500us"], "of links, of part scale", type=str, nargs="+",
                    metavar="TIME")
    parser.add_argument("--rate", default="250mbit", help="of every host's link (250mbit): the network is the limit")
    options = parser.parse_args()
    print(f"# Gradients that are added on their way\n\n`experiments/thc/run.py{' --quick' * options.quick} --steps "
          f"{options.steps} --seeds {options.seeds} --rate {options.rate}`")
    report.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
