#!/usr/bin/env python3
"""scripts/bpf_programs.py: which programs it considers equal, and which not."""

import pathlib
import shutil
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import bpf_programs  # noqa: E402


class ShippedPrograms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        root = pathlib.Path(self.folder.name)
        for program in bpf_programs.PROGRAMS:
            for path in bpf_programs.sources_of(f"switch/dataplane/bpf/{program}.bpf.c"):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, root / path)
        shutil.copytree(ROOT / "switch/dataplane/bpf/compiled", root / "switch/dataplane/bpf/compiled")
        self.addCleanup(setattr, bpf_programs, "ROOT", bpf_programs.ROOT)
        bpf_programs.ROOT = root
        self.root = root
        self.header = root / "switch/dataplane/admission.h"

    def check(self):
        sys.stderr, kept = open("/dev/null", "w"), sys.stderr
        try:
            return bpf_programs.check(types.SimpleNamespace(built=None, clang="clang"))
        finally:
            sys.stderr.close()
            sys.stderr = kept

    def note(self):
        lines = ["compiler none"] + [f"{name} {bpf_programs.digest_of(name)}" for name in bpf_programs.PROGRAMS]
        (self.root / "switch/dataplane/bpf/compiled/SOURCES").write_text("\n".join(lines) + "\n")

    def test_a_header_that_says_something_else_is_noticed(self):
        self.note()
        self.assertEqual(self.check(), 0)
        self.header.write_text(self.header.read_text() + "\n#define SPILLWAY_NEW 1\n")
        self.assertEqual(self.check(), 1)

    def test_comments_and_lines_do_not_count(self):
        self.note()
        self.header.write_text("/* new */\n\n" + self.header.read_text() + "// newer\n")
        self.assertEqual(self.check(), 0)

    def test_a_skeleton_holds_programs(self):
        for program in bpf_programs.PROGRAMS:
            skeleton = (self.root / f"switch/dataplane/bpf/compiled/{program}.skel.h.in").read_text()
            sections = bpf_programs.loaded_sections(bpf_programs.object_of(skeleton))
            self.assertGreater(len(sections["xdp"]), 8, program)
            self.assertIn("license", sections)


if __name__ == "__main__":
    unittest.main()
