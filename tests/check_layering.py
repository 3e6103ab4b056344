#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds every #include under src/ and include/ to the layering that src/CMakeLists.txt declares.

  tests/check_layering.py [--root DIR]    check the tree
  tests/check_layering.py --self-test     prove, on temporary trees, that each rule can fail

A folder under src/ may include itself and the folders that it names: after USES in spillway_folder(), or, for a plain
add_executable() or add_library(), as spillway_<folder> in target_link_libraries(). What those folders use in turn
does not count. The rules, by their tags:

  [uses]      another folder is included only if it is named
  [order]     a folder names only folders declared before it, so there are no cycles
  [declared]  every folder under src/ is declared, and every declared one exists
  [core]      the core does no I/O and starts no threads: no such headers. Its tests may use them, and
              bpf/ folders, which contain kernel programs, may include <linux/bpf.h>.
              EDGE and OS_MEMORY name the exceptions
  [rooted]    quoted includes are rooted at src/ and exist; angle brackets are for everything else
  [public]    <spillway/...> is for capi and cli; public headers include no header of src/
  [tests]     only tests include GoogleTest, test headers and the harness in tests/harness/
  [files]     only base/own_file.* creates files or writes to them by name, so that none can be a trap of another user.
              OWN_FILES names the exceptions; tests may, too
"""

import argparse
import pathlib
import re
import sys
import tempfile

CORE = {"base", "codec", "wire", "dataplane", "transport", "collective", "membership", "packetize", "scenario"}
# In base, because every folder that makes files uses it; the rest of the core may not include it.
EDGE = {"base/own_file"}
# Allocating memory is not I/O: keys need their own pages, and a lock for their lists.
OS_MEMORY = {"wire/key_memory.cc"}
# These create or write files without base/own_file, with the reason.
OWN_FILES = {
    "bench/incast/rank.cc",  # results, in a folder that the benchmark has just made for its user alone
    "emulate/stage/calibrated_memory.cc",  # a file of /proc
    "lab/state_directory.cc",  # locks, which are never written to, in a folder that own_file prepared
}
USES_PUBLIC_HEADERS = {"capi", "cli"}

# Headers that reach the operating system or another thread.
NOT_IN_CORE = re.compile(
    r"(sys|netinet|arpa|net|netpacket)/(?!auxv\.h).*"  # auxv.h: what the processor can do
    r"|(unistd|fcntl|poll|netdb|ifaddrs|signal|pthread|threads|semaphore|sched|dlfcn)\.h"
    r"|linux/(if.*|io_uring|filter|bpf|netlink|rtnetlink|sock.*|errqueue)\.h"
    r"|csignal|thread|mutex|shared_mutex|condition_variable|future|stop_token|semaphore|latch"
    r"|barrier|iostream|fstream|filesystem"
)
# Line by line, without comments; fopen() and freopen() are found by a mode in the same line.
MAKES_FILES = re.compile(
    r"\bO_CREAT\b|\bO_TMPFILE\b|\bO_TRUNC\b"
    r"|\bstd::(basic_)?(ofstream|fstream)\b"
    r"|\b(mkstemp|mkostemp|mkstemps|mkostemps|creat|tmpfile)\s*\("
    r"|\bf(re)?open\s*\(.*,\s*\"[^\"]*[wa+]"
)
INCLUDE = re.compile(r"""^\s*#\s*include\s*(?P<open>["<])(?P<path>[^">]+)[">]""")
COMMAND = re.compile(
    r"\b(spillway_folder|add_executable|add_library|target_sources|target_link_libraries)"
    r"\s*\(([^)]*)\)"
)
SOURCE_SUFFIXES = {".h", ".hpp", ".inl", ".c", ".cc", ".cpp", ".in"}


def is_test(path):
    """True for unit tests (*_test.cc) and their shared helpers (testing.h, *_testing.h)."""
    return re.search(r"(^|_)test(ing)?$", path.stem) is not None


