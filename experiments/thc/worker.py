#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/thc: the last --servers ranks are parameter servers, the others train (common/lab_training.py).

    worker.py --spillway BINARY --servers N --steps N --seed N --evaluate-every N --test-samples N --hook HOOK --log FILE
"""
import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.lab_hosts import server_command, take_role
from common.lab_training import add_options, train


def main():
    parser = add_options(argparse.ArgumentParser(), "--servers")
    parser.add_argument("--spillway", required=True)
    options = parser.parse_args()
    index = take_role(options.servers)
    if index is not None:
        os.execv(options.spillway, server_command(options.spillway, index, "--quiet"))
    train(options)


if __name__ == "__main__":
    main()
