# SPDX-License-Identifier: Apache-2.0
"""The command `spillway` of an installation by pip: runs the tool that the wheel has inside, else one that is installed
on this machine.
"""
import os
import pathlib
import sys
from typing import List, NoReturn

from .library_path import PACKAGE, prefixes


def candidates() -> List[pathlib.Path]:
    return [PACKAGE / "bin" / "spillway"] + [prefix / "bin" / "spillway" for prefix in prefixes()]


def main() -> NoReturn:
    own = pathlib.Path(sys.argv[0]).resolve()
    tool = next((each for each in candidates() if os.access(each, os.X_OK) and each.resolve() != own), None)
    if tool is None:
        raise SystemExit("spillway: this installation has the Python package alone. The wheel has the tool inside (cmake "
                         "--build build/release --target wheel), and the Debian package spillway is it")
    os.execv(tool, ["spillway", *sys.argv[1:]])
