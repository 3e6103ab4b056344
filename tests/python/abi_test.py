#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package's hand-written binding (abi.py) against include/spillway/spillway.h: fields, constants and signatures.
It needs neither the library nor torch.

    tests/python/abi_test.py [unittest's arguments]
"""
import ctypes
import pathlib
import re
import sys
import unittest
from ctypes import POINTER

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from spillway import abi, errors, job

HEADER = re.sub(r"/\*.*?\*/", " ", (ROOT / "include/spillway/spillway.h").read_text(encoding="utf-8"), flags=re.DOTALL)

STRUCTS = {"spillway_unique_id": abi.UniqueId, "spillway_launch": abi.Launch, "spillway_comm_config": abi.CommConfig,
           "spillway_operation_options": abi.OperationOptions, "spillway_operation_report": abi.OperationReport,
           "spillway_peer_report": abi.PeerReport, "spillway_shard_report": abi.ShardReport,
           "spillway_job_config": abi.JobConfig, "spillway_job_change": abi.JobChange,
           "spillway_job_position": abi.JobPosition}
HANDLES = ("spillway_comm", "spillway_request", "spillway_job")
SCALARS = {"size_t": ctypes.c_size_t, "int": ctypes.c_int, "char": ctypes.c_char, "double": ctypes.c_double,
           **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 32, 64)}}
BYTES = ("char", "uint8_t")  # ctypes passes pointers to them as bytes


def structs():
    """{name: text of its fields}"""
    return {name: body for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", HEADER, re.DOTALL)}


def enums():
    """{name: {constant: value}}"""
    return {name: {constant: int(value, 0) for constant, value in re.findall(r"(\w+)\s*=\s*(\w+)", body)}
            for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", HEADER, re.DOTALL)}


def defines():
    return {name: int(value, 16 if value.startswith("0x") else 10)
            for name, value in re.findall(r"#define (SPILLWAY_\w+) (0x[0-9A-F]+|\d+)u", HEADER)}


def functions():
    """{name: (text of its result, texts of its parameters)}"""
    found = re.findall(r"SPILLWAY_API\s+([\w\s*]*?)(spillway_\w+)\(([^)]*)\);", HEADER)
    return {name: (result.strip(), [] if parameters.strip() == "void" else parameters.split(","))
            for result, name, parameters in found}


def ctype_of(text):
    """The ctypes type that abi.py must use for a C type, such as "const char*"."""
    base, stars = text.replace("const", "").replace("*", "").strip(), text.count("*")
    if stars == 0:
        return SCALARS.get(base) or {"spillway_callback": abi.Callback, "void": None}.get(base, ctypes.c_int)
    if base in HANDLES or base == "void":
        return ctypes.c_void_p if stars == 1 else POINTER(ctypes.c_void_p)
    if base in BYTES:
        return ctypes.c_char_p
    return POINTER(STRUCTS[base] if base in STRUCTS else SCALARS[base])


def field_of(text):
    """The name and the ctypes type of a field, such as "char host[256]"."""
    kind, name, length = re.fullmatch(r"\s*(.*?[\s*])(\w+)(?:\[(\d+)\])?\s*", text, re.DOTALL).groups()
    return name, ctype_of(kind) if length is None else ctype_of(kind) * int(length)


def names_of(enum, prefix):
    """The names of an enum's values, in their order, without a prefix."""
    constants = enums()[enum]
    return [name[len(prefix):].lower() for name in sorted(constants, key=constants.get) if name.startswith(prefix)]


class Header(unittest.TestCase):
    def test_structs_have_the_same_fields(self):
        for name, struct in STRUCTS.items():
            expected = [field_of(text) for text in structs()[name].split(";") if text.strip()]
            bound = [field for field in struct._fields_ if field[0] != "room"]
            self.assertEqual(bound, expected, f"abi.{struct.__name__} is not {name}")

    def test_functions_have_the_same_signatures(self):
        declared = functions()
        operations = {f"spillway_{name}": (ctypes.c_int, [ctypes.c_void_p, *arguments, POINTER(abi.OperationOptions),
                                                          POINTER(ctypes.c_void_p)])
                      for name, arguments in abi.OPERATIONS.items()}
        for name, (result, arguments) in {**abi.SIGNATURES, **operations}.items():
            self.assertIn(name, declared, "abi.py binds a function that the header lacks")
            text, parameters = declared[name]
            self.assertEqual(result, ctype_of(text), f"the result of {name}")
            self.assertEqual(list(arguments), [ctype_of(re.sub(r"\w+\s*$", "", each)) for each in parameters], name)

    def test_constants_have_the_same_values(self):
        for enum in ("spillway_data_type", "spillway_reduction", "spillway_memory"):
            for name, value in enums()[enum].items():
                if not name.endswith("_LIMIT"):
                    self.assertEqual(getattr(abi, name[len("SPILLWAY_"):]), value, name)
        for name in ("ANY_RANK", "MAX_TAG", "IMPORTANCE_BY_ENERGY", "EXPENDABLE_AS_LOST"):
            self.assertEqual(getattr(abi, name), defines()[f"SPILLWAY_{name}"], name)
        self.assertEqual(job.MAX_TICKET, defines()["SPILLWAY_MAX_TICKET"])
        self.assertEqual({f"SPILLWAY_{status.name}": status.value for status in errors.Status},
                         enums()["spillway_status"])

    def test_names_are_in_the_same_order(self):
        algorithms = ["auto" if name == "automatic" else name
                      for name in names_of("spillway_algorithm", "SPILLWAY_ALGORITHM_")]
        self.assertEqual(list(abi.ALGORITHMS), algorithms)
        self.assertEqual(list(abi.CODECS), names_of("spillway_codec", "SPILLWAY_CODEC_"))
        self.assertEqual(len(abi.ELEMENT_BYTES), len(enums()["spillway_data_type"]) - 1)


if __name__ == "__main__":
    unittest.main()
