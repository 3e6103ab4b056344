#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills processes of an elastic job on loopback again and again, and replaces each by a new standby.

    kills.py --library FILE --out FILE [--model mlp|conv] [--codec exact|planes] [--kills N] [--seed N]
    kills.py --library FILE --out FILE --preparing --steps N

Processes are forked from this one, which has imported torch, so a new one starts at once. Any process may be killed,
at a random moment, standbys included, as long as two standbys are ready. Writes

    {"kills", "steps", "downtime_p50_ms", "downtime_max_ms", "accuracy", "undisturbed", "is_same"}

or with --preparing

    {"without_ms", "while_ms", "beside_ms", "joins", "standby_percent"}

These are step times without standbys, while standbys join, and while as many independent processes do the same work,
which is the cost of sharing a machine with them; and the processor use of a waiting standby.
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

RANKS, STANDBYS = 4, 2
FEATURES, CLASSES, BATCH, TESTED = 64, 10, 16, 4000
LARGE_BATCH = 512               # for steps that are long compared to what is measured
PATIENCE_S, LAST_PATIENCE_S = 120.0, 900.0
MOST_JOINS = 8
SETTLING_S, WATCHED_S = 3.0, 5.0  # of a standby: until it waits, and its observation
LEAST_GAP_S, GAP_S = 0.05, 0.5  # from a ready standby to the next kill
STEPS_A_KILL, LAST_STEPS = 15, 100
PAUSE_S = 0.03                  # per step of a run with kills, so that it lasts until the last one


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- One process ----

def model_named(name):
    import torch
    torch.manual_seed(1)
    if name == "mlp":
        return torch.nn.Sequential(torch.nn.Linear(FEATURES, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                                   torch.nn.Linear(256, CLASSES))
    return torch.nn.Sequential(torch.nn.Unflatten(1, (1, 8, 8)), torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(),
                               torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(32 * 16, CLASSES))


def samples(seed, count):
    """A fixed random layer decides the classes."""
    import torch
    inputs = torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(seed))
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs @ teacher).argmax(1)


def train(options, steps, environment, said, standbys, pause_s):
    """`said`: a pipe for reports."""
    os.environ.update(environment)
    import torch
    import torch.distributed as dist
    import spillway.torch
    torch.set_num_threads(1)
    dist.init_process_group("spillway")
    model = model_named(options.model)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    if options.codec == "planes":
        spillway.torch.attach(ddp, spillway.torch.Planes(8))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02, momentum=0.9)
    job = spillway.torch.elastic(ddp, optimizer, standbys=standbys)
    said.send({"ticket": job.ticket, "rank": job.rank, "epoch": 1})
    last = 0
    for step in job.steps(steps):
        begun = time.time()
        inputs, targets = samples(1 + step * 100 + (job.rank or 0), LARGE_BATCH if options.preparing else BATCH)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(inputs), targets).backward()
        optimizer.step()
        time.sleep(pause_s)
        is_telling = options.preparing or len(job.changes) != last or step % 20 == 0
        if job.rank == 0 and not job.is_lost and is_telling:
            last = len(job.changes)
            said.send({"step": step, "epoch": job.epoch, "time": time.time(), "took": time.time() - begun})
    inputs, targets = samples(99, TESTED)
    model.eval()
    with torch.no_grad():
        accuracy = 100.0 * float((model(inputs).argmax(1) == targets).float().mean())
    parameters = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    said.send({"end": True, "rank": job.rank, "accuracy": accuracy, "digest": hashlib.sha256(parameters).hexdigest()})


# ---- All processes ----

class Process:
    def __init__(self, options, steps, environment, standbys, pause_s):
        context = multiprocessing.get_context("fork")
        self.heard, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=train, args=(options, steps, environment, theirs, standbys, pause_s))
        self.process.start()
        theirs.close()
        self.ticket, self.end, self.told = None, None, []

    def listen(self):
        try:
            while self.heard.poll():
                word = self.heard.recv()
                self.ticket = word.get("ticket", self.ticket)
                self.end = word if word.get("end") else self.end
                self.told.append(word)
        except EOFError:
            pass

    def is_alive(self):
        return self.process.is_alive()


