# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of a test: its own process's, and hosts around a switch. They need root.

The kernel removes them with the test's process, however it ends: contain() runs the test in contained.sh, whose /run,
where `ip netns` keeps its names, ends with it.
"""
import concurrent.futures
import ctypes
import itertools
import os
import pathlib
import subprocess
import sys

CONTAINED = pathlib.Path(__file__).resolve().parent / "contained.sh"
MARK = "spillway-test"  # the source of contained.sh's mounts
TRIED = "TEST_CONTAINED"
CLONE_NEWNET = 0x40000000


def is_contained():
    mounts = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8")
    return any(line.startswith(f"{MARK} ") for line in mounts.splitlines())


def contain():
    """Restarts this Python program inside contained.sh, unless it runs there already, as under ctest, or cannot."""
    if os.geteuid() != 0 or TRIED in os.environ or is_contained():
        return
    os.environ[TRIED] = "1"
    os.execv(CONTAINED, [str(CONTAINED), sys.executable, *sys.orig_argv[1:]])


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def in_namespace(name, make):
    """Calls `make` in the network namespace and returns its result: sockets stay in the namespace of their creation."""
    def enter_and_make():
        with open(f"/run/netns/{name}", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return make()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:  # a new thread: this one must stay where it is
        return thread.submit(enter_and_make).result()


class NetworkNamespaces:
    """A few hosts around a switch. Leaving the block removes them. If `splits_bursts`, datagrams pass the links one by
    one, as on a wire; else a burst of UDP segmentation offload passes as one long packet, whatever the MTU."""

    _numbers = itertools.count()

    def __init__(self, hosts, is_ipv6=False, splits_bursts=False):
        self.hosts = hosts
        self.is_ipv6 = is_ipv6
        self.splits_bursts = splits_bursts
        self.number = next(NetworkNamespaces._numbers)
        self.names = {}

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _add(self, role):
        name = f"spillway-test-{os.getpid()}-{self.number}-{role}"
        ip("netns", "add", name)
        self.names[role] = name
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def _make(self):
        switch = self._add("switch")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host in range(self.hosts):
            name = self._add(host)
            ip("-n", switch, "link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0", "netns",
               name)
            ip("-n", switch, "link", "set", f"port{host}", "master", "bridge", "up")
            if self.is_ipv6:
                ip("-n", name, "address", "add", f"{self.address(host)}/64", "dev", "eth0", "nodad")
            else:
                ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            if self.splits_bursts:
                ip("-n", name, "link", "set", "eth0", "gso_max_segs", "1")
            ip("-n", name, "link", "set", "eth0", "up")

    def address(self, host):
        return f"fd77::{host + 1}" if self.is_ipv6 else f"10.77.0.{host + 1}"

    def endpoint(self, host, port):
        return f"[{self.address(host)}]:{port}" if self.is_ipv6 else f"{self.address(host)}:{port}"

    def enter(self, host):
        """The prefix of a command that is to run there."""
        return ["ip", "netns", "exec", self.names[host]]

    def unplug_at_switch(self, host):
        ip("-n", self.names["switch"], "link", "set", f"port{host}", "down")

    def unplug_at_host(self, host):
        ip("-n", self.names[host], "link", "set", "eth0", "down")
