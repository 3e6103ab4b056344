# SPDX-License-Identifier: Apache-2.0
"""Sets the variables that init_process_group() reads, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, under mpirun and
srun.

These launchers set others, which say the same to the library. Variables that are set stay unchanged. If RANK is set,
torch goes by it, and so does this module.
"""
import os
from typing import Dict

from ..abi import default_library
from ..errors import LibraryNotFoundError


def torch_variables() -> Dict[str, str]:
    """The variables to set. None without the library: creating a group reports that."""
    if "RANK" in os.environ:
        return {}
    try:
        launch = default_library().launch()
    except LibraryNotFoundError:
        return {}
    if launch is None:
        return {}
    values = {"RANK": launch.rank, "WORLD_SIZE": launch.world,
              "LOCAL_RANK": launch.local_rank if launch.local_rank >= 0 else None,
              "LOCAL_WORLD_SIZE": launch.local_world if launch.local_world >= 0 else None,
              "MASTER_ADDR": launch.host.decode() or None, "MASTER_PORT": launch.port or None}
    return {name: str(value) for name, value in values.items() if value is not None and name not in os.environ}
