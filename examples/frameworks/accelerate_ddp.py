#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DDP under Accelerate over a backend of your choice, on CPUs.

    torchrun --nproc_per_node 2 accelerate_ddp.py spillway|gloo
"""
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import spillway.torch  # registers the backend


def main():
    dist.init_process_group(sys.argv[1])  # first: Accelerate would choose from a list of its own
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(256, 20, generator=torch.Generator().manual_seed(0))
    batches = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    for _ in range(3):
        for numbers, targets in batches:
            loss = torch.nn.functional.mse_loss(model(numbers), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    accelerator.print(dist.get_backend(), "loss", float(accelerator.gather(loss.detach()).mean()))
    accelerator.end_training()


if __name__ == "__main__":
    main()
