# SPDX-License-Identifier: Apache-2.0
"""What `spillway lab compare` puts into the Pythons of its ranks. Nothing imports this package: the lab names its folder
in PYTHONPATH, and Python itself imports sitecustomize from there."""
