#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/trainmover: trains as an elastic job, with the fault that it is told to have.

    worker.py --ranks N --state-mb N --steps N --trouble none|kill|silent|move --at N --out FOLDER

All hosts beyond --ranks are standbys. The fault happens at rank 1, or rank 0 requests it, in step --at. Training runs
in its own process, so that its death is not the host's. Writes to the folder

    event.json      {"time"}: wall-clock time of the fault
    N.json          of the process begun as N: {"rank", "changes", "steps": [[step, begun, ended, epoch], ...], "bytes"}
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

VICTIM = 1
LAYERS = 4
BYTES_A_VALUE = 8   # a parameter and its momentum
SILENCE_ENDS_S = 60


def model_of(state_mb):
    """Square layers whose parameters and momenta have this total size."""
    import torch
    width = int((state_mb * 1e6 / BYTES_A_VALUE / LAYERS) ** 0.5)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(width, width), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers), width


def go_silent():
    """Takes the host's link down: the host is up, but nobody hears from it."""
    listed = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    device = next(line.split()[1] for line in listed.splitlines() if " lo " not in line)
    subprocess.run(["ip", "link", "set", device.split("@")[0], "down"], check=True)


def have_trouble(options, job):
    def write():
        (options.out / "event.json").write_text(json.dumps({"time": time.time()}))
    if options.trouble == "move":
        if job.rank == 0:
            write()
            threading.Thread(target=job._job.ask, args=(f"move {VICTIM}", 60.0), daemon=True).start()
    elif job.rank == VICTIM:
        write()
        if options.trouble == "silent":
            go_silent()
            end = time.time() + SILENCE_ENDS_S
            while time.time() < end and not (options.out / "0.json").exists():
                time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)


def train(options):
    import torch
    import torch.distributed as dist
    import spillway.torch
    torch.set_num_threads(1)
    dist.init_process_group("spillway")
    began_as = dist.get_rank()
    torch.manual_seed(1)
    model, width = model_of(options.state_mb)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    job = spillway.torch.elastic(ddp, optimizer, standbys=dist.get_world_size() - options.ranks)
    steps = []
    for step in job.steps(options.steps):
        begun = time.time()
        if options.trouble != "none" and step == options.at and job.epoch == 1 and job.rank is not None:
            have_trouble(options, job)
        data = torch.randn(8, width, generator=torch.Generator().manual_seed(step * 100 + (job.rank or 0)))
        optimizer.zero_grad()
        ddp(data).square().mean().backward()
        optimizer.step()
        if not job.is_lost:
            steps.append([step, begun, time.time(), job.epoch])
    (options.out / f"{began_as}.json").write_text(json.dumps(
        {"rank": job.rank, "changes": job.changes, "steps": steps,
         "bytes": sum(p.numel() * BYTES_A_VALUE for p in model.parameters())}))


def main():
    parser = argparse.ArgumentParser()
    for name in ("--ranks", "--state-mb", "--steps", "--at"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--trouble", choices=("none", "kill", "silent", "move"), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    child = os.fork()
    if child == 0:
        train(options)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        sys.exit(0)  # killed as requested
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
