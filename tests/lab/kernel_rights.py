# SPDX-License-Identifier: Apache-2.0
"""Shared by tests that load programs into the kernel."""
import os
import shutil
import sys

from harness.namespaces import contain, is_contained
from harness.processes import run

SKIPPED = 77


def require_kernel_programs(tool):
    """Skips the test if programs cannot be loaded. Otherwise gives it its own namespaces, and a BPF file system that
    ends with it."""
    contain()
    probe = run([tool, "switch", "stats", "--name", "nosuch"])
    if "has no eBPF programs" in probe.stderr:
        reason = "built without eBPF"
    elif not shutil.which("ip") or not shutil.which("tc"):
        reason = "needs iproute2"
    elif os.geteuid() != 0 or not is_contained() or not os.path.ismount("/sys/fs/bpf"):
        reason = "needs root"
    else:
        return
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)
