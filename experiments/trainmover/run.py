#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that outlive their machines: how long training stands still, by phase, against a restart from a checkpoint.

  experiments/trainmover/run.py [--quick] [--json FILE] [--part phases|preparing|kills] [--ranks N ...] [--states MB ...]
                                [--rate RATE] [--steps N] [--kills N] [--python PYTHON]

phases: in the lab a rank is killed, falls silent or is moved. Downtime runs from that moment (for a move: from when
the first rank stands still) until the last rank has done its first step, including the repeated one. preparing: step
times while a standby joins, and without. kills: kills processes at random for the whole run, and compares the model's
bits with an undisturbed run's. Needs root, or user namespaces, and python3-torch. Prints Markdown; result.md is its
last output.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report

PYTHON = "/usr/bin/python3"  # Debian's torch belongs to it
AT = 6                       # the step with the fault
TROUBLES = ("kill", "silent", "move")
PHASES = ("detect", "decide", "connect", "state", "first step")
PEER_TIMEOUT_S = 1.4         # the default: a host that is silent for so long is dead
PAPER = "TrainMover: about 20 s at 1,024 GPUs, detection not counted; restart of Megatron-LM 80 s at 32 GPUs"
LIMIT_S = 400


class Outcome(NamedTuple):
    phases: Dict[str, float]
    downtime_s: float
    step_s: float         # median of ordinary steps
    joiner_step_s: float  # its first
    state_mb: float


# ---- One run in the lab ----

def lab_command(options, hosts: int, command: List[str]) -> List[str]:
    return [options.spillway, "lab", "run", "--preset", "clean", "--hosts", str(hosts), "--rate", options.rate, "--grace",
            str(LIMIT_S), "--", options.python, *command]


def run_worker(options, ranks: int, state_mb: int, trouble: str, folder: pathlib.Path) -> List[Dict[str, Any]]:
    """The output of each process that trained to the end."""
    standbys = 0 if trouble == "none" else 1
    report.output_of(lab_command(options, ranks + standbys, [
        str(HERE / "worker.py"), "--ranks", str(ranks), "--state-mb", str(state_mb), "--steps", str(options.steps),
        "--trouble", trouble, "--at", str(AT), "--out", str(folder)]))
    written = [json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*.json"))]
    return [each for each in written if each["rank"] is not None]


def outcome_of(trained: List[Dict[str, Any]], trouble: str, event_s: float) -> Outcome:
    """Phases end when the last rank has ended them, so they add up."""
    changes = [each["changes"][-1] for each in trained]
    stopped = [each["changes"][-1] for each in trained if each["steps"][0][3] == 1]  # a standby stood still before
    told = [change["interrupted"] or change["parked"] for change in stopped]
    begin = min(change["parked"] for change in stopped) if trouble == "move" else event_s
    ends = {"detect": begin if trouble == "move" else max(told), "decide": max(each["decided"] for each in changes),
            "connect": max(each["connected"] for each in changes), "state": max(each["state"] for each in changes),
            "first step": max(each["stepped"] for each in changes)}
    phases, before = {}, begin
    for name in PHASES:
        phases[name], before = ends[name] - before, ends[name]
    ordinary = [ended - begun for each in trained for step, begun, ended, epoch in each["steps"]
                if epoch == 1 and 1 < step < AT]
    joiner = next(each for each in trained if each["steps"] and each["steps"][0][3] > 1)
    _, begun, ended, _ = joiner["steps"][0]
    return Outcome(phases, ends["first step"] - begin, statistics.median(ordinary), ended - begun,
                   trained[0]["bytes"] / 1e6)


def change_in_lab(options, ranks: int, state_mb: int, trouble: str) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trained = run_worker(options, ranks, state_mb, trouble, folder)
        event = json.loads((folder / "event.json").read_text())
        return outcome_of(trained, trouble, event["time"])


# ---- The conventional way ----

def restart(options, ranks: int, state_mb: int) -> Optional[float]:
    """Seconds from the kill to the end of the first step after it, over loopback, without the lab's network."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [options.python, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--max_restarts", "1",
                   "-r", "1", "--tee", "1", "--log_dir", str(folder / "logs"), "--standalone",
                   str(HERE / "restart.py"), "--state-mb", str(state_mb), "--steps", str(AT + 3), "--at", str(AT),
                   "--out", str(folder)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, capture_output=True, check=False, timeout=LIMIT_S)
        times = [folder / "event.json", folder / "stepped.json"]
        if not all(path.exists() for path in times):
            return None
        killed, stepped = (json.loads(path.read_text())["time"] for path in times)
        return stepped - killed


# ---- Parts ----

def phases(options, claims: report.Claims) -> None:
    rows = []
    for ranks in options.ranks:
        for state_mb in options.states:
            again = restart(options, ranks, state_mb)
            for trouble in TROUBLES:
                if trouble == "silent" and state_mb != options.states[0]:
                    continue  # detection does not depend on the state
                made = change_in_lab(options, ranks, state_mb, trouble)
                rows.append([str(ranks), f"{made.state_mb:.0f} MB", trouble,
                             *(f"{1000 * made.phases[phase]:.0f}" for phase in PHASES), f"{1000 * made.downtime_s:.0f}",
                             f"{1000 * made.step_s:.0f}", f"{1000 * made.joiner_step_s:.0f}",
                             "-" if again is None else f"{1000 * again:.0f}"])
                judge(options, claims, ranks, trouble, made, again)
                print(f"{ranks} ranks, {made.state_mb:.0f} MB, {trouble}: {made.downtime_s:.2f} s", file=sys.stderr, flush=True)
    columns = ["ranks", "state", "trouble", *PHASES, "downtime, ms", "a step", "the joiner's first", "restart"]
    print("\n## Downtime by phase, ms\n\n" + report.table(columns, rows), end="", flush=True)


def judge(options, claims: report.Claims, ranks: int, trouble: str, made: Outcome, again: Optional[float]) -> None:
    what = f"{ranks} ranks, {made.state_mb:.0f} MB"
    if trouble == "kill":
        is_small = made.state_mb < 50
        link_s = made.state_mb * 8e6 / rate_of(options.rate)
        limit = 1.0 if is_small else link_s + 0.5
        claims.add(f"downtime of a killed process, {what}, s", made.downtime_s, report.at_most(limit), paper=PAPER)
        claims.add(f"the joiner's first step over an ordinary one, {what}", made.joiner_step_s / made.step_s,
                   report.at_most(1.5))
        if again is not None:
            claims.add(f"a restart's downtime over it, {what}", again / made.downtime_s, report.at_least(10))
    elif trouble == "silent":
        claims.add(f"a silent host is noticed, {what}, s", made.phases["detect"], report.at_most(PEER_TIMEOUT_S + 0.5))
    else:
        claims.add(f"a planned move's downtime over a step, {what}", made.downtime_s / made.step_s, report.at_most(1.5))


def rate_of(text: str) -> float:
    units = {"mbit": 1e6, "gbit": 1e9}
    return float(text[:-4]) * units[text[-4:]]


def preparing(options, claims: report.Claims) -> None:
    """A standby starts, builds its model and rehearses in its own process, beside a job of two ranks."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [options.python, str(HERE / "kills.py"), "--library", options.library, "--preparing", "--model", "conv",
                   "--steps", str(400 if options.quick else 1200), "--out", str(folder / "out.json")]
        report.output_of(command)
        told = json.loads((folder / "out.json").read_text())
    ratio = told["while_ms"] / told["without_ms"]
    claims.add("steps while a standby joins over steps without", ratio, report.at_most(1.03))
    claims.add("the same over steps beside a process that joins nothing", told["while_ms"] / told["beside_ms"],
               report.at_most(1.03))
    claims.add("of a processor, a standby that waits uses, per cent", told["standby_percent"], report.at_most(1))
    print(f"\n## While a standby joins\n\nMedian step {told['without_ms']:.2f} ms without, {told['while_ms']:.2f} ms while "
          f"standbys join one after the other ({told['joins']} of them): {ratio:.3f}. While processes of their kind start "
          f"on the same machine and join nothing: {told['beside_ms']:.2f} ms. A standby that waits uses "
          f"{told['standby_percent']:.2f} % of a processor.")


