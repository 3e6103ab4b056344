#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built by their target, and installed by dpkg on a machine without Spillway. C and C++ programs
are built there against the development files, two ranks of an example add up, and two ranks train.

    tests/install/debian_packages_test.py BUILD_DIR [unittest's arguments]

That machine is this one's root file system with an overlay and without the source tree. It needs root and a kernel
that lets root mount; otherwise only the packages' contents are checked. Skips without dpkg: exit code 77.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import packages
from packages import HERE, ROOT, run, run_two_ranks

from harness import processes  # importing packages sets the path

PRIVATE = "--in-a-mount-namespace-of-its-own"
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "file")  # cpack needs the latter two
PACKAGES = ("libspillway0", "libspillway-dev", "python3-spillway", "spillway")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def enter_mount_namespace():
    """Restarts this program in its own mount namespace, if mounts are allowed: they end with this process."""
    if PRIVATE in sys.argv:
        sys.argv.remove(PRIVATE)
        return True
    unshare = ["unshare", "--mount"]
    if os.geteuid() != 0 or processes.run([*unshare, "true"]).returncode != 0:
        return False
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv, PRIVATE])


MAY_MOUNT = enter_mount_namespace()
BUILD = packages.take_build()
VERSION = packages.project_version(BUILD)


def setUpModule():
    packages.make(BUILD, "debs")


def deb(package):
    (file,) = (BUILD / "packages").glob(f"{package}_{VERSION}_*.deb")
    return file


def field(package, name):
    return run("dpkg-deb", "--field", deb(package), name).strip()


def depends(package):
    return {clause.split()[0] for clause in field(package, "Depends").split(",") if clause}


def files(package):
    """Everything but folders, by path: (rights, owner, target of a link)."""
    lines = [line.split(None, 5) for line in run("dpkg-deb", "--contents", deb(package)).splitlines()]
    found = {}
    for rights, owner, _, _, _, path in lines:
        path, _, target = path.partition(" -> ")
        if not rights.startswith("d"):
            found[path.lstrip(".")] = (rights, owner, target)
    return found


class Contents(unittest.TestCase):
    def test_who_has_what(self):
        expected = {
            "libspillway0": [r"/usr/lib/\S+/libspillway\.so\.0"],
            "libspillway-dev": [r"/usr/lib/\S+/libspillway\.so", "/usr/include/spillway/spillway.h",
                                "/usr/include/spillway/spillway.hpp", r"/usr/lib/\S+/pkgconfig/spillway\.pc",
                                r"/usr/lib/\S+/cmake/spillway/spillwayConfig\.cmake"],
            "spillway": ["/usr/bin/spillway", "/usr/share/spillway/wireshark/spillway.lua"],
            "python3-spillway": ["/usr/lib/python3/dist-packages/spillway/torch/ddp_hook.py",
                                 r"/usr/lib/python3/dist-packages/spillway-\S+\.dist-info/entry_points.txt"]}
        for package in PACKAGES:
            for pattern in [*expected[package], f"/usr/share/doc/{package}/copyright"]:
                self.assertTrue(any(re.fullmatch(pattern, path) for path in files(package)), f"{package}: {pattern}")

    def test_no_file_is_in_two_of_them(self):
        paths = [path for package in PACKAGES for path in files(package)]
        self.assertEqual(len(paths), len(set(paths)))

    def test_everything_is_roots_and_readable_by_all(self):
        for package in PACKAGES:
            for path, (rights, owner, _) in files(package).items():
                self.assertEqual(owner, "root/root", path)
                self.assertRegex(rights, "^(lrwxrwxrwx|-rw-r--r--|-rwxr-xr-x)$", path)

    def test_what_they_say_of_themselves(self):
        for package in PACKAGES:
            self.assertEqual(field(package, "Version"), VERSION)
            self.assertIn("<", field(package, "Maintainer"))
            summary, *text = field(package, "Description").splitlines()
            self.assertLess(len(summary), 80)
            self.assertTrue(text)
            for line in text:
                self.assertLess(len(line), 90, line)
        self.assertIn(f"libspillway0 (= {VERSION})", field("libspillway-dev", "Depends"))
        self.assertEqual(field("python3-spillway", "Architecture"), "all")

    def test_they_depend_on_the_packages_whose_libraries_they_need(self):
        with tempfile.TemporaryDirectory() as folder:
            for package in ("libspillway0", "spillway"):
                run("dpkg-deb", "--extract", deb(package), folder)
            root = pathlib.Path(folder)
            for package, file in (("libspillway0", next(root.glob("usr/lib/*/libspillway.so.0"))),
                                  ("spillway", root / "usr/bin/spillway")):
                names = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "--dynamic", file))
                self.assertTrue(names)
                for name in names:
                    owners = {line.split(":")[0] for line in run("dpkg-query", "--search", f"*/{name}").splitlines()}
                    self.assertTrue(owners & depends(package), f"{package} needs {name} of {owners}")


