#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same program under torchrun, under mpirun, and with variables set by hand.

    tests/python/launch_test.py LIBRARY [unittest's arguments]

Without torch it skips: exit code 77.
"""
import os
import shutil
import subprocess
import sys
import unittest
from unittest import mock

from torch_ranks import HERE, PACKAGE, prepare

from harness.processes import RankProcesses, Started, free_port, python
from harness.tiers import TierLoader, long_tier

PROGRAM = HERE / "launched_program.py"
ELASTIC_PROGRAM = HERE / "elastic_program.py"
WORLD = 2
# Open MPI: allow root, more ranks than cores, and only this machine.
MPIRUN = ["mpirun", "-n", str(WORLD), "--oversubscribe", "--bind-to", "none", "--host", f"localhost:{WORLD}"]
ALLOW_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

prepare()

from spillway.torch.registration import torch_variables

os.environ["PYTHONPATH"] = str(PACKAGE)  # for all processes started here


def launch(*command, **variables):
    """A running launcher; its output and its ranks' share one pipe."""
    return Started(command, env={**os.environ, **variables}, stderr=subprocess.STDOUT, start_new_session=True)


def torchrun(*arguments):
    # Debian's torchrun 1.13 fails under Python 3.11 unless output is redirected. By default it checks its ranks only
    # every five seconds.
    return launch(sys.executable, "-m", "torch.distributed.run", "-r", "1", "--tee", "1", "--monitor_interval", "0.1",
                  "--master_addr", "127.0.0.1", *arguments)


class Launch(unittest.TestCase):
    def check(self, output):
        for rank in range(WORLD):
            self.assertIn(f"rank {rank} of {WORLD}: 3.0 [0, 1]", output)

    def check_launcher(self, started):
        with started as launcher:
            output, _ = launcher.finish()
        self.assertEqual(launcher.returncode, 0, output)
        self.check(output)

    def test_torchrun(self):
        self.check_launcher(torchrun("--nproc_per_node", WORLD, "--master_port", free_port(), PROGRAM))

    @long_tier
    @unittest.skipIf(shutil.which("mpirun") is None, "mpirun is not installed")
    def test_mpirun(self):
        self.check_launcher(launch(*MPIRUN, *python(PROGRAM), **ALLOW_ROOT))

    def test_spillways_own_variables(self):
        with RankProcesses(WORLD, lambda rank: python(PROGRAM), meeting=f"127.0.0.1:{free_port()}") as ranks:
            self.check("".join(ranks.finish()))


@long_tier
class ElasticLaunch(unittest.TestCase):
    """A rank is killed, and the launcher's reaction does not end the job."""

    def check(self, output, ranks, epoch):
        for rank in ranks:
            self.assertIn(f"rank {rank} of 2 has come to the end in epoch {epoch}", output)

    @unittest.skipIf(shutil.which("mpirun") is None, "mpirun is not installed")
    def test_mpirun_that_was_told_to_let_others_live(self):
        with launch("mpirun", "-n", "3", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "--host",
                    "localhost:3", *python(ELASTIC_PROGRAM, 1), **ALLOW_ROOT) as launcher:
            self.check(launcher.finish()[0], (0, 1), 2)

    def test_torchrun_of_several_machines(self):
        """torchrun ends the processes of the machine where one died; the others continue."""
        port = free_port()
        machines = [torchrun("--nnodes", 3, "--node_rank", machine, "--nproc_per_node", 1, "--master_port", port,
                             ELASTIC_PROGRAM, 1) for machine in range(3)]
        for machine in machines:
            self.addCleanup(machine.end)
        outputs = [machine.finish()[0] for machine in machines]
        self.check(outputs[0], (0,), 2)
        self.check(outputs[2], (1,), 2)
        self.assertEqual([machine.returncode == 0 for machine in machines], [True, False, True], outputs)


class LauncherVariables(unittest.TestCase):
    def torch_variables(self, **variables):
        """The variables for a process with these and none of any launcher."""
        with mock.patch.dict(os.environ, clear=True):
            os.environ.update(variables)
            return torch_variables()

    def test_torchruns_own_go_before_slurms(self):
        self.assertEqual(self.torch_variables(RANK="1", WORLD_SIZE="2", SLURM_PROCID="0", SLURM_NTASKS="1"), {})

    def test_without_a_launcher_there_is_nothing_to_say(self):
        self.assertEqual(self.torch_variables(), {})
        self.assertEqual(self.torch_variables(SLURM_NTASKS="1"), {})

    def test_open_mpis_on_one_machine(self):
        made = self.torch_variables(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", SLURM_PROCID="0",
                                    OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_SIZE="2", PMIX_NAMESPACE="job")
        self.assertEqual((made["RANK"], made["WORLD_SIZE"], made["LOCAL_RANK"]), ("1", "2", "1"))
        self.assertEqual(made["MASTER_ADDR"], "127.0.0.1")
        self.assertTrue(20_000 <= int(made["MASTER_PORT"]) < 32_768)

    def test_open_mpis_on_several_meet_where_mpirun_is(self):
        made = self.torch_variables(OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_LOCAL_SIZE="2",
                                    PMIX_NAMESPACE="job",
                                    OMPI_MCA_orte_hnp_uri="185.0;tcp://192.0.2.2,10.0.0.2:33685")
        self.assertEqual(made["MASTER_ADDR"], "192.0.2.2")
        self.assertNotIn("LOCAL_RANK", made)

    def test_slurms_meet_at_the_first_node(self):
        made = self.torch_variables(SLURM_PROCID="1", SLURM_NTASKS="8", SLURM_LOCALID="1", SLURM_JOB_ID="7",
                                    SLURM_TASKS_PER_NODE="1(x8)", SLURM_JOB_NODELIST="gnode[10,20-25],other")
        self.assertEqual(made, {})  # the second task of a node that has one: no rank
        made = self.torch_variables(SLURM_PROCID="1", SLURM_NTASKS="8", SLURM_LOCALID="1", SLURM_JOB_ID="7",
                                    SLURM_TASKS_PER_NODE="2(x4)", SLURM_JOB_NODELIST="gnode[10,20-25],other")
        self.assertEqual((made["RANK"], made["WORLD_SIZE"], made["MASTER_ADDR"]), ("1", "8", "gnode10"))

    def test_a_meeting_place_that_is_given_is_taken(self):
        made = self.torch_variables(PMI_RANK="0", PMI_SIZE="2", SPILLWAY_COMM_ID="[fd00::1]:29500", MASTER_PORT="5")
        self.assertEqual(made["MASTER_ADDR"], "fd00::1")
        self.assertNotIn("MASTER_PORT", made)


if __name__ == "__main__":
    unittest.main(testLoader=TierLoader())
