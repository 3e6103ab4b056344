#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/thc that only adds up: the last --servers ranks are parameter servers.

    sums.py --spillway BINARY --servers N --values N --rounds N --folder FOLDER

Workers run --rounds all-reduces of --values numbers with levels of 4 bits. Every host writes to FOLDER/RANK the
bytes that its link carried up, including the rendezvous.
"""
import argparse
import ctypes
import os
import pathlib
import random
import subprocess
import sys

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXPERIMENTS))

from common.lab_hosts import server_command, take_role

BITS = 4
PATTERN = 4096  # values that are drawn; the others repeat them
COUNTERS = pathlib.Path("/proc/net/dev")


def bytes_sent():
    """From the host's only link: the ninth number after its name."""
    line = next(line for line in COUNTERS.read_text().splitlines() if line.strip().startswith("eth0:"))
    return int(line.split(":")[1].split()[8])


def gaussians(count, seed):
    draw = random.Random(seed)
    pattern = (ctypes.c_float * PATTERN)(*(draw.gauss(0, 1) for _ in range(PATTERN)))
    values = (ctypes.c_float * count)()
    for first in range(0, count, PATTERN):
        ctypes.memmove(ctypes.byref(values, 4 * first), pattern, 4 * min(PATTERN, count - first))
    return values


def add_up(options):
    import spillway
    from spillway import abi

    with spillway.Communicator() as communicator:
        choice = communicator.library.tolerant_options(codec=abi.CODECS.index("levels"), precision=BITS, loss_bound=0.0)
        values = gaussians(options.values, communicator.rank)
        result = (ctypes.c_float * options.values)()
        for _ in range(options.rounds):
            communicator.run("all_reduce", values, result, options.values, abi.FLOAT32, abi.AVERAGE, options=choice)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spillway", required=True)
    for name in ("--servers", "--values", "--rounds"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    options = parser.parse_args()
    rank = os.environ["RANK"]
    index = take_role(options.servers)
    if index is None:
        add_up(options)
    else:
        subprocess.run(server_command(options.spillway, index, "--quiet"), check=True)
    (options.folder / rank).write_text(str(bytes_sent()))


if __name__ == "__main__":
    main()
