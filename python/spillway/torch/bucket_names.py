# SPDX-License-Identifier: Apache-2.0
"""Names and urgency of DDP's buckets.

DDP rebuilds its buckets after the first step, so a bucket's index says nothing about what is in it. What
error feedback is kept under is therefore a hash of the parameters in it: a bucket with other parameters is
another tensor, which nothing is owed yet. Names are the same at all ranks.

DDP fills buckets from the model's back to its front. The next forward pass needs the front first: the last
bucket is the most urgent.
"""
import hashlib
from typing import Any, Iterable

from .hook_options import MOST_URGENT


class BucketNames:
    """`hook`: a number that tells hooks of one communicator apart."""

    def __init__(self, parameters: Iterable[Any], hook: int) -> None:
        self._hook = hook
        self._positions = {id(parameter): position for position, parameter in enumerate(parameters)}

    def feedback_tensor(self, parameters: Iterable[Any]) -> int:
        """Never 0, which is no name."""
        words = [str(self._hook), *(str(self._positions[id(parameter)]) for parameter in parameters)]
        digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") or 1


def priority_of(index: int, buckets: int) -> int:
    """`buckets`: of the last step; 0 before there was one."""
    last = max(buckets - 1, index)
    return MOST_URGENT if last == 0 else MOST_URGENT * index // last
