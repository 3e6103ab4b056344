# SPDX-License-Identifier: Apache-2.0
"""This package's version, and which libraries it works with: the same major version, not older. Newer libraries are
told how large this package's structs are (abi.py).
"""
import pathlib
import re
from typing import Tuple

from .errors import LibraryVersionError

VERSION = "0.1.0"
PACKAGE = pathlib.Path(__file__).resolve().parent


def major_and_minor(version: str) -> Tuple[int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (-1, -1)


def check_library(library: str, path: str) -> None:
    theirs, ours = major_and_minor(library), major_and_minor(VERSION)
    if theirs[0] != ours[0] or theirs < ours:
        raise LibraryVersionError(f"{path} is Spillway {library}, {advice()}")


def lacking(function: str, path: str) -> LibraryVersionError:
    return LibraryVersionError(f"{path} has no {function}, {advice()}")


def advice() -> str:
    return (f"but the Python package in {PACKAGE} is {VERSION}. Install both from one build (cmake --install does), or "
            "set SPILLWAY_LIBRARY to the libspillway.so of this version")
