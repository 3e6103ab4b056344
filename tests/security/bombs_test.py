#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces that are small on disk and huge when read, given to `spillway emulate lint`: it refuses them with a message,
long before it reaches their size.

    tests/security/bombs_test.py TOOL [unittest's arguments]
"""
import gzip
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
PART = b"\0" * (1 << 20)
PARTS = 2048  # 2 GiB
MOST_MEMORY = 4 << 30  # to unpack at most 16 MiB; nodes take far more than their bytes


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

    def check_refused(self, path):
        said = run(["prlimit", f"--as={MOST_MEMORY}", TOOL, "emulate", "lint", path])
        self.assertEqual(said.returncode, 1, said.stdout[-2000:] + said.stderr[-2000:])
        self.assertRegex(said.stdout + said.stderr, "unpack it with gunzip|is the limit")
        self.assertNotIn("bad_alloc", said.stderr)

    def test_gzip_of_empty_messages_is_refused(self):
        self.check_refused(self.packed("zeros.0.et.gz"))

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
