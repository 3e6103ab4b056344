#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the Python package, libspillway and the tool: one file, for any Python 3 of one platform.

    scripts/build_wheel.py --library build/release/wheel/lib/libspillway.so.0 --tool build/release/wheel/bin/spillway
                           --version 0.1.0 --scratch DIR --to DIR

`cmake --build build/release --target wheel` calls it. Shared libraries that both need, and that a machine may lack, go
beside the library with their licences; run paths ($ORIGIN) find them. The platform tag names the oldest glibc
that has every requested symbol, so that pip refuses the wheel where it would not load.
"""
import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from typing import Dict, List, NoReturn, Set, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Libraries that the manylinux tags guarantee on every machine (PEP 600), and that torch needs as well.
EVERYWHERE = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libz|ld-linux[-\w]*)\.so\.\d+")
# libstdc++ has no tags. Maps its versions to the glibc of the first distributions that had them.
GLIBC_OF_GLIBCXX = [((3, 4, 28), (2, 31)), ((3, 4, 29), (2, 34)), ((3, 4, 30), (2, 35)), ((3, 4, 32), (2, 38)),
                    ((3, 4, 33), (2, 39)), ((3, 4, 34), (2, 41))]

SETUP = '''
import setuptools
try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class WithLibrary(setuptools.Distribution):
    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", {platform!r}


setuptools.setup(distclass=WithLibrary, cmdclass={{"bdist_wheel": PlatformWheel}})
'''


def fail(sentence: str) -> NoReturn:
    raise SystemExit(f"build_wheel.py: {sentence}")


def output_of(*command: object) -> str:
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE,
                          env={**os.environ, "LC_ALL": "C"}).stdout


# ---- Library dependencies ----

def needed(library: pathlib.Path) -> Set[str]:
    names = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "--dynamic", library))
    return {name for name in names if not EVERYWHERE.fullmatch(name)}


def places(library: pathlib.Path) -> Dict[str, str]:
    """A library's dependencies by name, at the place where the loader finds them here."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", library), re.MULTILINE))


def companions(library: pathlib.Path) -> List[pathlib.Path]:
    found, where = [], places(library)
    for name in sorted(needed(library)):
        if name not in where:
            fail(f"{library} needs {name}, which is not installed")
        place = pathlib.Path(where[name])
        if needed(place):
            fail(f"{place} needs {', '.join(sorted(needed(place)))} in turn, and does not look for it beside itself")
        found.append(place)
    return found


def newest(library: pathlib.Path, tag: str) -> Tuple[int, ...]:
    """The newest symbol version tag_1.2.3 that a library requests."""
    text = output_of("readelf", "--version-info", library)
    return max((tuple(map(int, numbers.split("."))) for numbers in re.findall(rf"\b{tag}_([\d.]+)", text)),
               default=(0,))


def platform_tag(libraries: List[pathlib.Path]) -> str:
    glibc = max(newest(library, "GLIBC") for library in libraries)[:2]
    glibcxx = max(newest(library, "GLIBCXX") for library in libraries)
    for version, came_with in GLIBC_OF_GLIBCXX:
        if glibcxx >= version:
            glibc = max(glibc, came_with)
    return f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"


# ---- Licences of the contents ----

def debian_licences(files: List[pathlib.Path]) -> Dict[str, pathlib.Path]:
    """Licences of the files' packages; none if dpkg does not know them."""
    licences = {}
    for file in files:
        asked = subprocess.run(["dpkg-query", "--search", str(file.resolve())], check=False, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        package = asked.stdout.split(":")[0]
        copyright_file = pathlib.Path("/usr/share/doc") / package / "copyright"
        if package and copyright_file.is_file():
            licences[package] = copyright_file
    return licences


# ---- The wheel ----

def fill(stage: pathlib.Path, options: argparse.Namespace) -> str:
    """Assembles a project for pip to build; returns the wheel's platform."""
    package = stage / "python" / "spillway"
    shutil.copytree(ROOT / "python" / "spillway", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, stage)
    programs = [options.library] + ([options.tool] if options.tool is not None else [])
    beside = list(dict.fromkeys(each for program in programs for each in companions(program)))
    for library in [options.library, *beside]:
        shutil.copy(library, package / library.name)
    if options.tool is not None:
        (package / "bin").mkdir()
        shutil.copy(options.tool, package / "bin" / options.tool.name)
    (package / "licences").mkdir()
    for name, licence in debian_licences([*beside, *options.inside]).items():
        shutil.copy(licence, package / "licences" / name)
    tag = platform_tag([*programs, *beside])
    (stage / "setup.py").write_text(SETUP.format(platform=tag), encoding="utf-8")
    return tag


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a wheel with libspillway inside")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libspillway, by the name it is loaded by")
    parser.add_argument("--tool", type=pathlib.Path, help="the program `spillway`; without it the wheel has no command")
    parser.add_argument("--inside", type=pathlib.Path, action="append", default=[], metavar="ARCHIVE",
                        help="what is linked into it, for its licence")
    parser.add_argument("--version", required=True, help="of the project: the wheel's must be the same")
    parser.add_argument("--scratch", type=pathlib.Path, required=True, help="a folder to work in")
    parser.add_argument("--to", type=pathlib.Path, required=True, help="the folder to leave the wheel in")
    options = parser.parse_args()

    stage = options.scratch / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    tag = fill(stage, options)
    options.to.mkdir(parents=True, exist_ok=True)
    for old in options.to.glob("spillway-*.whl"):
        old.unlink()
    wheel = options.to / f"spillway-{options.version}-py3-none-{tag}.whl"
    made = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps",
                           "--wheel-dir", str(options.to), str(stage)], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        fail(f"pip failed (it takes pip, setuptools and wheel of {sys.executable}):\n{made.stdout}")
    if not wheel.is_file():
        fail(f"{wheel.name} was not made: is the version in python/spillway/version.py the project's?\n{made.stdout}")
    print(wheel)


if __name__ == "__main__":
    main()