class Fleet:
    def __init__(self, options, steps, standbys, pause_s=0.0):
        self._options, self._steps, self._pause_s = options, steps, pause_s
        port = free_port()
        self.processes = [Process(options, steps, {"RANK": str(rank), "WORLD_SIZE": str(RANKS + standbys),
                                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}, standbys,
                                  pause_s)
                          for rank in range(RANKS + standbys)]

    def living(self):
        for process in self.processes:
            process.listen()
        return [process for process in self.processes if process.is_alive()]

    def add_standby(self):
        ticket = next(process.ticket for process in self.living() if process.ticket)
        self.processes.append(Process(self._options, self._steps, {
            "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "SPILLWAY_JOB": ticket}, 0, self._pause_s))

    def wait_until_ready(self, count):
        """False if the job has ended."""
        end = time.time() + PATIENCE_S
        while time.time() < end:
            living = self.living()
            if any(process.end for process in self.processes):
                return False
            if not living:
                sys.exit("all processes have ended, and the job has not")
            if sum(process.ticket is not None for process in living) >= count:
                return True
            time.sleep(0.01)
        sys.exit(f"after {PATIENCE_S:g} s there are not {count} processes that are ready")

    def wait_for_end(self):
        end = time.time() + LAST_PATIENCE_S
        while self.living() and time.time() < end:
            time.sleep(0.05)
        ranks = [process.end for process in self.processes if process.end and process.end["rank"] is not None]
        for process in self.living():
            process.process.kill()
        if sorted(each["rank"] for each in ranks) != list(range(RANKS)):
            sys.exit(f"not all ranks came to the end: {ranks}")
        if len({each["digest"] for each in ranks}) != 1:
            sys.exit(f"ranks do not agree: {ranks}")
        return ranks[0]

    def told(self):
        for process in self.processes:
            process.listen()
        return sorted((word for process in self.processes for word in process.told if "step" in word),
                      key=lambda word: word["time"])


def downtimes(killed, told):
    """From each kill to the first step of the epoch that it caused; a standby's kill causes none."""
    found = []
    for at, when in enumerate(killed):
        before = killed[at + 1] if at + 1 < len(killed) else float("inf")
        epoch = max((word["epoch"] for word in told if word["time"] <= when), default=1)
        first = next((word for word in told if when < word["time"] < before and word["epoch"] > epoch), None)
        if first is not None:
            found.append(1000 * (first["time"] - when))
    return found


def kill_again_and_again(options):
    steps = options.steps or STEPS_A_KILL * options.kills + LAST_STEPS
    drawn, killed = random.Random(options.seed), []
    fleet = Fleet(options, steps, STANDBYS, PAUSE_S)
    while len(killed) < options.kills and fleet.wait_until_ready(RANKS + STANDBYS):
        time.sleep(LEAST_GAP_S + GAP_S * drawn.random())
        victim = drawn.choice([process for process in fleet.living() if process.ticket])
        killed.append(time.time())
        victim.process.kill()
        victim.process.join()
        fleet.add_standby()
    ended = fleet.wait_for_end()
    plain = Fleet(options, steps, 0).wait_for_end()
    lasted = downtimes(killed, fleet.told()) or [0.0]
    return {"kills": len(killed), "steps": steps, "downtime_p50_ms": statistics.median(lasted),
            "downtime_max_ms": max(lasted), "accuracy": ended["accuracy"], "undisturbed": plain["accuracy"],
            "is_same": ended["digest"] == plain["digest"]}


def prepare_beside(options):
    fleet, joins, beside = Fleet(options, options.steps, 0), [], []
    fleet.wait_until_ready(RANKS)
    while len(joins) < MOST_JOINS and fleet.wait_until_ready(RANKS + len(joins)):
        time.sleep(0.5)
        beside.append(span_of(lambda: train_alone(options)))
        time.sleep(0.5)
        if fleet.wait_until_ready(RANKS + len(joins)):
            joins.append(span_of(lambda: fleet.add_standby() or fleet.wait_until_ready(RANKS + len(joins) + 1)))
    used_s, waited_s = processor_use(fleet.processes[-1].process.pid) if joins else (0.0, 1.0)
    fleet.wait_for_end()
    steps = fleet.told()

    def median_ms(spans, is_within=True):
        took = [word["took"] for word in steps if any(begin <= word["time"] <= end for begin, end in spans) == is_within]
        return 1000 * statistics.median(took or [word["took"] for word in steps])

    return {"without_ms": median_ms(joins + beside, is_within=False), "while_ms": median_ms(joins),
            "beside_ms": median_ms(beside), "joins": len(joins), "standby_percent": 100 * used_s / waited_s}


def processor_use(process):
    """Processor seconds that a waiting standby uses, and the seconds of its observation."""
    def used_s():
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    time.sleep(SETTLING_S)
    begun, before = time.time(), used_s()
    time.sleep(WATCHED_S)
    return used_s() - before, time.time() - begun


def train_alone(options):
    """Runs a process of the same kind as a job of its own."""
    process = Process(options, 1, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                                   "MASTER_PORT": str(free_port())}, 0, 0.0)
    process.process.join()


def span_of(action):
    begin = time.time()
    action()
    return begin, time.time()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--model", choices=("mlp", "conv"), default="mlp")
    parser.add_argument("--codec", choices=("exact", "planes"), default="exact")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preparing", action="store_true")
    options = parser.parse_args()
    os.environ.update({"SPILLWAY_LIBRARY": options.library, "SPILLWAY_SOCKET_IFNAME": "=lo", "OMP_NUM_THREADS": "1",
                       "SPILLWAY_DEBUG": "NONE"})
    import torch.distributed  # once here, so that no process repeats it
    options.out.write_text(json.dumps(prepare_beside(options) if options.preparing else kill_again_and_again(options)))


if __name__ == "__main__":
    main()
