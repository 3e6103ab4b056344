#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel: built by its target, installed into an empty virtual environment, and used for training. Only the file
that pip installed leads to the library: PYTHONPATH, SPILLWAY_LIBRARY and LD_LIBRARY_PATH are unset.

    tests/install/wheel_test.py BUILD_DIR [unittest's arguments]

Skips without pip, setuptools and wheel: exit code 77. Without torch it only loads the library. The environment sees
the system's packages, for torch.
"""
import importlib.util
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest
import zipfile

import packages
from packages import ROOT, has_torch, run

BUILD = packages.take_build()
TOOLS = ("pip", "setuptools", "wheel")
EVERYWHERE = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1"}  # and the loader itself


def needed(library):
    names = set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "--dynamic", library)))
    return {name for name in names if not name.startswith("ld-linux")}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        packages.make(BUILD, "wheel")
        (cls.wheel,) = (BUILD / "packages").glob("*.whl")
        cls.python = cls.folder / "venv" / "bin" / "python"
        run(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", cls.folder / "venv")
        run(sys.executable, "-m", "pip", "--python", cls.python, "install", "--no-index", "--no-deps", "--no-cache-dir",
            cls.wheel)
        cls.seen = json.loads(run(cls.python, "-c", packages.LOOK))
        cls.package = pathlib.Path(cls.seen["package"]).parent

    def test_its_name_says_which_machines_it_is_for(self):
        version = re.escape(packages.project_version(BUILD))
        self.assertRegex(self.wheel.name, rf"^spillway-{version}-py3-none-manylinux_2_\d+_\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as content:
            (about,) = (name for name in content.namelist() if name.endswith(".dist-info/WHEEL"))
            self.assertIn("Root-Is-Purelib: false", content.read(about).decode())
            self.assertTrue(any(name.endswith(".dist-info/LICENSE") for name in content.namelist()))

    def test_everything_is_of_one_version_and_lies_in_the_environment(self):
        version = packages.project_version(BUILD)
        self.assertEqual([self.seen[name] for name in ("version", "library", "metadata")], [version] * 3)
        self.assertTrue(self.package.is_relative_to(self.folder), self.package)
        ours = [path for path in self.seen["loaded"] if re.search(r"lib(spillway|hwy)\.", path)]
        self.assertIn(str(self.package / "libspillway.so.0"), ours)
        for path in ours:
            self.assertTrue(pathlib.Path(path).is_relative_to(self.package), f"{path} was loaded")

    def test_it_is_whole(self):
        for source in (ROOT / "python" / "spillway").rglob("*.py"):
            installed = self.package / source.relative_to(ROOT / "python" / "spillway")
            self.assertEqual(installed.read_bytes(), source.read_bytes())
        self.assertTrue((self.package / "py.typed").is_file())

    def test_its_libraries_need_nothing_but_each_other_and_what_every_machine_has(self):
        libraries = {path.name: path for path in self.package.glob("lib*.so*")}
        for library in [*libraries.values(), self.package / "bin" / "spillway"]:
            self.assertLessEqual(needed(library), EVERYWHERE | set(libraries), library.name)
        run(packages.HERE / "check_exports.sh", libraries["libspillway.so.0"])

    def test_it_has_the_command(self):
        command = self.python.parent / "spillway"
        self.assertIn(packages.project_version(BUILD), run(command, "--version"))
        self.assertIn("--gradient", run(command, "codec", "--help"))

    def test_torch_would_find_the_backend_by_its_name(self):
        self.assertIn(["torch.distributed.backends", "spillway", "spillway.torch.registration:register"],
                      self.seen["entries"])
        if not has_torch():
            self.skipTest("torch is not installed")
        self.assertEqual(run(self.python, "-c", packages.ASK_FOR_THE_BACKEND).split()[-1].lower(), "spillway")

    @unittest.skipUnless(has_torch(), "torch is not installed")
    def test_two_ranks_train(self):
        losses = packages.train(self.folder, self.python)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    absent = [name for name in TOOLS if importlib.util.find_spec(name) is None]
    if absent:
        print(f"skipped: {sys.executable} has no {', '.join(absent)}")
        sys.exit(77)
    unittest.main()
