#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A typical user's PyTorch script: no log, no backend option, no mention of Spillway.

    tests/cli/compare_script.py [own-hook]
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH = 12, 512


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH, bias=False))
    if "own-hook" in sys.argv:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(8, WIDTH)).square().mean().backward()
        optimizer.step()
        schedule.step()
    print("backend", dist.get_backend(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