class Layering:
    """What src/CMakeLists.txt declares: for each folder, the folders it may include."""

    def __init__(self, cmake_text):
        self.uses = {}
        self.problems = []
        targets = {}  # add_executable and add_library: target -> folder
        text = re.sub(r"#[^\n]*", "", cmake_text)
        for match in COMMAND.finditer(text):
            words = match.group(2).split()
            if not words:
                continue
            getattr(self, "_" + match.group(1))(words[0], words[1:], targets)

    def _spillway_folder(self, folder, words, targets):
        targets["spillway_" + folder] = None  # such a folder is declared by USES alone
        self.uses[folder] = set()
        named = words[words.index("USES") + 1 :] if "USES" in words else []
        for used in named:
            if used in ("WITHOUT", "ONLY", "PROGRAM"):
                break
            self._allow(folder, used)

    def _add_executable(self, target, words, targets):
        for word in words:
            source = pathlib.PurePosixPath(word)
            if len(source.parts) > 1 and source.suffix in SOURCE_SUFFIXES and not is_test(source):
                folder = targets.setdefault(target, source.parts[0])
                if folder is not None:
                    self.uses.setdefault(folder, set())

    _add_library = _add_executable
    _target_sources = _add_executable

    def _target_link_libraries(self, target, words, targets):
        folder = targets.get(target)
        for word in words:
            used = word.removeprefix("spillway_")
            if folder is not None and used != word and used in self.uses:
                self.uses[folder].add(used)

    def _allow(self, folder, used):
        if used not in self.uses or used == folder:
            self.problems.append(
                f"src/CMakeLists.txt: [order] {folder} names {used}, which no earlier line declares"
            )
        self.uses[folder].add(used)


class Checker:
    def __init__(self, root):
        self.root = root
        self.src = root / "src"
        self.problems = []
        cmake = (self.src / "CMakeLists.txt").read_text(encoding="utf-8")
        self.layering = Layering(cmake)
        self.problems += self.layering.problems
        self.folders = {entry.name for entry in self.src.iterdir() if entry.is_dir()}
        self.files = 0

    def run(self):
        self._check_declarations()
        for path in self._sources(self.src):
            self._check_file(path, self._check_src_include)
        for path in self._sources(self.root / "include"):
            self._check_file(path, self._check_public_include)
        if self.files == 0:
            self.problems.append("src: [declared] there are no sources to check")
        return self.problems

    def _check_declarations(self):
        for folder in sorted(self.folders - self.layering.uses.keys()):
            if self._sources(self.src / folder):
                self.problems.append(
                    f"src/{folder}: [declared] has sources but no spillway_folder(), "
                    "add_executable() or add_library() in src/CMakeLists.txt"
                )
        for folder in sorted(self.layering.uses.keys() - self.folders):
            self.problems.append(
                f"src/CMakeLists.txt: [declared] declares {folder}, but there is no src/{folder}"
            )

    @staticmethod
    def _sources(top):
        return sorted(path for path in top.rglob("*") if path.suffix in SOURCE_SUFFIXES)

    def _check_file(self, path, rule):
        self.files += 1
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            match = INCLUDE.match(line)
            if not match:
                self._check_files(path, number, line)
                continue
            quoted = match["open"] == '"'
            complaint = rule(path, match["path"], quoted)
            if complaint:
                shown = f'"{match["path"]}"' if quoted else f'<{match["path"]}>'
                where = path.relative_to(self.root).as_posix()
                self.problems.append(f"{where}:{number}: includes {shown}: {complaint}")

    def _check_files(self, path, number, line):
        is_of_src = self.src in path.parents
        if is_test(path) or is_of_src and (self._is_edge(path) or self._name(path) in OWN_FILES):
            return
        if MAKES_FILES.search(re.sub(r"//.*", "", line)):
            where = path.relative_to(self.root).as_posix()
            self.problems.append(f"{where}:{number}: [files] files are made and written with base/own_file.h")

    def _check_src_include(self, path, included, quoted):
        folder = path.relative_to(self.src).parts[0]
        first = included.split("/")[0]
        if first == "spillway" and "spillway" not in self.folders:
            if folder not in USES_PUBLIC_HEADERS:
                return f"[public] only {', '.join(sorted(USES_PUBLIC_HEADERS))} include these"
            return None
        if quoted:
            return self._check_quoted(path, folder, included)
        if (self.src / included).is_file():
            return '[rooted] headers of src/ are included with "..."'
        if first in ("gtest", "gmock") and not is_test(path):
            return "[tests] only *_test.cc, testing.h and *_testing.h include GoogleTest"
        is_for_kernel = path.parent.name == "bpf" and included == "linux/bpf.h"
        is_excepted = is_test(path) or is_for_kernel or self._is_edge(path) or self._name(path) in OS_MEMORY
        if folder in CORE and not is_excepted and NOT_IN_CORE.fullmatch(included):
            return f"[core] {folder} belongs to the core, which does no I/O and starts no threads"
        return None

    def _name(self, path):
        return path.relative_to(self.src).as_posix()

    def _is_edge(self, path):
        return self._name(path).rsplit(".", 1)[0] in EDGE

    def _check_quoted(self, path, folder, included):
        reaches_edge = included.rsplit(".", 1)[0] in EDGE
        if folder in CORE and reaches_edge and not (is_test(path) or self._is_edge(path)):
            return f"[core] {folder} belongs to the core, which does no I/O and starts no threads"
        first = included.split("/")[0]
        if first == "harness" and (self.root / "tests" / included).is_file():
            return None if is_test(path) else "[tests] only tests include the harness"
        header = self.src / included
        sources = [header.with_name(header.name + ".in")]  # made by configure_file()
        if header.name.endswith(".skel.h"):  # made by spillway_bpf()
            sources.append(header.with_name(header.name.removesuffix(".skel.h") + ".bpf.c"))
        is_generated = any(source.is_file() for source in sources)
        if ".." in included.split("/") or not (header.is_file() or is_generated):
            return "[rooted] there is no such file under src/, where quoted includes are rooted"
        if is_test(header) and not is_test(path):
            return "[tests] only tests include headers made for tests"
        if first == folder or first not in self.folders:
            return None
        allowed = self.layering.uses.get(folder, set())
        if first not in allowed:
            names = ", ".join(sorted(allowed)) or "no other folder"
            return f"[uses] {folder} may include {names}, as src/CMakeLists.txt says"
        return None

    def _check_public_include(self, _path, included, quoted):
        if quoted or included.split("/")[0] in self.folders and "/" in included:
            return "[public] public headers include only <...> headers that are installed"
        return None


