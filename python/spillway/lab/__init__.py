# SPDX-License-Identifier: Apache-2.0
"""The module that `spillway lab compare` adds to the Python processes of its ranks. Nothing imports this package: the
lab puts its folder into PYTHONPATH, and Python itself imports sitecustomize from there."""
