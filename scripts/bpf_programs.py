#!/usr/bin/env python3
"""Ships and checks the compiled kernel programs for machines without clang (docs/adr/0016).

    scripts/bpf_programs.py ship --built build/release/switch/dataplane/bpf --clang clang
    scripts/bpf_programs.py check [--built build/release/switch/dataplane/bpf --clang clang]

`ship` copies the skeletons of a build to switch/dataplane/bpf/compiled and records a digest of their sources. `check`
fails if the sources have changed since. With `--built`, and the compiler that made the shipped ones, it also fails if
they differ from the build's. Comments and line ends do not count.
"""

import argparse
import hashlib
import pathlib
import re
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("fixup", "probe", "switch")
HOW = "build with clang and bpftool, then run `cmake --build BUILD --target spillway_bpf_ship`"


def sources_of(source):
    """A program's source and all headers of ours that it includes, as paths from the root."""
    found, left = set(), [source]
    while left:
        path = left.pop()
        if not (ROOT / path).is_file():
            path = f"lib/{path}"  # folders of the library are included from there
        if path not in found:
            found.add(path)
            left += re.findall(r'^\s*#\s*include "([^"]+)"', (ROOT / path).read_text(), re.MULTILINE)
    return sorted(found)


def without_comments(text):
    return " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).split())


def digest_of(program):
    digest = hashlib.sha256()
    for path in sources_of(f"switch/dataplane/bpf/{program}.bpf.c"):
        digest.update(f"{path}\n{without_comments((ROOT / path).read_text())}\n".encode())
    return digest.hexdigest()


def compiler_of(clang):
    return subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def object_of(skeleton):
    """The object that a skeleton contains as a string of escaped bytes."""
    text = max(re.findall(r'"\\\n(.*?)"', skeleton, re.DOTALL), key=len).replace("\\\n", "")
    return bytes(int(byte[2:], 16) if byte.startswith("\\x") else 0 for byte in re.findall(r"\\x[0-9a-f]{2}|\\0", text))


def loaded_sections(elf):
    """The sections that the kernel loads, by name, without types and line numbers."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian 64-bit ELF file")
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    names = headers[names_at][4]
    sections = {}
    for name, kind, flags, _, offset, length in headers:
        if flags & 2 and kind == 1:  # SHF_ALLOC, SHT_PROGBITS
            label = elf[names + name:elf.index(b"\0", names + name)].decode()
            sections[label] = elf[offset:offset + length]
    return sections


def shipped_folder():
    return ROOT / "switch/dataplane/bpf/compiled"


def ship(options):
    folder = shipped_folder()
    folder.mkdir(exist_ok=True)
    for program in PROGRAMS:
        (folder / f"{program}.skel.h.in").write_text((options.built / f"{program}.skel.h").read_text())
    lines = [f"compiler {compiler_of(options.clang)}"] + [f"{program} {digest_of(program)}" for program in PROGRAMS]
    (folder / "SOURCES").write_text("\n".join(lines) + "\n")


def check(options):
    folder = shipped_folder()
    noted = dict(line.split(" ", 1) for line in (folder / "SOURCES").read_text().splitlines())
    problems = [f"{program}.bpf.c or what it includes has changed since it was shipped"
                for program in PROGRAMS if noted.get(program) != digest_of(program)]
    if options.built and compiler_of(options.clang) == noted["compiler"] and not problems:
        for program in PROGRAMS:
            shipped, built = (loaded_sections(object_of(path.read_text()))
                              for path in (folder / f"{program}.skel.h.in", options.built / f"{program}.skel.h"))
            if shipped != built or not built:
                problems.append(f"what is shipped of {program}.bpf.c is not what {noted['compiler']} makes of it")
    for problem in problems:
        print(f"error: {problem}: {HOW}", file=sys.stderr)
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("ship", "check"))
    parser.add_argument("--built", type=pathlib.Path)
    parser.add_argument("--clang", default="clang")
    options = parser.parse_args()
    if options.verb == "ship":
        if not options.built:
            parser.error("ship needs --built")
        ship(options)
        return 0
    return check(options)


if __name__ == "__main__":
    sys.exit(main())
