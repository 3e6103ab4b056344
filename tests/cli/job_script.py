# SPDX-License-Identifier: Apache-2.0
"""A torch script of job_test.py: an elastic job that trains until it is asked to end.

    job_script.py STANDBYS
"""
import sys
import time

import torch
import torch.distributed as dist

import spillway.torch

STEPS = 10**9  # the job is ended long before

torch.set_num_threads(1)
dist.init_process_group("spillway")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = spillway.torch.elastic(model, optimizer, standbys=int(sys.argv[1]))
for _ in job.steps(STEPS):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)  # leaves the processors to others
