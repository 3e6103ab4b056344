# SPDX-License-Identifier: Apache-2.0
"""A link for each rank, on one machine: one network namespace per rank, joined by a bridge in another one, with a
token bucket at either end of every link. Tools that compare backends use it, so that all of them get the same links.

Needs root, ip and tc. Namespaces are named after the process that made them, and end with their `with` block.
"""
import ctypes
import os
import subprocess

MTU = 9000
BURST_SECONDS = 0.0005  # of the link's rate may leave at once: offloaded segments are long
LEAST_BURST, QUEUE_SECONDS = 128 * 1024, 0.01


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Links:
    def __init__(self, ranks, gigabits):
        self._ranks, self._rate = ranks, int(gigabits * 1e9)
        self._names = [f"spillway-{os.getpid()}-{rank}" for rank in range(ranks)]
        self._hub = f"spillway-{os.getpid()}-hub"

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        run("ip", "netns", "add", self._hub)
        run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self._hub, "link", "set", "bridge", "mtu", str(MTU), "up")
        for rank, name in enumerate(self._names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "add", "eth0", "mtu", str(MTU), "type", "veth", "peer", "name", f"port{rank}",
                "mtu", str(MTU), "netns", self._hub)
            run("ip", "-n", self._hub, "link", "set", f"port{rank}", "master", "bridge", "up")
            run("ip", "-n", name, "address", "add", f"{self.address(rank)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            for namespace, device in ((name, "eth0"), (self._hub, f"port{rank}")):
                self._limit(namespace, device)

    def _limit(self, namespace, device):
        burst = max(LEAST_BURST, int(self._rate / 8 * BURST_SECONDS))
        queue = burst + int(self._rate / 8 * QUEUE_SECONDS)
        run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self._rate}bit", "burst",
            str(burst), "limit", str(queue))

    def __exit__(self, *_):
        for name in [*self._names, self._hub]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)

    @staticmethod
    def address(rank):
        return f"10.77.0.{rank + 1}"

    def enter(self, rank):
        """Moves this process, which must have one thread, behind the rank's link. Returns variables that it needs
        there."""
        with open(f"/run/netns/{self._names[rank]}", encoding="utf-8") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        return {"SPILLWAY_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "MASTER_ADDR": self.address(0),
                "SPILLWAY_LINK_RATE": str(self._rate), "LOCAL_WORLD_SIZE": str(self._ranks)}
