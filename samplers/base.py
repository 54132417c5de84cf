"""The base classes of samplers, and the seed and vocabulary that a chain passes to its samplers.

A sampler is a pydantic model of its parameters, with the methods that a chain calls. `SamplerInfo` describes a
sampler, for example its place in a chain, which is counted as in `Stage`.
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
from .kernels import MAX_FLOAT32, Floats

if TYPE_CHECKING:
    from .stages import StageCandidates

FLOAT32_MAX = float(MAX_FLOAT32)  # the greatest value of a parameter, since samplers compute in float32


class Stage(IntEnum):
    """The steps of llama.cpp's default chain, in its order (common/common.h, ``common_params_sampling``).

    The numbers are ten apart. A sampler that llama.cpp lacks gets a number between two of them. For example,
    ``Stage.TOP_K + 1`` is directly after top_k.
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


@dataclass(frozen=True, slots=True)
class SamplerInfo:
    """The description of a sampler, which the registry, presets, `gen samplers` and the manual read."""

    name: str
    """The name of the sampler in presets, flags and messages, in snake case."""
    summary: str
    """The effect of the sampler in one line, for `gen samplers`."""
    formula: str
    """The formula in plain text."""
    reference: str
    """The paper or program that the sampler comes from."""
    llama_cpp: str
    """The comparison with llama.cpp's sampler of that name: ``equal``, or what differs."""
    main_parameter: str | None = None
    """The parameter that ``min_p: 0.05`` and ``min-p0.05`` set; None if every parameter must be named."""
    off_values: Mapping[str, Any] = field(default_factory=dict)
    """Values by parameter that together switch the sampler off; empty if the sampler cannot be switched off."""
    inactive_while_off: Mapping[str, str] = field(default_factory=dict)
    """Parameters that have no effect while another parameter has its off value, with that other parameter. In
    dynatemp, ``exponent`` has no effect while ``range`` is 0: ``{"exponent": "range"}``."""
    example: Any = None
    """A usual value of the main parameter; None if the default is usual."""
    aliases: tuple[str, ...] = ()
    """Other names of the sampler that presets and flags accept."""
    is_selector: bool = False
    """True for a `Selector`, which chooses the token and must be the last step of a chain."""
    stage: int | None = None
    """The place of the step in a chain, counted as in `Stage`. If a flag or ``--set`` names a step that the chain
    lacks, the step is inserted before the first step of a later stage. None: directly before the selector."""
    keeps_top_token: bool = False
    """True if the most likely token always stays the most likely one. Before greedy such a step has no effect."""
    is_bias: bool = False
    """True if the sampler favors or forbids certain tokens, at any position of the text. llama.cpp runs such a
    step before the steps that ``--samplers`` lists, and ``--samplers`` does not remove it."""
    family: str = ""
    """The name shared by samplers that are a single step of llama.cpp, such as temperature and dynatemp; empty if
    the sampler has no relatives."""
    covered_samplers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Samplers of the family whose effect this sampler includes. Parameters that have another name here are listed
    with this name: ``{"temperature": {"t": "temperature"}}``. A flag for a covered sampler sets this sampler if
    the chain has it. A flag for this sampler replaces a covered step of the chain by this sampler, unless the step
    is a selector."""
    is_greedy: bool = False
    """True for a selector that always takes the most likely token. Steps with `keeps_top_token` have no effect
    before such a selector."""
    mergeable_parameters: tuple[str, ...] = ()
    """Parameters with a table to which a flag or ``--set`` adds entries. It replaces the tables of others."""


@dataclass(frozen=True)
class BuildContext:
    """The seed and the vocabulary that a chain passes to its samplers when it is built."""

    seed: int
    """The seed of the random numbers, 0..2^32-1."""
    vocabulary: Vocabulary | None = None
    """The vocabulary of the model; None if the chain is built without a model."""
    stop_tokens: frozenset[int] = frozenset()
    """More tokens that end the text, in addition to the end-of-generation tokens."""


class Sampler(BaseModel):
    """A step of a chain. Its pydantic fields are its parameters.

    A sampler changes its state only in `reset` and `accept`; a selector also when it draws. A sampler never writes
    to the array of the model's logits. State is kept in ``__slots__``, because pydantic finds private attributes
    slowly, which would cost time at each token.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    about: ClassVar[SamplerInfo]
    """The description of the sampler."""
    state_slots: ClassVar[tuple[str, ...] | None] = None
    """Names of the slots that hold all state except random generators. A run that can go back saves their values
    before each draw, so values must not be changed in place: use numbers, bytes and tuples. None: a run that goes
    back calls `rewind`."""

    __slots__ = ()

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: Any) -> Any:
        if isinstance(value, float) and abs(value) > FLOAT32_MAX:
            raise ValueError("must be within the range of float32, ±3.4e38")
        return value

    @property
    def is_neutral(self) -> bool:
        """True if these parameters switch the sampler off. A chain leaves out such a step."""
        off_values = self.about.off_values
        if not off_values:
            return False
        return all(getattr(self, parameter) == value for parameter, value in off_values.items())

    def bind(self, context: BuildContext) -> None:
        """Prepare the sampler for a seed and a vocabulary. Called once, when the chain is built."""

    def reset(self, prompt: Sequence[int]) -> None:
        """Clear all state and remember ``prompt``, the token ids before the first draw."""

    def apply(self, candidates: Candidates) -> None:
        """Drop candidates or change their logits, in place. At least one candidate must stay."""

    def accept(self, token: int) -> None:
        """Update the state for a token that was appended to the text."""

    def rewind(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Return to the state after an earlier token. Called only if `state_slots` is None.

        The default resets the sampler and accepts the tokens again. The caller restores the random generators, so
        that no random number is used twice. A selector whose draw changes other state declares `state_slots`.

        Args:
            prompt: the token ids of the prompt.
            output: the token ids that remain after the prompt.
        """
        self.reset(prompt)
        for token in output:
            self.accept(token)

    def note(self, before: StageCandidates, after: StageCandidates) -> str | None:
        """Describe the effect of the last `apply` or `select` in a few words and numbers, for a trace.

        Called only while a chain is traced, and before `accept`. Changes no state. Returns None if the numbers of
        the trace need no description.

        Args:
            before: the candidates that the sampler got.
            after: the candidates that the sampler left.
        """
        return None

    @property
    def roll(self) -> float | None:
        """The random number that decided whether the last `apply` had an effect; None if no number was drawn."""
        return None


class Selector(Sampler):
    """A sampler that chooses the token. It is the last step of a chain."""

    def select(self, candidates: Candidates) -> int:
        """Return the id of one of the candidates."""
        raise NotImplementedError

    def trace_select(self, candidates: Candidates) -> Selection:
        """Select as `select` does, and also return the random number. A trace calls this instead of `select`."""
        return Selection(self.select(candidates))


class Selection(NamedTuple):
    """A selected token, and the random draw that selected it."""

    token: int
    """The token id."""
    u: float | None = None
    """The random number of the draw, in [0, 1); None if the selection was not random."""
    weights: Floats | None = None
    """The weights of the candidates that `select` leaves, float32 (n,); None if the selection was not random.

    The first candidate whose running sum of weights, in float64, reaches u times their total is drawn.
    """
    note: str | None = None
    """The description of the step, if it depends on state that the draw changed; None: `Sampler.note` describes
    the step."""


class ListParameter:
    """A mark for a list parameter: a single value is read as a list of one, and None as an empty list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allow the same forms in the JSON Schema."""
        inner = handler(schema)
        return {"anyOf": [inner, inner["items"], {"type": "null"}]}


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    is_single_value = isinstance(value, (int, str)) and not isinstance(value, bool)
    return [value] if is_single_value else value


class Vocabulary(Protocol):
    """The part of a model's vocabulary that samplers read. Tests may pass another object with these members.

    A vocabulary may also have an attribute ``suppressed``, a collection of the ids that no chain may draw.
    """

    @property
    def size(self) -> int:
        """Number of tokens."""

    @property
    def eog(self) -> frozenset[int]:
        """Ids of the end-of-generation tokens."""

    @property
    def end(self) -> int | None:
        """Id of the token that ends a turn or the text; None if the model has no such token."""

    @property
    def newline(self) -> int | None:
        """Id of the newline token; None if the model has no such token."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token, by id; for a control token, its name, such as ``<|im_end|>``."""

    def is_control(self, token: int) -> bool:
        """Return True for a control token, which is not part of the text."""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return the token ids of a UTF-8 string.

        Args:
            data: the bytes of the string.
            special: whether names of control tokens in the string become control tokens.
        """
        ...


def need_vocabulary(context: BuildContext, *place: str, value: str = "it") -> Vocabulary:
    """Return the vocabulary of a context. Raises ``SamplingError`` if the context has none."""
    # ``place``: the parameter whose ``value`` needs the vocabulary; empty for the sampler itself.
    if context.vocabulary is None:
        raise SamplingError(f"{value} needs a vocabulary: build the chain with vocab=", place=place)
    return context.vocabulary