class CleanMachine:
    """This machine's files under an overlay: changes end with this process."""

    def __init__(self):
        self._folder = folder = pathlib.Path(tempfile.mkdtemp())
        run("mount", "-t", "tmpfs", "spillway-test", folder)
        self.root = folder / "root"
        upper, work = folder / "upper", folder / "work"
        for made in (self.root, upper, work):
            made.mkdir()
        run("mount", "-t", "overlay", "spillway-test", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", self.root)
        for shared in ("dev", "proc", "sys"):
            run("mount", "--rbind", f"/{shared}", self.root / shared)
        # A program that uses our files there would use something that is not installed.
        for hidden in (ROOT, BUILD):
            place = self.root / hidden.relative_to("/")
            if place.is_dir():
                run("mount", "-t", "tmpfs", "spillway-test", place)
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="check-", dir=self.root))

    def close(self):
        run("umount", "--recursive", "--lazy", self._folder)
        self._folder.rmdir()

    def command(self, *command):
        return ("chroot", self.root, *command)

    def run(self, *command, **more):
        return run(*self.command(*command), PATH=PATH, HOME=self.inside(), **more)

    def inside(self, name=""):
        """The path that programs running there see for a file in the machine's home."""
        return str(pathlib.Path("/") / self.home.relative_to(self.root) / name)

    def install(self):
        self.copy(*map(deb, PACKAGES))
        self.run("dpkg", "--install", *(self.inside(deb(package).name) for package in PACKAGES))

    def copy(self, *sources):
        for source in sources:
            shutil.copy(source, self.home)


@unittest.skipUnless(MAY_MOUNT, "only root may make a machine out of mounts, and not everywhere")
class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.machine = CleanMachine()
        except AssertionError as error:
            raise unittest.SkipTest(f"this machine cannot be copied: {error}") from None
        cls.addClassCleanup(cls.machine.close)
        known = cls.machine.run("sh", "-c", "command -v spillway; ldconfig -p | grep libspillway; true")
        if known.strip():
            raise unittest.SkipTest(f"this machine has a Spillway installed: {known}")
        cls.machine.install()

    def test_the_tool_runs(self):
        self.assertIn(VERSION, self.machine.run("spillway", "--version"))
        self.assertIn("congested", self.machine.run("spillway", "lab", "presets"))

    def test_a_program_is_built_with_pkg_config(self):
        self.machine.copy(HERE / "consumer.c")
        self.assertEqual(self.machine.run("pkg-config", "--modversion", "spillway").strip(), VERSION)
        program = self.machine.inside("consumer")
        self.machine.run("sh", "-c", f"cc -std=c99 -Wall -Wextra -Wpedantic -Werror {program}.c "
                                     f"$(pkg-config --cflags --libs spillway) -o {program}")
        self.machine.run(program, VERSION)

    def test_programs_are_built_with_cmake_and_two_ranks_add_up(self):
        shutil.copytree(ROOT / "examples", self.machine.home / "examples")
        build = self.machine.inside("build")
        self.machine.run("cmake", "-G", "Ninja", "-S", self.machine.inside("examples"), "-B", build)
        self.machine.run("cmake", "--build", build)
        for program in ("all_reduce_c", "all_reduce_cc"):
            said = run_two_ranks(
                lambda rank, port: {"SPILLWAY_COMM_ID": f"127.0.0.1:{port}", "SPILLWAY_WORLD_SIZE": "2",
                                    "SPILLWAY_RANK": str(rank), "SPILLWAY_LOCAL_WORLD_SIZE": "2",
                                    "SPILLWAY_LOCAL_RANK": str(rank)},
                *self.machine.command(f"{build}/{program}", "5000"))
            self.assertIn("rank 0 of 2", said[0])
            self.assertIn("rank 1 of 2", said[1])

    def test_python_finds_the_package_and_the_library(self):
        seen = json.loads(self.machine.run("/usr/bin/python3", "-c", packages.LOOK))
        self.assertEqual([seen[name] for name in ("version", "library", "metadata")], [VERSION] * 3)
        self.assertEqual(seen["package"], "/usr/lib/python3/dist-packages/spillway/__init__.py")
        self.assertTrue(any(re.fullmatch(r"/usr/lib/\S+/libspillway\.so\.[\d.]+", path) for path in seen["loaded"]))
        self.assertEqual(seen["entries"],
                         [["torch.distributed.backends", "spillway", "spillway.torch.registration:register"]])

    @unittest.skipUnless(packages.has_torch(), "torch is not installed")
    def test_two_ranks_train(self):
        losses = packages.train(self.machine.home, *self.machine.command("/usr/bin/python3"),
                                place=pathlib.Path(self.machine.inside()))
        self.assertLess(losses[-1], losses[0])

    def test_when_they_are_removed_nothing_stays(self):
        """Runs on a second machine."""
        machine = CleanMachine()
        self.addCleanup(machine.close)
        machine.install()
        machine.run("dpkg", "--purge", *PACKAGES)
        stays = machine.run("find", "/usr", "/etc", "/var/lib/dpkg/info", "-name", "*spillway*")
        self.assertEqual(stays, "")


if __name__ == "__main__":
    absent = [name for name in TOOLS if shutil.which(name) is None]
    if absent:
        print(f"skipped: {', '.join(absent)} missing")
        sys.exit(77)
    unittest.main()
