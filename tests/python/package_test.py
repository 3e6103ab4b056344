#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package without torch: how it finds the library, and that cmake and pip install it completely.
tests/install/wheel_test.py tests the wheel with the library inside.

    tests/python/package_test.py LIBRARY BUILD_DIR [unittest's arguments]
"""
import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
OLDEST_PYTHON = (3, 9)

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]

import spillway
from harness import processes
from spillway import library_path, version

SOURCES = sorted((ROOT / "python" / "spillway").rglob("*.py"))


def environment_without_library(**more):
    return {**{name: value for name, value in os.environ.items() if name != "SPILLWAY_LIBRARY"}, **more}


def run(*command, **more):
    done = processes.run(command, env=environment_without_library(**more))
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def version_through(folder):
    """Version of the library that the package in `folder` finds, from a separate process."""
    code = "import spillway; print(spillway.default_library().version(), spillway.__file__)"
    version, path = run(sys.executable, "-c", code, PYTHONPATH=str(folder)).split()
    if not path.startswith(str(folder)):
        raise AssertionError(f"{path} is not in {folder}")
    return version


class WhereTheLibraryIs(unittest.TestCase):
    def test_the_variable_says(self):
        with mock.patch.dict(os.environ, {library_path.VARIABLE: str(LIBRARY)}):
            self.assertEqual(spillway.Library().version(), spillway.__version__)

    def test_a_variable_that_is_wrong_is_named(self):
        with mock.patch.dict(os.environ, {library_path.VARIABLE: "/nowhere/libspillway.so"}):
            with self.assertRaisesRegex(spillway.LibraryNotFoundError, "SPILLWAY_LIBRARY is /nowhere/libspillway.so"):
                spillway.Library()

    def test_without_any_it_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as empty, \
                mock.patch.dict(os.environ, environment_without_library(), clear=True), \
                mock.patch.object(library_path, "folders", lambda: [pathlib.Path(empty)]), \
                mock.patch.object(library_path, "NAMES", ("libspillway-of-nobody.so",)):
            advice = "cmake --install .* set SPILLWAY_LIBRARY"
            with self.assertRaisesRegex(spillway.LibraryNotFoundError, advice) as caught:
                spillway.Library()
        self.assertIn(empty, str(caught.exception))
        self.assertIsInstance(caught.exception, ImportError)


class WhichLibrary(unittest.TestCase):
    def test_one_that_is_older_or_of_another_major_version_is_refused_and_both_are_named(self):
        for theirs in ("0.0.9", "1.1.0", "nonsense"):
            with self.assertRaisesRegex(spillway.LibraryVersionError, f"there.so is Spillway {theirs}, but the Python "
                                        f"package in .* is {version.VERSION}. Install both from one build"):
                version.check_library(theirs, "there.so")

    def test_a_newer_one_is_as_good(self):
        for theirs in (version.VERSION, "0.1.7", "0.20.0"):
            version.check_library(theirs, "there.so")

    def test_one_that_lacks_a_function_is_refused(self):
        with self.assertRaisesRegex(spillway.LibraryVersionError, "libc.so.6 has no spillway_version"):
            spillway.Library("libc.so.6")


class WithoutTorch(unittest.TestCase):
    def test_it_says_which_python_lacks_it(self):
        code = "import sys; sys.modules['torch'] = None; import spillway.torch"
        done = processes.run([sys.executable, "-c", code], env=environment_without_library(PYTHONPATH=ROOT / "python"))
        self.assertIn(f"spillway.torch needs PyTorch, which {sys.executable} has not", done.stderr)


class Interface(unittest.TestCase):
    def test_structs_begin_as_the_librarys_do(self):
        options = spillway.Library(LIBRARY).options()
        self.assertGreaterEqual(options.size, spillway.OperationOptions.room.offset)
        self.assertEqual((options.priority, options.tolerant, options.precision, options.gather_precision,
                          options.loss_bound_ppm, options.min_planes, options.feedback_tensor), (3, 0, 16, 16, 10_000, 1, 0))

    def test_a_world_of_one(self):
        library = spillway.Library(LIBRARY)
        with spillway.Communicator(library.unique_id(), library=library, rank=0, world=1) as communicator:
            request = communicator.start("barrier")
            self.assertTrue(request.wait())
            self.assertEqual(len(request.report().peers), 1)
        with self.assertRaisesRegex(spillway.SpillwayError, "barrier at rank 0 of 1: the communicator is closed"):
            communicator.start("barrier")

    def test_variables_are_read_by_the_library(self):
        library = spillway.Library(LIBRARY)
        with mock.patch.dict(os.environ, {"SPILLWAY_BITS": " 12 ", "SPILLWAY_CODEC": ""}):
            self.assertEqual(library.variable("SPILLWAY_BITS"), "12")
            self.assertEqual(library.variable_if_set("SPILLWAY_BITS"), "12")
            self.assertEqual(library.variable("SPILLWAY_CODEC"), "exact")
            self.assertIsNone(library.variable_if_set("SPILLWAY_CODEC"))
        with self.assertRaisesRegex(ValueError, "the nearest name is SPILLWAY_CODEC"):
            library.variable("SPILLWAY_CODECS")

    def test_sources_are_for_the_oldest_python(self):
        for source in SOURCES:
            ast.parse(source.read_text(encoding="utf-8"), source.name, feature_version=OLDEST_PYTHON)


class Installed(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def check_complete(self, package):
        for source in [*SOURCES, ROOT / "python" / "spillway" / "py.typed"]:
            self.assertTrue((package / source.relative_to(ROOT / "python" / "spillway")).is_file(), source)

    def check_torch_would_find_it(self, folder):
        (found,) = importlib.metadata.distributions(name="spillway", path=[str(folder)])
        self.assertEqual(found.version, spillway.__version__)
        self.assertIn(("torch.distributed.backends", "spillway", "spillway.torch.registration:register"),
                      [(entry.group, entry.name, entry.value) for entry in found.entry_points])

    def test_by_cmake_it_finds_the_library_of_its_prefix(self):
        run("cmake", "--install", BUILD, "--component", "python", "--prefix", self.folder)
        folder = self.folder / "lib" / "python3" / "dist-packages"
        self.check_complete(folder / "spillway")
        self.check_torch_would_find_it(folder)
        (self.folder / "lib" / "libspillway.so.0").symlink_to(LIBRARY)
        self.assertEqual(version_through(folder), spillway.__version__)

    @unittest.skipUnless(all(map(importlib.util.find_spec, ("pip", "setuptools", "wheel"))),
                         "pip, setuptools and wheel are not all installed")
    def test_by_pip_without_a_network(self):
        copy, target = self.folder / "copy", self.folder / "target"
        copy.mkdir()
        for name in ("pyproject.toml", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        shutil.copytree(ROOT / "python", copy / "python", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        run(sys.executable, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps", "--target",
            target, copy)
        self.check_complete(target / "spillway")
        self.check_torch_would_find_it(target)
        shutil.copy(LIBRARY, target / "spillway" / "libspillway.so.0")  # next to the package
        self.assertEqual(version_through(target), spillway.__version__)


if __name__ == "__main__":
    unittest.main()
