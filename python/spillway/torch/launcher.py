# SPDX-License-Identifier: Apache-2.0
"""init_process_group() reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which mpirun and srun do not set.
What they do set says the same: this fills in what is missing and leaves what is there.

Where RANK is set, torch goes by it, and so does this. Else the order is the library's (src/runtime/launch.h):
SPILLWAY_*, Open MPI's, PMI's, Slurm's; rank and size always come from one family. Where the ranks meet:
SPILLWAY_COMM_ID, else this machine where all ranks are on it, else mpirun's or Slurm's first; the port follows
from the job's name.
"""
import re
import zlib
from typing import Dict, Mapping, NamedTuple, Optional, Tuple


class Family(NamedTuple):
    rank: str
    world: str
    local_rank: str
    local_world: str
    job: Tuple[str, ...]  # variables that name the job, the same at all ranks


SPILLWAY = Family("SPILLWAY_RANK", "SPILLWAY_WORLD_SIZE", "SPILLWAY_LOCAL_RANK", "SPILLWAY_LOCAL_WORLD_SIZE", ())
OPEN_MPI = Family("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"))
PMI = Family("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ("PMI_JOBID", "SLURM_JOB_ID"))
SLURM = Family("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
               ("SLURM_JOB_ID", "SLURM_STEP_ID"))

# Where Linux gives none to outgoing connections.
FIRST_PORT, PORTS = 20_000, 12_768


def family_of(environment: Mapping[str, str]) -> Optional[Family]:
    """None where torchrun's own variables are there, which torch goes by, or nobody's."""
    if "RANK" in environment:
        return None
    families = (SPILLWAY, OPEN_MPI, PMI, SLURM)
    return next((family for family in families if family.rank in environment and family.world in environment), None)


def derived_port(family: Family, environment: Mapping[str, str]) -> Optional[str]:
    words = [environment[name] for name in family.job if name in environment]
    return str(FIRST_PORT + zlib.crc32(" ".join(words).encode()) % PORTS) if words else None


def first_slurm_node(nodes: str) -> str:
    """"gnode[10,20-25],other" begins with gnode10."""
    bracket = re.match(r"([^\[,]+)\[([^,\-\]]+)", nodes)
    return bracket.group(1) + bracket.group(2) if bracket else nodes.split(",")[0]


def host_of_rank_zero(family: Family, environment: Mapping[str, str]) -> Optional[str]:
    if environment.get(family.world) == environment.get(family.local_world):
        return "127.0.0.1"
    mpirun = re.search(r"tcp6?://\[?([^,:\]]+)", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    if family is OPEN_MPI:
        return mpirun.group(1) if mpirun else None
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    return first_slurm_node(nodes) if nodes else None


def meeting_place(family: Family, environment: Mapping[str, str]) -> Tuple[Optional[str], Optional[str]]:
    host, colon, port = environment.get("SPILLWAY_COMM_ID", "").rpartition(":")
    if colon:
        # The library may listen at that very port.
        return host.strip("[]"), str(int(port) + 1) if port.isdigit() else None
    return host_of_rank_zero(family, environment), derived_port(family, environment)


def torch_variables(environment: Mapping[str, str]) -> Dict[str, str]:
    """What is to be set."""
    family = family_of(environment)
    if family is None:
        return {}
    host, port = meeting_place(family, environment)
    values = {"RANK": environment[family.rank], "WORLD_SIZE": environment[family.world],
              "LOCAL_RANK": environment.get(family.local_rank), "LOCAL_WORLD_SIZE": environment.get(family.local_world),
              "MASTER_ADDR": host, "MASTER_PORT": port}
    return {name: value for name, value in values.items() if value and name not in environment}
