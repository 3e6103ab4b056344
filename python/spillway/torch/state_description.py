# SPDX-License-Identifier: Apache-2.0
"""A training state as tensors and a JSON description of everything else. It travels between processes that need not
trust each other with code: reading one makes values of the types below and calls nothing that the bytes name.

    scalars      null, true, 7, 0.5, "text"
    others       {"list": [...]}  {"tuple": [...]}  {"dict": [[key, value], ...]}  {"ordered": ...}  {"counter": ...}
                 {"bytes": base64}  {"array": [numpy's dtype, shape, base64]}  {"tensor": index of the tensor}

Invariants: describe() refuses what read() could not restore, and names the key and the type. Some subclasses come
back as their base type: those of dict other than OrderedDict and Counter, of tuple without names, and of numbers and
text.

Limits: MAX_DESCRIPTION_BYTES; dimensions of a tensor: MAX_DIMENSIONS. Pure functions; any thread.
"""
import base64
import binascii
import collections
import enum
import json
import math
import re
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Sequence, Tuple

import torch

MAX_DESCRIPTION_BYTES = 16 << 20
MAX_DIMENSIONS = 64
ARRAY_DTYPE = re.compile("[<>|=][biufc][0-9]{1,2}")  # numpy's types of numbers; objects are not among them
DICTS: Dict[str, Callable[[Any], Any]] = {"dict": dict, "ordered": collections.OrderedDict,
                                          "counter": collections.Counter}
# Types whose elements are plain bytes, by name; older releases of torch have fewer.
DTYPES: Dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16",
                 "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
                 "float8_e4m3fnuz", "float8_e5m2fnuz") if hasattr(torch, name)}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class DescriptionError(RuntimeError):
    """Bytes that describe no state."""


class TensorKind(NamedTuple):
    path: str
    shape: Tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * torch.empty((), dtype=self.dtype).element_size()


class Flat(NamedTuple):
    """A tree of JSON values, and its tensors apart."""
    tree: Any
    kinds: List[TensorKind]
    tensors: List[torch.Tensor]


# ---- Writing ----

def refuse(value: Any, path: str, why: str = "") -> NoReturn:
    kind = type(value)
    raise TypeError(f"the state at {path or '/'} is of type {kind.__module__}.{kind.__qualname__}{why}, which cannot "
                    "be given to a process that joins: let state_dict() return None, bool, int, float, str, bytes, "
                    "tensors, numpy arrays of numbers, and lists, tuples and dicts of these with keys of type str or "
                    "int")


def flatten(tree: Any) -> Flat:
    kinds: List[TensorKind] = []
    tensors: List[torch.Tensor] = []

    def tensor(value: torch.Tensor, path: str) -> Dict[str, int]:
        if value.layout is not torch.strided or value.dtype not in DTYPE_NAMES:
            refuse(value, path, f" ({value.layout}, {value.dtype})")
        kinds.append(TensorKind(path, tuple(value.shape), value.dtype))
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            return tensor(value, path)
        if isinstance(value, dict):
            name = next((each for each in ("ordered", "counter")
                         if isinstance(value, DICTS[each])), "dict")  # type: ignore[arg-type]
            return {name: [[key_of(key, path), walk(each, f"{path}/{key}")] for key, each in value.items()]}
        if isinstance(value, list) or is_plain_tuple(value):
            name = "list" if isinstance(value, list) else "tuple"
            return {name: [walk(each, f"{path}/{at}") for at, each in enumerate(value)]}
        return leaf_of(value, path)

    return Flat(walk(tree, ""), kinds, tensors)


def is_plain_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and not hasattr(value, "_fields")


def key_of(key: Any, path: str) -> Any:
    if isinstance(key, enum.Enum) or not isinstance(key, (str, int)):
        refuse(key, path, " as a key")
    return key if isinstance(key, bool) else str(key) if isinstance(key, str) else int(key)


def leaf_of(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        refuse(value, path)
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return numpys_of(value, path)


def numpys_of(value: Any, path: str) -> Any:
    dtype = getattr(getattr(value, "dtype", None), "str", "")
    if type(value).__module__ != "numpy" or not ARRAY_DTYPE.fullmatch(dtype):
        refuse(value, path)
    if not hasattr(value, "__len__") and value.dtype.kind in "biuf":
        return value.item()
    return {"array": [dtype, list(value.shape), base64.b64encode(value.tobytes()).decode()]}


def describe(flat: Flat) -> bytes:
    kinds = [[kind.path, list(kind.shape), DTYPE_NAMES[kind.dtype]] for kind in flat.kinds]
    description = json.dumps({"tensors": kinds, "tree": flat.tree}, separators=(",", ":")).encode()
    if len(description) > MAX_DESCRIPTION_BYTES:
        raise RuntimeError(f"all of the state that is no tensor has {len(description)} bytes as text, and may have "
                           f"{MAX_DESCRIPTION_BYTES}: let state_dict() return tensors for what is large")
    return description


# ---- Reading ----

def read(description: bytes) -> Tuple[Any, List[TensorKind]]:
    """The tree for fill(), and the kinds of the tensors that it needs."""
    try:
        said = json.loads(description)
        kinds = [kind_of(*each) for each in said["tensors"]]
        tree = said["tree"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DescriptionError(f"what came is no description of a state: {error}") from None
    return tree, kinds


def kind_of(path: Any, shape: Any, dtype: Any) -> TensorKind:
    if not isinstance(path, str) or not is_shape(shape) or dtype not in DTYPES:
        raise ValueError("a tensor's path, shape or type makes no sense")
    return TensorKind(path, tuple(shape), DTYPES[dtype])


def is_shape(shape: Any) -> bool:
    return (isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
            and all(type(size) is int and 0 <= size < 1 << 62 for size in shape))


def fill(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Rebuilds the values, with these tensors in their places."""
    try:
        return value_of(tree, tensors)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, binascii.Error) as error:
        raise DescriptionError(f"what came is no description of a state: {error}") from None


def value_of(node: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise ValueError("a list without a type")
        return node
    (name, content), = node.items()
    if name in DICTS:
        return DICTS[name]({checked_key(key): value_of(each, tensors) for key, each in content})
    if name == "list":
        return [value_of(each, tensors) for each in content]
    if name == "tuple":
        return tuple(value_of(each, tensors) for each in content)
    if name == "tensor" and type(content) is int and content >= 0:
        return tensors[content]
    if name == "bytes":
        return base64.b64decode(content, validate=True)
    if name == "array":
        return array_of(*content)
    raise ValueError(f"no type is called {name!r:.40}")


def checked_key(key: Any) -> Any:
    if not isinstance(key, (str, int)):
        raise ValueError("a key is neither text nor a number")
    return key


def array_of(dtype: Any, shape: Any, content: Any) -> Any:
    import numpy  # only a process that gets arrays needs it

    # Checked before numpy sees it: numpy.dtype() parses a language of its own, and fails in many ways.
    if not isinstance(dtype, str) or not ARRAY_DTYPE.fullmatch(dtype) or not is_shape(shape):
        raise ValueError("an array's type or shape makes no sense")
    return numpy.frombuffer(base64.b64decode(content, validate=True), numpy.dtype(dtype)).reshape(shape).copy()
