#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds every #include of the sources to the layering that the CMakeLists.txt files declare.

  tests/check_layering.py [--root DIR]    check the tree
  tests/check_layering.py --self-test     prove, on temporary trees, that each rule can fail

Sources are in the top folders TOP. A folder of sources may include itself and the folders that it names: after USES in
spillway_folder(), or, for a plain add_executable() or add_library(), as spillway_<folder> in target_link_libraries().
Folders that those use in turn do not count. The rules, by their tags:

  [uses]      another folder is included only if it is named
  [order]     folders name only declared ones, and never in a circle
  [library]   the library does not use folders outside lib/
  [declared]  every source belongs to a declared folder, and every declared folder exists
  [core]      the core does no I/O and starts no threads: no such headers. Its tests may use them, and
              bpf/ folders, which contain kernel programs, may include <linux/bpf.h>.
              EDGE and OS_MEMORY name the exceptions
  [rooted]    quoted includes exist; those of the library are rooted at lib/, others at the top; angle brackets are for
              everything else
  [public]    <spillway/...> is for capi and cli; public headers include no other header of the project
  [tests]     only tests include GoogleTest, test headers and the harness in tests/harness/
  [files]     only base/own_file.* creates files or writes to them by name, so that none can be a trap of another user.
              OWN_FILES names the exceptions; tests may, too
  [named]     sources that a comment names exist
  [opens]     a header opens with a comment that says what it is
  [house]     files and folders that docs/architecture.md names (`folder/name`, or a column's lib/name) exist
"""

import argparse
import functools
import pathlib
import re
import sys
import tempfile

TOP = ("lib", "switch", "sim", "lab", "emulate", "tools")
CORE = {"base", "codec", "wire", "dataplane", "transport", "collective", "membership", "packetize", "scenario"}
# In base, because every folder that makes files uses it; the rest of the core may not include it.
EDGE = {"base/own_file"}
# Allocating memory is not I/O: keys need their own pages, and a lock for their lists.
OS_MEMORY = {"wire/key.cc"}
# These create or write files without base/own_file, with the reason.
OWN_FILES = {
    "tools/bench/incast/rank.cc",  # results, in a folder that the benchmark has just made for its user alone
    "emulate/stage/calibration.cc",  # a file of /proc
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
HOUSE = "docs/architecture.md"
NAMED_IN_HOUSE = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9.]*)`|^ ?((?:" + "|".join(TOP) + r")/[a-z_/0-9]+)\b")
NAMED_SOURCE = re.compile(r"(?<![\w</.-])((?:[a-z_0-9]+/)*)([a-z_0-9]+\.(?:h|cc))\b")
SAYS_WHAT_IT_IS = re.compile(r"(//|/\*| \*) (?!SPDX)\w")
OTHERS_HEADERS = {"foreach_target.h"}  # of Highway, named without angle brackets because it is asked for by name
INCLUDE = re.compile(r"""^\s*#\s*include\s*(?P<open>["<])(?P<path>[^">]+)[">]""")
COMMAND = re.compile(
    r"\b(spillway_folder|add_executable|add_library|target_sources|target_link_libraries)"
    r"\s*\(([^)]*)\)"
)
SOURCE_SUFFIXES = {".h", ".hpp", ".inl", ".c", ".cc", ".cpp", ".in"}


def is_test(path):
    """True for unit tests (*_test.cc) and their shared helpers (testing.h, *_testing.h)."""
    return re.search(r"(^|_)test(ing)?$", path.stem) is not None


class Folder:
    """A folder of sources: where it is, and the names of the folders it may include."""

    def __init__(self, place):
        self.place = place
        self.uses = set()


class Layering:
    """The declarations in the CMakeLists.txt of the top folders."""

    def __init__(self, root):
        self.folders = {}  # by name
        self.problems = []
        self._named = []  # (CMake file, folder, used)
        for top in TOP:
            file = root / top / "CMakeLists.txt"
            if file.is_file():
                self._read(top, re.sub(r"#[^\n]*", "", file.read_text(encoding="utf-8")))
        for file, folder, used in self._named:
            self._allow(file, folder, used)
        self._check_circles()

    def _read(self, top, text):
        targets = {}  # add_executable and add_library: target -> folder
        for match in COMMAND.finditer(text):
            words = match.group(2).split()
            if words:
                getattr(self, "_" + match.group(1))(top, words[0], words[1:], targets)

    def _spillway_folder(self, top, name, words, targets):
        targets["spillway_" + name] = None  # such a folder is declared by USES alone
        inner = words[words.index("IN") + 1] if "IN" in words else name
        self.folders[name] = Folder(pathlib.PurePosixPath(top, inner))
        named = words[words.index("USES") + 1 :] if "USES" in words else []
        for used in named:
            if used in ("WITHOUT", "ONLY", "PROGRAM", "IN", "EXCEPT", "COLD"):
                break
            self._named.append((f"{top}/CMakeLists.txt", name, used))

    def _add_executable(self, top, target, words, targets):
        for word in words:
            source = pathlib.PurePosixPath(word)
            if len(source.parts) > 1 and source.suffix in SOURCE_SUFFIXES and not is_test(source):
                name = targets.setdefault(target, source.parts[0])
                if name is not None:
                    self.folders.setdefault(name, Folder(pathlib.PurePosixPath(top, name)))

    _add_library = _add_executable
    _target_sources = _add_executable

    def _target_link_libraries(self, top, target, words, targets):
        name = targets.get(target)
        for word in words:
            used = word.removeprefix("spillway_")
            if name is not None and used != word and used in self.folders:
                self.folders[name].uses.add(used)

    def _allow(self, file, name, used):
        if used not in self.folders or used == name:
            self.problems.append(f"{file}: [order] {name} names {used}, which is not declared")
            return
        self.folders[name].uses.add(used)
        if file.startswith("lib/") and self.folders[used].place.parts[0] != "lib":
            self.problems.append(f"{file}: [library] {name} uses {used}, which is not of the library")

    def _check_circles(self):
        done, path = set(), []

        def visit(name):
            if name in path:
                top = self.folders[name].place.parts[0]
                circle = " -> ".join([*path[path.index(name) :], name])
                self.problems.append(f"{top}/CMakeLists.txt: [order] a circle: {circle}")
            elif name not in done:
                path.append(name)
                for used in sorted(self.folders[name].uses):
                    visit(used)
                path.pop()
                done.add(name)

        for name in sorted(self.folders):
            visit(name)


class Checker:
    def __init__(self, root):
        self.root = root
        self.layering = Layering(root)
        self.problems = list(self.layering.problems)
        self.files = 0
        self.names = {path.name.removesuffix(".in") for top in (*TOP, "include", "tests")
                      for path in self._sources(root / top)}

    def run(self):
        self._check_declarations()
        self._check_house()
        for top in TOP:
            for path in self._sources(self.root / top):
                self._check_file(path, self._check_source_include)
        for path in self._sources(self.root / "include"):
            self._check_file(path, self._check_public_include)
        if self.files == 0:
            self.problems.append("lib: [declared] there are no sources to check")
        return self.problems

    def _check_declarations(self):
        for top in TOP:
            for path in self._sources(self.root / top):
                if self._folder_of(path.relative_to(self.root)) is None:
                    where = path.relative_to(self.root).parent.as_posix()
                    self.problems.append(f"{where}: [declared] has sources, but no CMakeLists.txt declares it")
        for name, folder in sorted(self.layering.folders.items()):
            if not (self.root / folder.place).is_dir():
                self.problems.append(
                    f"{folder.place.parts[0]}/CMakeLists.txt: [declared] declares {name}, but there is no {folder.place}"
                )

    def _check_house(self):
        house = self.root / HOUSE
        lines = house.read_text(encoding="utf-8").splitlines() if house.is_file() else []
        for number, line in enumerate(lines, start=1):
            places, row = self.HOUSE_PLACES, re.match(r"\| `([a-z_/]+)/` \|", line)
            if row:  # of the table of folders: what it names may lie in its own
                places = [*places, *(f"{place}{row[1]}/" for place in ("", "lib/"))]
            for named in (match[1] or match[2] for match in NAMED_IN_HOUSE.finditer(line)):
                if not any(self._is_there(place + named.rstrip("/")) for place in places):
                    self.problems.append(f"{HOUSE}:{number}: [house] there is no {named}")

    HOUSE_PLACES = ["", "lib/", "switch/", "switch/dataplane/", "tools/", "python/", "python/spillway/"]

    def _is_there(self, name):
        path = self.root / name
        return path.exists() or any(path.parent.glob(path.name + ".*"))

    def _folder_of(self, path):
        """The name of the innermost declared folder that contains this path from the root."""
        return self._folder_at(pathlib.PurePosixPath(path.as_posix()).parent)

    @functools.cache
    def _folder_at(self, place):
        around = {place, *place.parents}
        holding = [(len(folder.place.parts), name) for name, folder in self.layering.folders.items()
                   if folder.place in around]
        return max(holding)[1] if holding else None

    def _resolve(self, included):
        """The path from the root that a quoted include names; None if there is no such file."""
        for place in (pathlib.PurePosixPath("lib", included), pathlib.PurePosixPath(included)):
            header = self.root / place
            sources = [header, header.with_name(header.name + ".in")]  # made by configure_file()
            if header.name.endswith(".skel.h"):  # made by spillway_bpf()
                sources.append(header.with_name(header.name.removesuffix(".skel.h") + ".bpf.c"))
            if place.parts[0] in TOP and any(source.is_file() for source in sources):
                return place
        return None

    @staticmethod
    def _sources(top):
        return sorted(path for path in top.rglob("*") if path.suffix in SOURCE_SUFFIXES)

    def _check_file(self, path, rule):
        self.files += 1
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".h" and not any(map(SAYS_WHAT_IT_IS.match, lines[:4])):
            self.problems.append(f"{path.relative_to(self.root).as_posix()}:1: [opens] it opens with no comment")
        for number, line in enumerate(lines, start=1):
            match = INCLUDE.match(line)
            if not match:
                self._check_files(path, number, line)
                self._check_named(path, number, line)
                continue
            quoted = match["open"] == '"'
            complaint = rule(path, match["path"], quoted)
            if complaint:
                shown = f'"{match["path"]}"' if quoted else f'<{match["path"]}>'
                where = path.relative_to(self.root).as_posix()
                self.problems.append(f"{where}:{number}: includes {shown}: {complaint}")

    def _check_files(self, path, number, line):
        if not MAKES_FILES.search(line.partition("//")[0]):
            return
        if not (is_test(path) or self._is_edge(path) or self._name(path) in OWN_FILES):
            where = path.relative_to(self.root).as_posix()
            self.problems.append(f"{where}:{number}: [files] files are made and written with base/own_file.h")

    def _check_named(self, path, number, line):
        for match in NAMED_SOURCE.finditer(line.partition("//")[2]):
            if match[2] not in self.names | OTHERS_HEADERS and not match[1].startswith(("linux/", "sys/")):
                where = path.relative_to(self.root).as_posix()
                self.problems.append(f"{where}:{number}: [named] there is no {match[1]}{match[2]}")

    def _check_source_include(self, path, included, quoted):
        folder = self._folder_of(path.relative_to(self.root))
        if included.split("/")[0] == "spillway":
            if folder not in USES_PUBLIC_HEADERS:
                return f"[public] only {', '.join(sorted(USES_PUBLIC_HEADERS))} include these"
            return None
        if quoted:
            return self._check_quoted(path, folder, included)
        if "/" in included and self._resolve(included):
            return '[rooted] headers of the project are included with "..."'
        if included.split("/")[0] in ("gtest", "gmock") and not is_test(path):
            return "[tests] only *_test.cc, testing.h and *_testing.h include GoogleTest"
        is_for_kernel = path.parent.name == "bpf" and included == "linux/bpf.h"
        is_excepted = is_test(path) or is_for_kernel or self._is_edge(path) or self._name(path) in OS_MEMORY
        if folder in CORE and not is_excepted and NOT_IN_CORE.fullmatch(included):
            return f"[core] {folder} belongs to the core, which does no I/O and starts no threads"
        return None

    def _name(self, path):
        """As an include names it."""
        return path.relative_to(self.root).as_posix().removeprefix("lib/")

    def _is_edge(self, path):
        return self._name(path).rsplit(".", 1)[0] in EDGE

    def _check_quoted(self, path, folder, included):
        reaches_edge = included.rsplit(".", 1)[0] in EDGE
        if folder in CORE and reaches_edge and not (is_test(path) or self._is_edge(path)):
            return f"[core] {folder} belongs to the core, which does no I/O and starts no threads"
        if included.split("/")[0] == "harness" and (self.root / "tests" / included).is_file():
            return None if is_test(path) else "[tests] only tests include the harness"
        place = None if ".." in included.split("/") else self._resolve(included)
        if place is None or included.startswith("lib/"):
            return "[rooted] there is no such file under lib/ or the top, where quoted includes are rooted"
        if is_test(place) and not is_test(path):
            return "[tests] only tests include headers made for tests"
        used = self._folder_of(place)
        if used == folder or folder is None:
            return None
        allowed = self.layering.folders[folder].uses
        if used not in allowed:
            names = ", ".join(sorted(allowed)) or "no other folder"
            return f"[uses] {folder} may include {names}, as its CMakeLists.txt says"
        return None

    def _check_public_include(self, _path, included, quoted):
        if quoted or "/" in included and self._resolve(included):
            return "[public] public headers include only <...> headers that are installed"
        return None


# ------------------------------------------------------------------ self-test

GOOD_TREE = {
    "include/spillway/spillway.h": "// C.\n#include <stdint.h>\n#include <spillway/types.h>\n",
    "lib/CMakeLists.txt": """
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
    "sim/CMakeLists.txt": """
        spillway_folder(scenario USES base)
        spillway_folder(sim IN . EXCEPT scenario COLD USES base scenario codec WITHOUT odd.cc)
        """,
    "sim/scenario/scenario.cc": '#include "base/status.h"\n',
    "sim/scenario/scenario.h": "/* SPDX */\n/* Text. */\n#pragma once\n",
    "sim/world.cc": '#include "sim/scenario/scenario.h"\n',
    "lib/base/status.cc": '#include "base/status.h"\n#include "base/version.h"\n',
    "lib/base/status.h": "// SPDX\n//\n// Errors.\n#pragma once\n",
    "lib/base/version.h.in": "#pragma once\n",
    "lib/codec/rotation.cc": '#include <hwy/highway.h>\n#include "base/status.h"\n',
    "lib/codec/rotation_test.cc": (
        '#include <thread>\n#include "codec/testing.h"\n#include "harness/slowdown.h"\n'
    ),
    "tests/harness/slowdown.h": "#pragma once\n",
    "lib/codec/testing.h": '// Helpers.\n#include <gtest/gtest.h>\ninline void plant() { std::ofstream("x") << 1; }\n',
    "lib/base/own_file.cc": "int made = ::open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);\n",
    "docs/architecture.md": " lib/codec/rotation  turns\n| `codec/` | `rotation`, `codec/rotation` |\n",
    "lib/wire/header.cc": '#include "wire/header.h"\n',
    "lib/wire/header.h": "// Formats; see header.cc and linux/if.h.\n#include <linux/types.h>\n",
    "lib/capi/capi.cc": (
        '#include <mutex>\n#include <spillway/spillway.h>\n#include "base/status.h"\n'
        'std::ifstream in(path);  // no std::ofstream\nFILE* read = std::fopen(name(path), "rb");\n'
    ),
}

# (rule, file, line): the rule must complain when the line is added to the file, which may be new.
BREAKAGES = [
    ("uses", "lib/codec/rotation.cc", '#include "wire/header.h"'),
    ("uses", "lib/codec/rotation_test.cc", '#  include "wire/header.h"'),
    ("uses", "lib/base/status.h", '#include "codec/rotation.cc"'),
    ("uses", "lib/capi/capi.cc", '#include "wire/header.h"'),
    ("uses", "sim/world.cc", '#include "wire/header.h"'),
    ("uses", "sim/scenario/scenario_test.cc", '#include "codec/testing.h"'),
    ("order", "lib/CMakeLists.txt", "spillway_folder(wire USES base later)"),
    ("order", "lib/CMakeLists.txt", "spillway_folder(base USES codec)"),
    ("library", "lib/CMakeLists.txt", "spillway_folder(wire USES base scenario)"),
    ("rooted", "sim/world.cc", '#include "lib/base/status.h"'),
    ("declared", "lib/CMakeLists.txt", "spillway_folder(late)"),
    ("declared", "lib/stray/stray.cc", "#include <cstdint>"),
    ("declared", "lib/ghost/ghost.cc", "#include <cstdint>"),
    ("core", "lib/codec/rotation.cc", "#include <sys/socket.h>"),
    ("core", "lib/wire/header.h", "#include <netinet/in.h>"),
    ("core", "lib/base/status.cc", "#include <thread>"),
    ("core", "lib/base/status.cc", "#include <mutex>  // a reason"),
    ("core", "lib/base/status.cc", "#include <unistd.h>"),
    ("core", "lib/base/status.cc", "#include <pthread.h>"),
    ("core", "lib/base/status.cc", "#include <fstream>"),
    ("core", "lib/base/status.cc", '#include "base/own_file.h"'),
    ("rooted", "lib/base/status.cc", '#include "status.h"'),
    ("rooted", "lib/base/status.cc", '#include "../wire/header.h"'),
    ("rooted", "lib/base/status.cc", '#include "base/../wire/header.h"'),
    ("rooted", "lib/capi/capi.cc", "#include <wire/header.h>"),
    ("public", "lib/codec/rotation.cc", "#include <spillway/spillway.h>"),
    ("public", "include/spillway/spillway.h", '#include "base/status.h"'),
    ("public", "include/spillway/spillway.h", "#include <base/status.h>"),
    ("tests", "lib/codec/rotation.cc", "#include <gtest/gtest.h>"),
    ("tests", "lib/codec/rotation.cc", '#include "codec/testing.h"'),
    ("tests", "lib/codec/rotation.cc", '#include "harness/slowdown.h"'),
    ("rooted", "lib/codec/rotation_test.cc", '#include "harness/nothing.h"'),
    ("files", "lib/capi/capi.cc", "std::ofstream(path) << text;"),
    ("files", "lib/capi/capi.cc", "  std::fstream file(path);"),
    ("files", "lib/capi/capi.cc", 'FILE* file = std::fopen(path.c_str(), "wb");'),
    ("files", "lib/capi/capi.cc", 'FILE* file = fopen(path, "r+");'),
    ("files", "lib/capi/capi.cc", "const int fd = ::open(path, O_WRONLY | O_CREAT, 0600);"),
    ("files", "lib/capi/capi.cc", "const int fd = ::mkostemp(path, O_CLOEXEC);"),
    ("named", "lib/codec/rotation.cc", "int x;  // as header_writer.h says"),
    ("opens", "lib/codec/late.h", "#pragma once"),
    ("house", "docs/architecture.md", "| `codec/` | `packs/` |"),
    ("house", "docs/architecture.md", "A row is `codec/row`."),
    ("house", "docs/architecture.md", " lib/codec/row      cuts"),
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
        return (path if path.endswith(".txt") else path.rsplit("/", 1)[0]) + ": "
    if rule in ("order", "library"):
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
