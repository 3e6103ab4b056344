# SPDX-License-Identifier: Apache-2.0
"""A minimal user program: the one line, a sum, and an abrupt end."""
import torch
import torch.distributed as dist

import spillway.torch

dist.init_process_group("spillway")
total = torch.tensor(float(dist.get_rank() + 1))
dist.all_reduce(total)
everybody = [None] * dist.get_world_size()
dist.all_gather_object(everybody, dist.get_rank())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()} {everybody}", flush=True)
