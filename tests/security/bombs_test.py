#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces that are small on disk and huge when read, given to `spillway emulate show --check`: it refuses them with a message,
long before it reaches their size.

    tests/security/bombs_test.py TOOL [unittest's arguments]
"""
import gzip
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
PART = b"\0" * (1 << 20)
PARTS = 2048  # 2 GiB
MOST_MEMORY = 4 << 30  # to unpack at most 16 MiB; nodes take far more than their bytes
MEMORY_FOR_A_MEGABYTE = 3 << 29  # address space, so more than it uses


class Bombs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def packed(self, name, start=b"", part=PART):
        """A gzip file of `start` and 2 GiB of parts: gzip files may be concatenated."""
        path = pathlib.Path(self.folder.name, name)
        one = gzip.compress(part * (16 << 20 >> 20), 9)
        with open(path, "wb") as file:
            file.write(gzip.compress(start))
            for _ in range(PARTS // 16):
                file.write(one)
        self.assertLess(path.stat().st_size, 8 << 20)
        return path

    def packed_below_the_ratio(self, name, part, start=b"\0"):
        """A gzip file of about 1 MB that unpacks to 80 to 98 times that, less than the ratio that is always refused.
        `part` makes the next part from seven random bytes, which hardly shrink."""
        source = random.Random(1)
        content = start + b"".join(part(source.randbytes(7)) for _ in range(80_000))
        path = pathlib.Path(self.folder.name, name)
        path.write_bytes(gzip.compress(content, 9))
        self.assertLess(path.stat().st_size, 1.2e6)
        self.assertGreater(len(content), 80 * path.stat().st_size)
        self.assertLess(len(content), 98 * path.stat().st_size)
        return path

    def check_refused(self, path, memory=MOST_MEMORY, sentence="unpack it with gunzip|is the limit"):
        said = run(["prlimit", f"--as={memory}", TOOL, "emulate", "show", "--check", path])
        self.assertEqual(said.returncode, 1, said.stdout[-2000:] + said.stderr[-2000:])
        self.assertRegex(said.stdout + said.stderr, sentence)
        self.assertNotIn("bad_alloc", said.stderr)

    def test_gzip_of_empty_messages_is_refused(self):
        self.check_refused(self.packed("zeros.0.et.gz"))

    def test_gzip_of_many_small_nodes_or_dependencies_is_refused(self):
        """Nodes without content, with nothing but an id, and with a thousand dependencies."""
        for name, part in (
            ("empty", lambda noise: b"\x09\x12\x07" + noise + b"\0" * 1100),
            ("ids", lambda noise: b"\x09\x12\x07" + noise + b"\x02\x08\x01" * 365),
            ("dependencies", lambda noise: b"\xd5\x08\x12\x07" + noise + b"\x2a\xc9\x08" + b"\x01" * 1097),
        ):
            with self.subTest(name):
                path = self.packed_below_the_ratio(f"{name}.0.et.gz", part)
                self.check_refused(path, MEMORY_FOR_A_MEGABYTE, "times its size in nodes and dependencies.*gunzip")

    def test_gzip_of_many_lines_or_values_is_refused(self):
        path = self.packed_below_the_ratio(
            "lines.goal.gz", lambda noise: b"calc %d\n" % (int.from_bytes(noise, "big") >> 8) + b"calc 1\n" * 160,
            b"num_ranks 1\nrank 0 {\n")
        self.check_refused(path, MEMORY_FOR_A_MEGABYTE, "times its size in nodes and dependencies.*gunzip")
        path = self.packed_below_the_ratio(
            "values.0.json.gz", lambda noise: b'"%s",' % noise.hex().encode() + b"[]," * 370, b'{"nodes": [{"x": [')
        self.check_refused(path, MEMORY_FOR_A_MEGABYTE, "more than 4194304 JSON values")

    def test_gzip_of_json_without_end_is_refused(self):
        self.check_refused(self.packed("spaces.0.json.gz", b'{"nodes": [', b" " * (1 << 20)))

    def test_gzip_of_text_without_lines_is_refused(self):
        self.check_refused(self.packed("text.0.json.gz", b'{"schema": "', b"a" * (1 << 20)))

    def test_a_message_that_says_it_is_huge_is_refused(self):
        path = pathlib.Path(self.folder.name, "huge.0.et")
        path.write_bytes(b"\xff\xff\xff\xff\x0f" + b"\0" * 1000)  # claims that 4 GiB follow
        self.check_refused(path)


if __name__ == "__main__":
    unittest.main()
