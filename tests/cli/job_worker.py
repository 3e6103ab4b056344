# SPDX-License-Identifier: Apache-2.0
"""A process of job_test.py: adds ones with the others, step after step, without torch. The state is the step's
number.

    job_worker.py PATH_TO_PACKAGE STANDBYS [STEP_SECONDS]

Runs under `spillway job run`, or joins; ends with the job.
"""
import ctypes
import os
import sys
import time

sys.path.insert(0, sys.argv[1])

import spillway


STEP_S = float(sys.argv[3]) if len(sys.argv) > 3 else 0.02


def adds_up(comm):
    one, total = ctypes.c_float(1.0), ctypes.c_float()
    comm.run("all_reduce", ctypes.addressof(one), ctypes.addressof(total), 1, spillway.FLOAT32, spillway.SUM)
    assert total.value == comm.world, (total.value, comm.world)


def main():
    ticket = os.environ.get("SPILLWAY_JOB")
    if ticket:
        job, change = spillway.Job.join(ticket), None
    else:
        job = spillway.Job.found(spillway.Communicator(), standbys=int(sys.argv[2]))
        change = job.first_change()
    step, has_state = 0, change is not None and change.rank is not None
    while True:
        if change is None or change.rank is None:
            change = job.park(step, has_state=False)
        if change.ends:
            print(f"ended: {change.why}", flush=True)
            return
        if change.rank is None:
            continue
        comm, step = job.communicator(), change.step
        print(f"epoch {change.epoch}: rank {change.rank} of {change.world}", flush=True)
        try:
            while not job.step(step, 0.001):
                adds_up(comm)
                time.sleep(STEP_S)  # stands for computing, and leaves the processors to others
                step += 1
        except spillway.SpillwayError:
            pass
        comm.close()
        change = job.park(step)


if __name__ == "__main__":
    main()
