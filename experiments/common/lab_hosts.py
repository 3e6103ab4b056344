# SPDX-License-Identifier: Apache-2.0
"""Roles in a lab whose last hosts are parameter servers and whose others are workers. Call take_role() once per
process, before anything of Spillway is imported.
"""
import os
from typing import List, Optional

MEETING_PORT = 7100


def take_role(servers: int) -> Optional[int]:
    """This host's server index, from 0; None for a worker. Sets the variables that servers and workers need."""
    if servers == 0:
        return None
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - servers
    os.environ.update(SPILLWAY_SERVERS=str(servers), SPILLWAY_COMM_ID=f"{os.environ['MASTER_ADDR']}:{MEETING_PORT}")
    if rank < workers:
        os.environ["WORLD_SIZE"] = str(workers)
        return None
    os.environ["SPILLWAY_WORLD_SIZE"] = str(workers)
    return rank - workers


def server_command(binary: str, index: int, output: str) -> List[str]:
    """The command of a parameter server; `output` is --json or --quiet."""
    return [binary, "server", "--index", str(index), output]
