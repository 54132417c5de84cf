"""The base classes of samplers, and what a chain gives them.

A sampler is a pydantic model of its parameters, with the methods that a chain calls. `About` has its other facts,
`Stage` its place in a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, field_validator
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from .candidates import Candidates
from .errors import SamplingError
from .kernels import HIGHEST, Floats

if TYPE_CHECKING:
    from .stages import StageCandidates

FLOAT32_MAX = float(HIGHEST)
"""The largest parameter: samplers compute in float32."""


class Stage(IntEnum):
    """The steps of llama.cpp's default chain, in its order (common/common.h, ``common_params_sampling``).

    The numbers are ten apart. A sampler that llama.cpp lacks stands between two of them, such as
    ``Stage.TOP_K + 1``: behind top_k, and before typical.
    """

    IGNORE_EOS = 0
    LOGIT_BIAS = 10
    PENALTIES = 20
    DRY = 30
    TOP_N_SIGMA = 40
    TOP_K = 50
    TYPICAL = 60
    TOP_P = 70
    MIN_P = 80
    XTC = 90
    TEMPERATURE = 100


@dataclass(frozen=True)
class About:
    """The facts of a sampler beside its parameters: for the registry, presets, `gen samplers` and the manual."""

    name: str
    summary: str
    formula: str
    reference: str
    llama_cpp: str
    """Whether it equals llama.cpp's sampler, and where not."""
    main: str | None = None
    """The parameter that ``name: value`` and ``name0.5`` set."""
    neutral: Mapping[str, Any] = field(default_factory=dict)
    """The parameter values that switch it off, all together. Empty: it cannot be switched off."""
    idle: Mapping[str, str] = field(default_factory=dict)
    """Parameters that have no effect while another one is neutral, such as ``exponent`` while ``range`` is."""
    example: Any = None
    """A usual value of the main parameter; None: its default."""
    aliases: tuple[str, ...] = ()
    selects: bool = False
    """True for a `Selector`: it picks the token, so it is the last step of a chain."""
    stage: int | None = None
    """Where the step belongs, counted as in `Stage`. A flag or ``--set`` puts a missing step before the first step
    of a later stage. None: right before the step that selects."""
    keeps_likeliest: bool = False
    """True if the likeliest token always stays the likeliest. Before greedy such a step changes nothing."""
    is_bias: bool = False
    """True if it favours or forbids certain tokens, at any position. llama.cpp's ``--samplers`` neither lists nor
    removes such a step; it goes first."""
    family: str = ""
    """Samplers of one family are a single step of llama.cpp, such as temperature and dynatemp. Empty: none."""
    stands_for: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Other samplers of the family that this one includes; for each, the parameters that have another name here.
    If the chain has this step, a flag for the other sets this one. If it has the other, a flag for this one turns
    that step into this one; a selector stays."""
    takes_likeliest: bool = False
    """True for a selector that takes the likeliest token: steps that keep it the likeliest change nothing."""
    merged: tuple[str, ...] = ()
    """Parameters whose value is a table; a flag or ``--set`` adds its entries instead of replacing the table."""


@dataclass(frozen=True)
class BuildContext:
    """What a chain gives its samplers when it is built: the seed, 0..2^32-1, and the vocabulary, if any."""

    seed: int
    vocabulary: Vocabulary | None = None


class Sampler(BaseModel):
    """A step of a chain. Its fields are its parameters; `about` has the other facts.

    A sampler changes its state only in `reset` and `accept` (and, if it selects, in its draw). It never writes to
    the array of the model's logits. State is kept in ``__slots__``: pydantic finds private attributes by a slow
    path, which each token would pay for.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    about: ClassVar[About]

    __slots__ = ()

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: Any) -> Any:
        if isinstance(value, float) and abs(value) > FLOAT32_MAX:
            raise ValueError("a number that float32 can hold is needed")
        return value

    @property
    def is_neutral(self) -> bool:
        """True if these parameters leave every row as it is. A chain drops such a step."""
        neutral = self.about.neutral
        return bool(neutral) and all(getattr(self, name) == value for name, value in neutral.items())

    def bind(self, context: BuildContext) -> None:
        """Read what is needed of the seed and the vocabulary. Called once, when the chain is built."""

    def reset(self, prompt: Sequence[int]) -> None:
        """Clear all state and remember ``prompt``, the token ids before the first draw."""

    def apply(self, candidates: Candidates) -> None:
        """Drop rows or change logits, in place. At least one row must stay."""

    def accept(self, token: int) -> None:
        """Note the token that was emitted."""

    def note(self, before: StageCandidates, after: StageCandidates) -> str | None:
        """Return what the last `apply` or `select` did, in a few words and numbers; None: the rows say it all.

        Called only while a chain is traced, and before `accept`. ``before``, ``after``: the candidates that it got
        and those that it left. It changes no state.
        """
        return None

    @property
    def roll(self) -> float | None:
        """The random number by which the last `apply` decided whether to act; None if it draws none."""
        return None


class Selector(Sampler):
    """A sampler that picks the token: the last step of a chain."""

    def select(self, candidates: Candidates) -> int:
        """Return the id of one of the candidates."""
        raise NotImplementedError

    def trace_select(self, candidates: Candidates) -> Selection:
        """Select as `select` does, and return by which random number too. Called in place of it by a trace."""
        return Selection(self.select(candidates))


class Selection(NamedTuple):
    """A token, and how it was drawn from the candidates that `select` leaves."""

    token: int
    u: float | None = None
    """The random number, in [0, 1); None if chance did not decide."""
    weights: Floats | None = None
    """The weights of these candidates, float32 (n,); None if chance did not decide.

    The token is that of the first row whose running sum of weights, in float64, reaches u times their total.
    """
    note: str | None = None
    """What `note` cannot say, since it depends on a state that the draw changed; None: `note` is asked."""


class ListParameter:
    """Marks a parameter that is a list: a single value is read as a list of one, and None as an empty list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Add the conversion to pydantic's schema."""
        return no_info_before_validator_function(_listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allow the same forms in the JSON Schema."""
        inner = handler(schema)
        return {"anyOf": [inner, inner["items"], {"type": "null"}]}


def _listed(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, (int, str)) and not isinstance(value, bool) else value


class Vocabulary(Protocol):
    """What samplers ask of a model's vocabulary. The engine's has these members; a test may pass a fake."""

    @property
    def size(self) -> int:
        """Number of tokens."""

    @property
    def eog(self) -> frozenset[int]:
        """Ids of the tokens that end a generation."""

    @property
    def end(self) -> int | None:
        """Id of the token that ends a turn, or the text; None where the model names none."""

    @property
    def newline(self) -> int | None:
        """Id of the newline token, or None."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token, by id; a control token as it is written in the vocabulary."""

    def is_control(self, token: int) -> bool:
        """True for a control token, which is not part of the text."""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return the token ids of a text in UTF-8; ``special``: control tokens written in it count as tokens."""
        ...


def need_vocabulary(context: BuildContext, parameter: str) -> Vocabulary:
    """Return the vocabulary. Raises ``SamplingError`` that begins with ``parameter`` if there is none."""
    if context.vocabulary is None:
        raise SamplingError(f"{parameter} needs a vocabulary: build the chain with vocab=")
    return context.vocabulary
