# SPDX-License-Identifier: Apache-2.0
"""The hosts of a lab when the last ones are parameter servers and the others workers: who a process is, and what it has
to be told for that. Once per process, before anything of Spillway is imported.
"""
import os
from typing import Optional

MEETING_PORT = 7100


def take_seat(servers: int) -> Optional[int]:
    """Which server this host is, from 0; None at a worker. Variables are then as `spillway ps` and workers want them."""
    if servers == 0:
        return None
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - servers
    os.environ.update(SPILLWAY_SERVERS=str(servers), SPILLWAY_COMM_ID=f"{os.environ['MASTER_ADDR']}:{MEETING_PORT}")
    if rank < workers:
        os.environ["WORLD_SIZE"] = str(workers)
        return None
    os.environ.update(SPILLWAY_WORLD_SIZE=str(workers), SPILLWAY_SERVER_INDEX=str(rank - workers))
    return rank - workers
