#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays in spillway.Communicator: NumPy's where NumPy is installed, DLPack's where torch is, and a class of this test.

    tests/python/arrays_test.py LIBRARY [unittest's arguments]
"""
import array
import os
import pathlib
import subprocess
import sys
import threading
import unittest

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.update({"SPILLWAY_LIBRARY": str(LIBRARY), "SPILLWAY_SOCKET_IFNAME": "=lo"})
sys.path.insert(0, str(ROOT / "python"))

import spillway
from spillway import abi

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


class Own:
    """The least that describes itself."""

    def __init__(self, numbers, code="f", is_read_only=False):
        self.memory = array.array(code, numbers)
        names = {"f": "<f4", "d": "<f8", "i": "<i4", "b": "|i1", "H": "<u2"}
        self.__array_interface__ = {"typestr": names[code], "shape": (len(numbers),), "version": 3,
                                    "data": (self.memory.buffer_info()[0], is_read_only)}


def on_ranks(world, work):
    """Runs work(comm) in one thread per rank."""
    unique, results, errors = spillway.default_library().unique_id(), [None] * world, []

    def be(rank):
        try:
            with spillway.Communicator(unique, rank=rank, world=world) as comm:
                results[rank] = work(comm)
                comm.run("barrier")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Arrays(unittest.TestCase):
    def test_operations_take_count_and_type_from_arrays(self):
        def work(comm):
            mine, everybody, part = Own([comm.rank + 1.0] * 4), Own([0.0] * 8), Own([0.0] * 4)
            comm.run("all_gather", mine, everybody)
            comm.run("reduce_scatter", everybody, part, spillway.SUM)
            comm.run("all_reduce", mine, mine, spillway.SUM)
            comm.run("broadcast", part if comm.rank == 1 else None, part, 1)
            if comm.rank == 0:
                comm.run("send", mine, 1)
            else:
                comm.run("receive", mine, 0)
            return [list(each.memory) for each in (mine, everybody, part)]

        for found in on_ranks(2, work):
            self.assertEqual(found, [[3.0] * 4, [1.0] * 4 + [2.0] * 4, [4.0] * 4])

    def refused(self, error, says, *arguments):
        with spillway.Communicator(spillway.default_library().unique_id(), rank=0, world=1) as comm:
            with self.assertRaisesRegex(error, says):
                comm.run(*arguments)
            comm.check_health()

    def test_a_call_that_does_not_fit_is_explained(self):
        four = Own([0.0] * 4)
        self.refused(TypeError, "takes 3 arguments, not 5: count and type", "all_reduce", four, four, 4, 0, 0)
        self.refused(ValueError, "must fit each other; they have 3 .* and 4 ", "all_reduce", Own([0.0] * 3), four, 0)
        self.refused(ValueError, "must fit each other", "all_reduce", Own([0.0] * 4, "d"), four, 0)
        self.refused(TypeError, "argument 1 has the type <u2", "all_reduce", Own([0] * 4, "H"), four, 0)
        self.refused(ValueError, "argument 2 is read-only", "all_reduce", four, Own([0.0], is_read_only=True), 0)
        self.refused(TypeError, "argument 2 is 12; it must be an array", "all_reduce", four, 12, 0)
        self.refused(TypeError, "argument 1 is 'text'", "all_reduce", "text", None, 4, 0, 0)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_numpys_arrays(self):
        for dtype in ("float32", "float64", "float16", "int32", "int64", "int8", "uint8"):
            def work(comm):
                mine = numpy.arange(12, dtype=dtype).reshape(3, 4)
                comm.run("all_reduce", mine, mine, spillway.SUM)
                return mine

            for found in on_ranks(3, work):
                numpy.testing.assert_array_equal(found, 3 * numpy.arange(12, dtype=dtype).reshape(3, 4))
        grid = numpy.zeros((4, 4))
        self.refused(ValueError, "not contiguous", "all_reduce", grid[:, 1], grid[:, 1], spillway.SUM)
        self.refused(ValueError, "not contiguous", "all_reduce", grid.T[1:], grid.T[1:], spillway.SUM)
        self.refused(TypeError, "the type >f8", "all_reduce", grid.astype(">f8"), grid.astype(">f8"), spillway.SUM)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_dlpacks_tensors(self):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            def work(comm):
                mine = torch.arange(6).to(dtype)
                comm.run("all_reduce", mine, mine, spillway.SUM)
                return mine

            for found in on_ranks(2, work):
                self.assertTrue(torch.equal(found, 2 * torch.arange(6).to(dtype)))
        grid = torch.zeros(4, 4)
        self.refused(ValueError, "not contiguous", "all_reduce", grid[:, 1], grid[:, 1], spillway.SUM)

    def test_the_package_does_not_import_numpy(self):
        code = "import sys, spillway; sys.exit('numpy' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], check=False,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