# ------------------------------------------------------------------ self-test

GOOD_TREE = {
    "include/spillway/spillway.h": "#include <stdint.h>\n#include <spillway/types.h>\n",
    "src/CMakeLists.txt": """
        # spillway_folder(ghost USES nothing)
        spillway_folder(base)
        spillway_folder(codec USES base
          WITHOUT codec/rotation_simd.cc)
        spillway_folder(wire USES base)
        add_library(spillway SHARED capi/capi.cc)
        target_link_libraries(spillway PRIVATE spillway_options spillway_base spillway_codec)
        add_executable(codec_test codec/rotation_test.cc)
        target_link_libraries(codec_test PRIVATE spillway_codec spillway_wire)
        """,
    "src/base/status.cc": '#include "base/status.h"\n#include "base/version.h"\n',
    "src/base/status.h": "#pragma once\n",
    "src/base/version.h.in": "#pragma once\n",
    "src/codec/rotation.cc": '#include <hwy/highway.h>\n#include "base/status.h"\n',
    "src/codec/rotation_test.cc": (
        '#include <thread>\n#include "codec/testing.h"\n#include "harness/slowdown.h"\n'
    ),
    "tests/harness/slowdown.h": "#pragma once\n",
    "src/codec/testing.h": '#include <gtest/gtest.h>\ninline void plant() { std::ofstream("x") << 1; }\n',
    "src/base/own_file.cc": "int made = ::open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);\n",
    "src/wire/header.cc": '#include "wire/header.h"\n',
    "src/wire/header.h": "#include <linux/types.h>\n",
    "src/capi/capi.cc": (
        '#include <mutex>\n#include <spillway/spillway.h>\n#include "base/status.h"\n'
        'std::ifstream in(path);  // no std::ofstream\nFILE* read = std::fopen(name(path), "rb");\n'
    ),
}

