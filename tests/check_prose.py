#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the worst habits out of comments, help texts and Markdown.

  tests/check_prose.py [--root DIR] [PATH...]    check the tree, or only these files and folders of it
  tests/check_prose.py --self-test               prove, on samples, that each rule can fail

The rules, by their tags:

  [opening]  no sentence opens with "Of" or "Whoever", or with "What" or "Who" unless it is a question
  [picture]  things have the names of the field, not those of furniture: PICTURES lists the words
  [codec]    a codec is not called a code
  [long]     a sentence of Markdown has at most 40 words; tables and code blocks are not counted

Output of the experiments (result*.md) and test data are not checked. ALLOWED names the exceptions.
"""

import argparse
import ast
import io
import pathlib
import re
import sys
import tokenize

C_SUFFIXES = {".h", ".hpp", ".inl", ".c", ".cc", ".cpp", ".cuh"}
HASH_SUFFIXES = {".sh", ".cmake", ".lua"}
SKIPPED = {"build", ".git", "data", "golden", "seeds", "compiled", "__pycache__"}
HAS_HELP = re.compile(r"tools/cli/\w+\.cc|lib/base/variables\.h")
LONGEST_SENTENCE = 40

# (end of the path, text in the sentence): sentences that may stay as they are.
ALLOWED = [
    ("check_prose.py", ""),  # names the words
    ("wire/key.h", "guest to host"),  # labels of keys, part of the format
    ("rendezvous/handshake.h", '"guest"'),  # the same of proofs
]

PICTURES = re.compile(
    r"\b(bur(y|ied|ies)|chairs?|shel(f|ves)|seats?|doors?|guests?|farewells?|breathers?|deafness|made_up"
    r"|(?<=[`'\"])made-up(?=[`'\"]))\b",
    re.IGNORECASE,
)
CODE_FOR_CODEC = re.compile(
    r"\b(the|a|each|every|with|as) codes? [`'\"]?(planes|thc|levels|blocks|coded|entropy|sketch)\b"
    r"|\bcodes? [`'\"]?(thc|coded|sketch)\b",
    re.IGNORECASE,
)
OPENING = re.compile(r"(Of|Whoever|What|Who)\b(?!['\u2019])")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_]*[A-Z\d`\[])")
# These end with a full stop and do not end a sentence.
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|no|No|Fig|Sec|approx)|\b[A-Z])\.$")


def sentences(text):
    """The sentences of a block of text, in order."""
    out = []
    for part in SENTENCE_END.split(" ".join(text.split())):
        if out and ABBREVIATION.search(out[-1]):
            out[-1] += " " + part
        elif part:
            out.append(part)
    return out


def words(sentence):
    """How many words a reader reads: without the targets of links, and with code in backticks as one word."""
    sentence = re.sub(r"\]\([^)]*\)", "]", sentence)
    sentence = re.sub(r"`[^`]*`", "code", sentence)
    return len(re.findall(r"[^\W_][\w'.,:/%+-]*", sentence))


def complaints(text, is_markdown=False, counts=True):
    """(rule, sentence) for each breach in a block of text."""
    for sentence in sentences(text):
        bare = sentence.lstrip("\"'(*_`#->| ")
        opening = OPENING.match(bare)
        if opening and not (opening[1] in ("What", "Who") and sentence.rstrip("\"')*_").endswith("?")):
            yield "opening", sentence
        if PICTURES.search(sentence):
            yield "picture", sentence
        if CODE_FOR_CODEC.search(sentence):
            yield "codec", sentence
        if is_markdown and counts and words(sentence) > LONGEST_SENTENCE:
            yield "long", sentence


# ------------------------------------------------------------------ blocks: (line, text)


def joined(lines):
    """Joins (line, text) of consecutive lines into blocks; an empty text ends one."""
    block, start, last = [], 0, -1
    for number, text in lines:
        if block and (number != last + 1 or not text):
            yield start, "\n".join(block)
            block = []
        if text:
            if not block:
                start = number
            block.append(text)
        last = number
    if block:
        yield start, "\n".join(block)


C_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL
)


def c_comments(text):
    lines = []
    for match in C_TOKEN.finditer(text):
        token = match[0]
        number = text.count("\n", 0, match.start()) + 1
        if token.startswith("//"):
            lines.append((number, token.lstrip("/!<").strip()))
        elif token.startswith("/*"):
            for offset, line in enumerate(token[2:-2].split("\n")):
                lines.append((number + offset, line.strip().lstrip("*!<").strip()))
    return joined(lines)


def c_strings(text):
    """Adjacent string literals, as one."""
    found, end, start = [], None, 0
    for match in C_TOKEN.finditer(text):
        if not match[0].startswith('"'):
            continue
        if end is None or text[end : match.start()].strip():
            if found:
                yield start, "".join(found)
            found, start = [], text.count("\n", 0, match.start()) + 1
        found.append(match[0][1:-1].replace("\\n", "\n").replace('\\"', '"'))
        end = match.end()
    if found:
        yield start, "".join(found)


def python_texts(text):
    try:
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return
    yield from joined(
        [(token.start[0], token.string.lstrip("#! ").strip()) for token in tokens if token.type == tokenize.COMMENT]
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from paragraphs(node.value.value, node.lineno)
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node.value.lineno, node.value.value


def paragraphs(text, first):
    return joined([(first + offset, line.strip()) for offset, line in enumerate(text.split("\n"))])


def hash_comments(text):
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        match = re.match(r"\s*(?:#|--)(?!!)\s*(.*)", line)
        lines.append((number, match[1].strip() if match else ""))
    return joined(lines)


def markdown_texts(text):
    """(line, text, whether sentences are counted): paragraphs, items and headings; cells of tables one by one."""
    lines, is_code = [], False
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith("```"):
            is_code = not is_code
            stripped = ""
        elif is_code or (line.startswith("    ") and (not lines or not lines[-1][1])):
            stripped = ""
        elif stripped.startswith("|"):
            for cell in stripped.strip("|").split("|"):
                yield number, cell.strip(), False
            stripped = ""
        elif re.match(r"#+ |[-*] |\d+\. |>", stripped):
            lines.append((number, ""))
            yield from ((at, block, True) for at, block in joined(lines))
            lines = []
            stripped = re.sub(r"^(#+|[-*]|\d+\.|>)\s*", "", stripped)
            if line.lstrip().startswith("#"):
                yield number, stripped, True
                stripped = ""
        lines.append((number, stripped))
    yield from ((at, block, True) for at, block in joined(lines))


def problems_in(path, text):
    """Every breach in one file, as sentences; `path` is relative to the root."""
    name = path.as_posix()
    if path.suffix == ".md":
        blocks = [(number, block, counts) for number, block, counts in markdown_texts(text)]
    elif path.suffix in C_SUFFIXES:
        found = list(c_comments(text))
        if HAS_HELP.fullmatch(name):
            found += [(number, literal) for number, literal in c_strings(text) if " " in literal]
        blocks = [(number, block, False) for number, block in found]
    elif path.suffix == ".py":
        blocks = [(number, block, False) for number, block in python_texts(text)]
    else:
        blocks = [(number, block, False) for number, block in hash_comments(text)]
    for number, block, counts in blocks:
        for rule, sentence in complaints(block, path.suffix == ".md", counts):
            if not any(name.endswith(end) and allowed in sentence for end, allowed in ALLOWED):
                yield f"{name}:{number}: [{rule}] {sentence[:100]}"


def is_checked(path):
    is_output = path.parts[0] == "experiments" and re.fullmatch(r"result\w*\.md", path.name)
    if is_output or any(part in SKIPPED for part in path.parts):
        return False
    known = C_SUFFIXES | HASH_SUFFIXES | {".md", ".py"}
    return path.suffix in known or path.name == "CMakeLists.txt" or path.parts[0] == ".ci"


def files_in(root, chosen):
    for top in [root / name for name in chosen] or [root]:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and is_checked(path.relative_to(root)):
                yield path


# ------------------------------------------------------------------ self-test

SAMPLES = [  # (file, text, the rules that must complain)
    ("a.h", "// Of one rank: its links.\n", ["opening"]),
    ("a.h", "// A rank. What it sends is\n// counted.\nint a = 1;  // Whoever comes\n", ["opening", "opening"]),
    ("a.h", "/* Who sent it. */\n", ["opening"]),
    ("a.h", "// What may go wrong? A timeout. Who knows?\n", []),
    ("a.h", "// The name of what is sent\n// What follows is the same paragraph.\n", []),
    ("a.h", 'auto text = "Of a string"; // fine\n', []),
    ("a.h", "// Takes a seat.\n", ["picture"]),
    ("a.h", "// A made-up address; the seating of `made_up`.\n", ["picture"]),
    ("a.h", "// With the code planes and the code thc.\n", ["codec"]),
    ("a.h", "// These codes planes faster than the GPU codes levels.\n", []),
    ("tools/cli/a.cc", 'o("--x",\n  "Of all ranks, "\n  "the first");\n', ["opening"]),
    ("lib/base/variables.h", '{"X", "what it is. Whoever asks"}\n', ["opening"]),
    ("a.py", '"""Whoever reads this.\n\nOf that.\n"""\n# Who asks.\nx = "Of a string"\n', ["opening"] * 3),
    ("a.py", 'p.add_argument("--x", help="What to do with it")\n', ["opening"]),
    ("CMakeLists.txt", "# Of these\nadd_test(What)\n", ["opening"]),
    ("a.sh", "#!/bin/bash\n# Who ends it.\n", ["opening"]),
    ("a.md", "# What it is\n\n- Of this\n- Fine. Who cares?\n\n| Of a | cell |\n", ["opening"] * 3),
    ("a.md", "```\nOf code\n```\n    What is indented\n", []),
    ("a.md", "word " * 41 + "\n", ["long"]),
    ("a.md", "word " * 20 + "e.g. " + "word " * 9 + "ends. And " + "word " * 30 + "\n", []),
    ("a.md", "| " + "word " * 60 + " |\n", []),
    ("a.md", "- " + "word " * 30 + "\n- " + "word " * 30 + "\n", []),
]


def self_test():
    failures = 0
    for name, text, expected in SAMPLES:
        found = list(problems_in(pathlib.PurePosixPath(name), text))
        if [re.search(r"\[(\w+)\]", problem)[1] for problem in found] != expected:
            failures += 1
            print(f"{name} with {text!r}: expected {expected}, found {found}")
    print(f"self-test: {len(SAMPLES)} samples tried, {failures} surprises")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("paths", nargs="*")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    root = arguments.root.resolve()
    files, count = 0, 0
    for path in files_in(root, arguments.paths):
        files += 1
        for problem in problems_in(path.relative_to(root), path.read_text(encoding="utf-8")):
            print(problem)
            count += 1
    print(f"prose: {files} files, {count} problems")
    return 1 if count or not files else 0


if __name__ == "__main__":
    sys.exit(main())
