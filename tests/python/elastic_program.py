# SPDX-License-Identifier: Apache-2.0
"""An elastic job that a launcher starts: the process that begins as rank 1 dies in step 5, and the others continue.

    elastic_program.py STANDBYS
"""
import os
import signal
import sys

import torch
import torch.distributed as dist

import spillway.torch

VICTIM, FATAL_STEP, STEPS = 1, 5, 12

dist.init_process_group("spillway")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = spillway.torch.elastic(model, optimizer, standbys=int(sys.argv[1]))
for step in job.steps(STEPS):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    if step == FATAL_STEP and job.rank == VICTIM and job.epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
print(f"rank {job.rank} of {job.world} has come to the end in epoch {job.epoch}\n", end="", flush=True)