def kills(options, claims: report.Claims) -> None:
    rows = []
    for model in ("mlp", "conv"):
        for codec in ("exact", "planes"):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                report.output_of([options.python, str(HERE / "kills.py"), "--library", options.library, "--model", model,
                                  "--codec", codec, "--kills", str(options.kills // 4), "--out", str(folder / "out.json")])
                told = json.loads((folder / "out.json").read_text())
            rows.append([model, codec, str(told["kills"]), str(told["steps"]), f"{told['downtime_p50_ms']:.0f}",
                         f"{told['downtime_max_ms']:.0f}", f"{told['accuracy']:.2f}", f"{told['undisturbed']:.2f}",
                         "yes" if told["is_same"] else "no"])
            if codec == "exact":
                claims.add(f"{model}, {told['kills']} kills: ends with the same bits", float(told["is_same"]),
                           report.at_least(1))
            else:
                claims.add(f"{model}, {told['kills']} kills, planes: points of accuracy lost",
                           told["undisturbed"] - told["accuracy"], report.at_most(0.5),
                           paper="torchft: 1,200 failures, a training loss like an undisturbed one's")
    columns = ["model", "codec", "kills", "steps", "downtime p50, ms", "longest", "accuracy, %", "undisturbed",
               "same bits"]
    print("\n## Killed again and again\n\n4 ranks and 2 standbys on loopback, every killed process replaced.\n\n" +
          report.table(columns, rows), end="", flush=True)


PARTS = {"phases": phases, "preparing": preparing, "kills": kills}


def main() -> None:
    parser = report.Parser(__doc__)
    parser.add_binary()
    parser.add_parts(PARTS)
    parser.add_size("--ranks", [4, 8], [4], "ranks of the lab", nargs="+")
    parser.add_size("--states", [10, 400], [10], "MB of parameters and momenta", nargs="+")
    parser.add_size("--steps", 14, 12, "of a run in the lab")
    parser.add_size("--kills", 1000, 20, "in all")
    parser.add_argument("--rate", default="1gbit", help="of the lab's links")
    parser.add_argument("--python", default=PYTHON, help="that has torch")
    parser.add_argument("--library", default=str(report.BUILD / "lib/libspillway.so"))
    options = parser.parse_args()
    print(f"# Jobs that outlive their machines\n\n`experiments/trainmover/run.py{' --quick' * options.quick} --rate "
          f"{options.rate}`")
    report.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
