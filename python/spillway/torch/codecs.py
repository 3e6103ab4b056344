# SPDX-License-Identifier: Apache-2.0
"""Codecs: how the gradients of a hook travel.

    spillway.torch.attach(model, Planes(bits=5))          # bit planes; switches may trim packets
    spillway.torch.attach(model, Levels(bits=4))          # integers that switches and servers can add
    spillway.torch.attach(model, Entropy(bits=8))         # integers, entropy-coded; every packet arrives

A codec is a value: it can be compared, printed and shared between hooks. Making one checks its arguments, so a mistake
is found where it is written. All ranks must use equal codecs.
"""
import dataclasses
from typing import Any, ClassVar, Dict, Optional, Union

from .. import abi
from .backward import level_of

LOSS_BOUND = 0.01


def check_bits(codec: Any, name: str, least: int, most: int) -> None:
    bits = getattr(codec, name)
    if isinstance(bits, bool) or not isinstance(bits, int) or not least <= bits <= most:
        raise ValueError(f"{type(codec).__name__}: {name} is {bits!r}; it is a whole number from {least} to {most}")


class Codec:
    """The base of all codecs. `name` is the library's, as in SPILLWAY_CODEC."""

    name: ClassVar[str]
    loss_bound: ClassVar[float] = LOSS_BOUND  # unless the caller gives one

    def fields(self) -> Dict[str, Any]:
        """Arguments of Library.tolerant_options()."""
        raise NotImplementedError

    def options(self, loss_bound: Optional[float] = None, least_contributors: float = 0.0) -> abi.OperationOptions:
        """Options of a tolerant all-reduce. Raises ValueError in the library's words if they conflict."""
        return abi.default_library().tolerant_options(
            codec=abi.CODECS.index(self.name), loss_bound=self.loss_bound if loss_bound is None else loss_bound,
            least_contributors=least_contributors, **self.fields())

    def feedback_reason(self) -> str:
        """Why it does not work without error feedback; empty if it does."""
        return ""

    def check_feedback(self, error_feedback: bool) -> None:
        if self.feedback_reason() and not error_feedback:
            raise ValueError(f"{self} needs error feedback, {self.feedback_reason()}: leave error_feedback on")


@dataclasses.dataclass(frozen=True)
class Planes(Codec):
    """Bit planes of rotated rows. Switches may trim packets, and a bounded share of packets may stay missing.

    bits        per value on the way to the sums, 1 to 32
    bits_back   per value of the returned sums; None: as many as `bits`
    min_planes  bits per value that a trimmed packet must keep to count
    importance  what switches drop first. "energy": packets of rows with little energy. 0 to 7: all packets are alike;
                0 to 3 are dropped early, 4 to 6 are not, 7 must arrive
    expendable  with "energy": share of a contribution's packets to drop first. None: the loss bound for the front of
                the model, less towards its back
    """
    name: ClassVar[str] = "planes"
    bits: int = 5
    bits_back: Optional[int] = None
    min_planes: int = 1
    importance: Union[str, int] = "energy"
    expendable: Optional[float] = None

    def __post_init__(self) -> None:
        check_bits(self, "bits", 1, 32)
        if self.bits_back is not None:
            check_bits(self, "bits_back", 1, 32)
        check_bits(self, "min_planes", 1, min(self.bits, self.bits_back or self.bits))
        level_of(self.importance, "energy", "importance")
        if self.expendable is not None:
            abi.share("expendable", self.expendable)

    def fields(self) -> Dict[str, Any]:
        level = level_of(self.importance, "energy", "importance")
        return {"precision": self.bits, "gather_precision": self.bits_back or self.bits, "min_planes": self.min_planes,
                "importance": abi.IMPORTANCE_BY_ENERGY if level is None else level, "expendable": self.expendable}


