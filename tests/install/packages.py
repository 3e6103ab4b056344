# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of packages: building them, and two ranks that train with the installed package. The ranks are told
neither where the package is nor where the library is.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness import processes
from harness.processes import STEADY, Started, free_port

BUILDS_S = 300  # ample on a quiet machine for building a package
STEPS = 6

# Imports the installed package, asks for the backend as torch does, and reports its locations.
LOOK = """
import importlib.metadata, json, spillway
library = spillway.default_library().version()
loaded = sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})
entries = [(entry.group, entry.name, entry.value) for entry in importlib.metadata.distribution("spillway").entry_points]
print(json.dumps({"package": spillway.__file__, "version": spillway.__version__, "library": library,
                  "metadata": importlib.metadata.version("spillway"), "entries": entries, "loaded": loaded}))
"""
ASK_FOR_THE_BACKEND = """
import importlib.metadata, sys
import torch.distributed
assert "spillway" not in sys.modules
(entry,) = [each for each in importlib.metadata.distribution("spillway").entry_points if "torch" in each.group]
entry.load()()
print(torch.distributed.Backend.SPILLWAY)
"""


def take_build():
    """Takes the build folder off the command line."""
    return pathlib.Path(sys.argv.pop(1)).resolve()


def project_version(build):
    return re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)[1]


def has_torch():
    return importlib.util.find_spec("torch") is not None


def environment(**more):
    """This environment, without variables that could lead to another Spillway than the installed one."""
    strangers = ("PYTHON", "SPILLWAY_", "LD_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strangers)}
    return {**kept, **STEADY, "OMP_NUM_THREADS": "1", "SPILLWAY_SOCKET_IFNAME": "=lo", "LC_ALL": "C.UTF-8", **more}


def run(*command, **more):
    """A command's output; it must succeed."""
    done = processes.run(command, BUILDS_S, env=environment(**more), cwd="/", capture_output=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def make(build, target):
    return run("cmake", "--build", build, "--target", target)


def run_two_ranks(variables, *command):
    """Both outputs. `variables` makes a rank's variables from its number and a free port."""
    port = free_port()
    ranks = [Started(command, env=environment(**variables(rank, port)), cwd="/", stderr=subprocess.STDOUT)
             for rank in range(2)]
    try:
        said = [rank.finish()[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.end()
    if any(rank.returncode != 0 for rank in ranks):
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n" + "\n".join(said))
    return said


def train(folder, *python, place=None):
    """The loss of each step of examples/train.py, copied to a folder, which the command `python` sees as `place`."""
    place = place or folder
    shutil.copy(ROOT / "examples" / "train.py", folder)
    (folder / "text").write_text("".join(f"{n} gradients went over the edge, and {n + 1} stayed. " for n in range(400)))
    run_two_ranks(lambda rank, port: {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                      "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
                  *python, place / "train.py", "--backend", "spillway", "--model", "charlm", "--data", place / "text",
                  "--steps", STEPS, "--batch", 8, "--test-samples", 8, "--log", place / "log")
    events = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    if (events[-1]["backend"], events[-1]["world"], events[-1]["step"]) != ("spillway", 2, STEPS):
        raise AssertionError(f"the log ends with {events[-1]}")
    return [event["loss"] for event in events if event["event"] == "step"]