# (rule, file, line): the rule must complain when the line is added to the file, which may be new.
BREAKAGES = [
    ("uses", "src/codec/rotation.cc", '#include "wire/header.h"'),
    ("uses", "src/codec/rotation_test.cc", '#  include "wire/header.h"'),
    ("uses", "src/base/status.h", '#include "codec/rotation.cc"'),
    ("uses", "src/capi/capi.cc", '#include "wire/header.h"'),
    ("order", "src/CMakeLists.txt", "spillway_folder(wire USES base later)"),
    ("declared", "src/CMakeLists.txt", "spillway_folder(late)"),
    ("declared", "src/stray/stray.cc", "#include <cstdint>"),
    ("declared", "src/ghost/ghost.cc", "#include <cstdint>"),
    ("core", "src/codec/rotation.cc", "#include <sys/socket.h>"),
    ("core", "src/wire/header.h", "#include <netinet/in.h>"),
    ("core", "src/base/status.cc", "#include <thread>"),
    ("core", "src/base/status.cc", "#include <mutex>  // a reason"),
    ("core", "src/base/status.cc", "#include <unistd.h>"),
    ("core", "src/base/status.cc", "#include <pthread.h>"),
    ("core", "src/base/status.cc", "#include <fstream>"),
    ("core", "src/base/status.cc", '#include "base/own_file.h"'),
    ("rooted", "src/base/status.cc", '#include "status.h"'),
    ("rooted", "src/base/status.cc", '#include "../wire/header.h"'),
    ("rooted", "src/base/status.cc", '#include "base/../wire/header.h"'),
    ("rooted", "src/capi/capi.cc", "#include <wire/header.h>"),
    ("public", "src/codec/rotation.cc", "#include <spillway/spillway.h>"),
    ("public", "include/spillway/spillway.h", '#include "base/status.h"'),
    ("public", "include/spillway/spillway.h", "#include <base/status.h>"),
    ("tests", "src/codec/rotation.cc", "#include <gtest/gtest.h>"),
    ("tests", "src/codec/rotation.cc", '#include "codec/testing.h"'),
    ("tests", "src/codec/rotation.cc", '#include "harness/slowdown.h"'),
    ("rooted", "src/codec/rotation_test.cc", '#include "harness/nothing.h"'),
    ("files", "src/capi/capi.cc", "std::ofstream(path) << text;"),
    ("files", "src/capi/capi.cc", "  std::fstream file(path);"),
    ("files", "src/capi/capi.cc", 'FILE* file = std::fopen(path.c_str(), "wb");'),
    ("files", "src/capi/capi.cc", 'FILE* file = fopen(path, "r+");'),
    ("files", "src/capi/capi.cc", "const int fd = ::open(path, O_WRONLY | O_CREAT, 0600);"),
    ("files", "src/capi/capi.cc", "const int fd = ::mkostemp(path, O_CLOEXEC);"),
    ("files", "include/spillway/spillway.h", 'FILE* file = fopen("/tmp/trace", "w");'),
]


def problems_in(tree):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in tree.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        return Checker(root).run()


def place_of_complaint(rule, path, text):
    """How the complaint must begin: the include's file and line, or the folder or CMake file."""
    if rule == "declared":
        return "src/" + path.split("/")[1] + ": "
    if rule == "order":
        return path + ": "
    return f"{path}:{len(text.splitlines())}: "


def self_test():
    failures = [f"the good tree: {problem}" for problem in problems_in(GOOD_TREE)]
    for rule, path, line in BREAKAGES:
        text = GOOD_TREE.get(path, "") + line + "\n"
        found = problems_in({**GOOD_TREE, path: text})
        place = place_of_complaint(rule, path, text)
        if [p for p in found if p.startswith(place) and f"[{rule}]" in p] != found or not found:
            failures.append(f"{path} with {line!r}: expected [{rule}] at {place!r}, found {found}")
    for failure in failures:
        print(failure)
    print(f"self-test: {len(BREAKAGES)} breakages tried, {len(failures)} surprises")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    checker = Checker(arguments.root.resolve())
    problems = checker.run()
    for problem in problems:
        print(problem)
    print(f"layering: {checker.files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
