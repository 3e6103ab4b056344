# SPDX-License-Identifier: Apache-2.0
"""Locates libspillway.so: the first that exists of

 1. the path in SPILLWAY_LIBRARY, and nothing else if that is set;
 2. next to this package's files, where the wheel has it;
 3. the library folders of the prefix the package is installed under, then of the interpreter's;
 4. whatever the loader finds (LD_LIBRARY_PATH, ldconfig).
"""
import ctypes
import os
import pathlib
import sys
import sysconfig
from typing import List

from .errors import LibraryNotFoundError

VARIABLE = "SPILLWAY_LIBRARY"
# The name with the ABI's major version goes first: the plain name is a link for compilers and may be a newer version.
NAMES = ("libspillway.so.0", "libspillway.so")
PACKAGE = pathlib.Path(__file__).resolve().parent


def prefixes() -> List[pathlib.Path]:
    """Candidate prefixes; first the PREFIX of PREFIX/lib/python3/dist-packages/spillway (or
    python3.N/site-packages)."""
    found = [PACKAGE.parents[3]] if len(PACKAGE.parents) > 3 else []
    return found + [pathlib.Path(sys.prefix), pathlib.Path("/usr/local"), pathlib.Path("/usr")]


def folders() -> List[pathlib.Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    lib_names = ["lib", "lib64"] + ([f"lib/{multiarch}"] if multiarch else [])
    found = [PACKAGE] + [prefix / name for prefix in prefixes() for name in lib_names]
    return list(dict.fromkeys(found))


def load_named(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise LibraryNotFoundError(f"{VARIABLE} is {path}, which cannot be loaded: {error}. Set it to the "
                                   "path of libspillway.so, or unset it") from error


def load_found(path: pathlib.Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryNotFoundError(f"{path} cannot be loaded: {error}. Install what it needs, or set "
                                   f"{VARIABLE} to another libspillway.so") from error


def load_library() -> ctypes.CDLL:
    named = os.environ.get(VARIABLE)
    if named:
        return load_named(named)
    for folder in folders():
        for name in NAMES:
            if (folder / name).exists():
                return load_found(folder / name)
    for name in NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    looked = ", ".join(map(str, folders()))
    raise LibraryNotFoundError(
        "libspillway.so was not found. The wheel has it inside (cmake --build build/release --target wheel), and the "
        "Debian package libspillway0 is it. From a source tree, install the library, too (cmake --install "
        f"build/release), or set {VARIABLE} to its path. Looked in {looked} and where the loader looks")
