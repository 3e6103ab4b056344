# SPDX-License-Identifier: Apache-2.0
"""What tests that put programs into the kernel have in common."""
import ctypes
import os
import shutil
import subprocess
import sys

SKIPPED = 77
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000


def enter_own_namespaces():
    """A network namespace for this test, and a mount namespace with a BPF file system in it."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        return False
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    return subprocess.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], check=False,
                          capture_output=True).returncode == 0


def require_kernel_programs(tool):
    """Ends the test as skipped where programs cannot be loaded; else it has namespaces of its own."""
    probe = subprocess.run([str(tool), "switch", "stats", "--name", "nosuch"], capture_output=True,
                           text=True, check=False)
    if "has no eBPF programs" in probe.stderr:
        reason = "built without eBPF"
    elif not shutil.which("ip") or not shutil.which("tc"):
        reason = "needs iproute2"
    elif os.geteuid() != 0 or not enter_own_namespaces():
        reason = "needs root"
    else:
        return
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)
