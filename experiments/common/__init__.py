# SPDX-License-Identifier: Apache-2.0
"""Code that experiments share."""
import os

# Set before anything imports torch: OpenBLAS would start its own threads, which spin. Each run uses one core.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
