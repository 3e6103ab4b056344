# SPDX-License-Identifier: Apache-2.0
"""Python imports this before a rank's script, because `spillway lab compare` puts this folder first in PYTHONPATH.

It starts the watch (spillway_lab_watch.py), removes its folder from sys.path, and then imports the sitecustomize that
Python would have imported without it. The script finds everything as it would without a lab.
"""
import os
import sys


def begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        import spillway_lab_watch
        spillway_lab_watch.begin(os.environ)
    except Exception as error:  # whatever it is, the script must run; the lab notes that it saw nothing
        print(f"spillway lab: this script is not watched: {error!r}", file=sys.stderr)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]


def make_way() -> None:
    """An error in the other sitecustomize propagates: site reports it as it would without us."""
    ours = sys.modules.pop(__name__)
    try:
        import sitecustomize
    except ModuleNotFoundError as missing:
        if missing.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


begin()
make_way()