@dataclasses.dataclass(frozen=True)
class Levels(Codec):
    """Few levels of rotated rows, after THC. Switches and parameter servers add them without decoding. Large values
    are clipped, so without error feedback gradients shrink a little.

    bits             per value: 2, 3, 4 or 8
    predicted_scale  the scale follows from the last step's, which saves a round trip
    """
    name: ClassVar[str] = "levels"
    bits: int = 4
    predicted_scale: bool = False

    def __post_init__(self) -> None:
        if self.bits not in (2, 3, 4, 8):
            raise ValueError(f"Levels: bits is {self.bits!r}; it is 2, 3, 4 or 8")

    def feedback_reason(self) -> str:
        return predicted_scale_reason(self)

    def fields(self) -> Dict[str, Any]:
        return {"precision": self.bits, "predicts_scale": int(self.predicted_scale)}


@dataclasses.dataclass(frozen=True)
class Blocks(Codec):
    """32-bit integers with a scale per row, which switches and parameter servers can add. Next to nothing is lost.

    predicted_scale  the scale follows from the last step's, which saves a round trip
    """
    name: ClassVar[str] = "blocks"
    predicted_scale: bool = False

    def feedback_reason(self) -> str:
        return predicted_scale_reason(self)

    def fields(self) -> Dict[str, Any]:
        return {"predicts_scale": int(self.predicted_scale)}


@dataclasses.dataclass(frozen=True)
class Entropy(Codec):
    """Integers with one scale per bucket, entropy-coded without loss by tables that follow from the last step. Every
    packet arrives. Sends the fewest bits where processors are faster than links.

    bits             per value before coding, 2 to 16
    predicted_scale  the scale follows from the last step's, which saves a pass over the values
    algorithm        "auto", "direct" or "ring"
    """
    name: ClassVar[str] = "entropy"
    loss_bound: ClassVar[float] = 0.0
    bits: int = 8
    predicted_scale: bool = False
    algorithm: str = "auto"

    def __post_init__(self) -> None:
        check_bits(self, "bits", 2, 16)
        if self.algorithm not in ("auto", "direct", "ring"):
            raise ValueError(f"{type(self).__name__}: algorithm is {self.algorithm!r}; it is 'auto', 'direct' or "
                             "'ring'")

    def feedback_reason(self) -> str:
        return predicted_scale_reason(self)

    def fields(self) -> Dict[str, Any]:
        return {"precision": self.bits, "predicts_scale": int(self.predicted_scale),
                "algorithm": abi.ALGORITHMS.index(self.algorithm)}


@dataclasses.dataclass(frozen=True)
class Sketch(Entropy):
    """As Entropy, for gradients that are mostly zero, in much the same places from step to step: only places that were
    not zero are coded densely, the others go into a sketch. `bits` and the rest are those of Entropy."""
    name: ClassVar[str] = "sketch"

    def feedback_reason(self) -> str:
        return "which adds values that the sketch had no room for to the next step"


@dataclasses.dataclass(frozen=True)
class Exact(Codec):
    """Every value arrives as it is. For comparison, with the hook's reports."""
    name: ClassVar[str] = "exact"


@dataclasses.dataclass(frozen=True)
class Auto(Codec):
    """Tries codecs in the first steps and takes the one with the shortest steps (auto_codec.py).

    max_error  limit of a step's squared error over the energy of the exact sum; None: 0.3, or 0.01 without error
               feedback
    """
    name: ClassVar[str] = "auto"
    max_error: Optional[float] = None

    def __post_init__(self) -> None:
        if self.max_error is not None and not 0.0 < self.max_error < 1.0:
            raise ValueError(f"Auto: max_error is {self.max_error:g}; it must be above 0 and below 1")


def predicted_scale_reason(codec: Any) -> str:
    return "which adds values beyond the predicted scale to the next step" if codec.predicted_scale else ""


CODECS = {codec.name: codec for codec in (Planes, Levels, Blocks, Entropy, Sketch, Exact, Auto)}


def codec_named(name: str, bits: Optional[int] = None) -> Codec:
    """The codec of a library's name, with its usual bits unless given."""
    has_bits = bits is not None and name in ("planes", "levels", "entropy", "sketch")
    return CODECS[name](bits=bits) if has_bits else CODECS[name]()
