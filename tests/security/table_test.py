#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks SECURITY.md's tables against the tests: each attack of "How it is tested" names tests that exist and that
ctest runs, one of them holds each row of "Attackers and their limits", and every attack in this folder is mentioned.

    tests/security/table_test.py CTEST BUILD_FOLDER [unittest's arguments]
"""
import fnmatch
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness.processes import run

WHO, TESTED = "Attackers and their limits", "How it is tested"
NO_PROMISE = "everything"


def section(document, title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", document, re.MULTILINE | re.DOTALL)[1]


def rows(text):
    """The cells of each line of its tables, without lines of dashes."""
    lines = (line for line in text.splitlines() if line.startswith("|"))
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [each for each in cells if set("".join(each)) - set("-")]


def promises(document):
    """Letters of all rows that promise something."""
    lettered = [(cells[0][0], cells[1:]) for cells in rows(section(document, WHO)) if re.match(r"[A-Z]\. ", cells[0])]
    letters = [letter for letter, _ in lettered]
    assert len(letters) == len(set(letters)), f"a letter is there twice: {letters}"
    return {letter for letter, cells in lettered if set(cells) != {NO_PROMISE}}


class Registered:
    """The tests that ctest runs: the words of their commands, and labels by script."""

    def __init__(self, tests):
        self.words, self.labels, self.commands = set(), {}, []
        for test in tests:
            command = test.get("command", [])
            self.commands.append(" ".join(command))
            self.words.update(command)
            properties = {each["name"]: each["value"] for each in test["properties"]}
            for word in command:
                self.labels.setdefault(word, set()).update(properties.get("LABELS", []))

    def runs_file(self, path):
        """True for a Python script that ctest runs, or a C++ file in a program that it runs."""
        if path.suffix == ".py":
            return str(ROOT / path) in self.words
        programs = {pathlib.Path(word).name for word in self.words}
        return path.name.endswith("_test.cc") and any(f"{folder}_tests" in programs for folder in path.parts[:-1])

    def runs_command(self, words):
        return any(f"/{words}" in command for command in self.commands)


def fuzzers_missing(root):
    """Fuzzers that are not built, and so not run by the step `fuzz` of .ci/run."""
    built = set(re.findall(r"^spillway_fuzzer\((\w+)", (root / "fuzz/CMakeLists.txt").read_text(), re.MULTILINE))
    return {path.stem for path in (root / "fuzz").glob("*.cc")} - built


def trouble_with(name, registered):
    """Why a test that the document names proves nothing; None if it is fine."""
    if name.startswith("spillway "):
        return None if registered.runs_command(name) else f"ctest does not run `{name}`"
    if name == "fuzz/":
        missing = fuzzers_missing(ROOT)
        return f"not built: {missing}" if missing else None
    found = [path.relative_to(ROOT) for path in ROOT.glob(name)]
    if not found:
        return f"there is no {name}"
    idle = [str(path) for path in found if not registered.runs_file(path)]
    return f"ctest does not run {', '.join(idle)}" if idle else None


def troubles(document, registered):
    """Sentences about all problems."""
    found, held, named = [], set(), []
    for attack, *cells in rows(section(document, TESTED))[1:]:
        names = re.findall(r"`([^`]+)`", cells[0]) if cells else []
        names_files = [name for name in names if "/" in name or name.startswith("spillway ")]
        letters = set(re.findall(r"[A-Z]", cells[1])) if len(cells) == 2 else set()
        if not names_files or not letters:
            found.append(f"\"{attack}\" names no test, or no row that it holds")
        found += filter(None, (trouble_with(name, registered) for name in names_files))
        named += names_files
        held |= letters
    promised = promises(document)
    found += [f"no test holds row {letter}" for letter in sorted(promised - held)]
    found += [f"there is no row {letter} that promises something" for letter in sorted(held - promised)]
    for path in sorted((ROOT / "tests/security").glob("*_test.py")):
        relative = str(path.relative_to(ROOT))
        if path != pathlib.Path(__file__).resolve() and not any(fnmatch.fnmatch(relative, name) for name in named):
            found.append(f"{relative} is in no row")
        if "security" not in registered.labels.get(str(path), set()):
            found.append(f"{relative} has no label security")
    return found


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        listed = run([CTEST, "--test-dir", BUILD, "--show-only=json-v1"], check=True)
        cls.registered = Registered(json.loads(listed.stdout)["tests"])
        cls.document = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    def check_found(self, wanted, there, instead, count=1):
        """Checks that the document is refused for this reason with `instead` in place of `there`."""
        self.assertIn(there, self.document)
        self.assertRegex("\n".join(troubles(self.document.replace(there, instead, count), self.registered)), wanted)

    def test_every_attack_has_its_tests_and_every_row_is_held(self):
        self.assertEqual(troubles(self.document, self.registered), [])

    def test_a_file_that_vanished_is_found(self):
        self.check_found("there is no tests/security/gone_test.py", "tests/security/listener_test.py",
                         "tests/security/gone_test.py")
        self.check_found("listener_test.py is in no row", "tests/security/listener_test.py", "tests/security/gone.py")
        self.check_found("there is no lib/wire/gone", "`lib/wire/key_test.cc`", "`lib/wire/gone_*_test.cc`")

    def test_a_file_that_no_test_runs_is_found(self):
        self.check_found("ctest does not run tests/security/false_member.py", "tests/security/listener_test.py",
                         "tests/security/false_member.py")
        self.check_found("ctest does not run `spillway sim nothing`", "`spillway sim soak`", "`spillway sim nothing`")

    def test_a_row_that_nothing_holds_is_found(self):
        row = "| Z. **Somebody else** | nothing | nothing | nothing |\n\nA cut that tags"
        self.check_found("no test holds row Z", "\nA cut that tags", row)


if __name__ == "__main__":
    CTEST, BUILD = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main()
