#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The conventional way: torchrun restarts a job from a checkpoint on the local disk after a rank's death.

    torchrun --nproc_per_node N --max_restarts 1 restart.py --state-mb N --steps N --at N --out FOLDER

Trains what worker.py trains, over Gloo, with a checkpoint after every step, so that only the step in which rank 1 is
killed is lost. Writes event.json as worker.py does, and after the restart stepped.json {"time"} when the first step
has ended.
"""
import argparse
import json
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from worker import VICTIM, model_of


def write_time(path):
    path.write_text(json.dumps({"time": time.time()}))


def join_group(dist):
    """The store outlives restarts, so this start's keys get their own prefix: some releases of torch find the last
    one's addresses."""
    told = os.environ
    if told["TORCHELASTIC_USE_AGENT_STORE"] != "True":
        dist.init_process_group("gloo")
        return
    store = dist.TCPStore(told["MASTER_ADDR"], int(told["MASTER_PORT"]), is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(f"start {told['TORCHELASTIC_RESTART_COUNT']}", store),
                            rank=int(told["RANK"]), world_size=int(told["WORLD_SIZE"]))


def main():
    parser = argparse.ArgumentParser()
    for name in ("--state-mb", "--steps", "--at"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    join_group(dist)
    torch.manual_seed(1)
    model, width = model_of(options.state_mb)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    rank, first, checkpoint = dist.get_rank(), 0, options.out / "checkpoint.pt"
    is_restarted = checkpoint.exists()
    if is_restarted:
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        # Without its parameters, which are floats: torch 1.13 cannot read those with weights_only.
        optimizer.load_state_dict({**optimizer.state_dict(), "state": saved["optimizer"]})
        first = saved["step"]
    for step in range(first, options.steps):
        if step == options.at and rank == VICTIM and not is_restarted:
            write_time(options.out / "event.json")
            os.kill(os.getpid(), signal.SIGKILL)
        data = torch.randn(8, width, generator=torch.Generator().manual_seed(step * 100 + rank))
        optimizer.zero_grad()
        ddp(data).square().mean().backward()
        optimizer.step()
        if is_restarted and step == first and rank == 0:
            write_time(options.out / "stepped.json")
        if rank == 0 and not is_restarted:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"], "step": step + 1},
                       options.out / "part.pt")
            os.replace(options.out / "part.pt", checkpoint)
    dist.barrier()


if __name__ == "__main__":
    main()
