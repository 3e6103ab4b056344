# SPDX-License-Identifier: Apache-2.0
"""What experiments have in common."""
import os

# Before anything imports torch: OpenBLAS would start threads of its own, which spin. Runs take a core each.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
