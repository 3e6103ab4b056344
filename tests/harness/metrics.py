# SPDX-License-Identifier: Apache-2.0
"""Ranks' counters, read over HTTP (SPILLWAY_METRICS_LISTEN)."""
import concurrent.futures
import re
import urllib.request

from harness.namespaces import in_namespace


def metrics_at(port, namespace=None):
    """The metrics of a rank at a loopback port, in a network namespace or in this one."""
    def fetch():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return answer.read().decode()

    return in_namespace(namespace, fetch) if namespace else fetch()


def metrics_in(port, namespaces):
    """The metrics of ranks in one network namespace each."""
    with concurrent.futures.ThreadPoolExecutor(len(namespaces)) as threads:
        return list(threads.map(lambda namespace: metrics_at(port, namespace), namespaces))


def disbelieved(text):
    """Counts of datagrams and ICMP messages that were ignored, by reason."""
    return {reason: int(count) for reason, count in re.findall(r'disbelieved_total{.*reason="(\w+)"} (\d+)', text)}
