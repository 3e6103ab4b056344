# SPDX-License-Identifier: Apache-2.0
"""A few hosts around a switch, as network namespaces; needs root. Gone when the block is left."""
import os
import subprocess


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class NetworkNamespaces:
    def __init__(self, hosts):
        self.hosts = hosts
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
        name = f"spillway-test-{os.getpid()}-{role}"
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
            ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def enter(self, host):
        """What goes before a command for it to run there."""
        return ["ip", "netns", "exec", self.names[host]]

    def unplug_at_switch(self, host):
        ip("-n", self.names["switch"], "link", "set", f"port{host}", "down")

    def unplug_at_host(self, host):
        ip("-n", self.names[host], "link", "set", "eth0", "down")
