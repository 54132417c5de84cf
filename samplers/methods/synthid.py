"""SynthID-Text: a watermark that a detector with the same keys finds in the text."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, WithJsonSchema

from ..base import BuildContext, ListParameter, Sampler, SamplerInfo
from ..candidates import Candidates
from ..stages import short_number
from ..watermark import GValues, context_hash, extend_hash, ngram_hashes

if TYPE_CHECKING:
    from ..stages import StageCandidates

MAX_KEYS = 256  # greatest number of keys; each costs a pass over all candidates, and the paper has 30
MAX_NGRAM_LEN = 1000  # greatest length of an n-gram; each token of the text costs as many products
MAX_TABLE_SIZE = 1 << 24  # greatest size of the table, as in transformers
# The keys of a watermark, which transformers keeps as signed 64-bit integers. The JSON Schema has no limits,
# because llguidance, which reads the schema of presets as a grammar, supports no integers of 64 bits.
WatermarkKeys = Annotated[
    list[Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), WithJsonSchema({"type": "integer"})]],
    ListParameter(),
    Field(max_length=MAX_KEYS),
]


class Synthid(Sampler):
    """Prefer tokens whose n-grams have many g values of 1, so that a detector recognizes the text.

    Formula: for each key k in turn, p_i <- p_i * (1 + g_k(i) - sum_j g_k(j) p_j). The g value g_k(i), 0 or 1, is
    that of key k and of the n-gram that the last ``ngram_len`` - 1 tokens and token i form. Probabilities are
    float64 (n,), new logits ln p float32 (n,). A token whose probability becomes 0 is dropped. The mean of the
    probabilities over all keys is the distribution before. The context of the first tokens is filled with zeros,
    because the prompt does not count.

    A context of ``ngram_len`` - 1 tokens that is one of the last ``context_history_size`` contexts is not marked
    again. ``skip_first_ngram_calls`` leaves the first ``ngram_len`` - 1 tokens unmarked. The time of a step is
    proportional to the number of candidates times the number of keys, so the place of the step is after the steps
    that drop tokens.

    Range: at most 256 keys of 64 bits with sign, ngram_len 2..1000, context_history_size >= 0, sampling_table_size
    1..2^24; neutral without keys. Source: Dathathri et al. 2024. Equals transformers 5.24's
    ``SynthIDTextWatermarkLogitsProcessor`` on a CPU: the same g values and the same unmarked tokens, and the same
    probabilities up to the rounding of float32, in which transformers computes. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="synthid",
        summary="mark the text with a watermark that gen detect finds with the same keys",
        formula="for each key: p_i * (1 + g_i - sum_j g_j p_j),  g_i = 0 or 1, a hash of the last tokens and i",
        reference="Dathathri et al. 2024, Nature 634; transformers `SynthIDTextWatermarkingConfig`",
        llama_cpp="not in llama.cpp",
        main_parameter="keys",
        example=[654, 400, 836, 123, 340, 443, 597, 160, 57],
        off_values={"keys": []},
        aliases=("synthid_text",),
    )

    keys: WatermarkKeys = Field(
        default_factory=list, description="secret integers, one per layer of the watermark; none = off"
    )
    ngram_len: int = Field(
        default=5,
        ge=2,
        le=MAX_NGRAM_LEN,
        description="tokens of an n-gram: those of the context, and the next one",
    )
    context_history_size: int = Field(
        default=1024, ge=0, description="number of past contexts that are not marked again"
    )
    sampling_table_size: int = Field(
        default=1 << 16, ge=1, le=MAX_TABLE_SIZE, description="number of entries of the table of g values"
    )
    sampling_table_seed: int = Field(default=0, ge=0, description="seed of the table; its lowest 32 bits count")
    skip_first_ngram_calls: bool = Field(
        default=False, description="leave the tokens before the first complete n-gram unmarked"
    )

    __slots__ = ("_accepted_count", "_context", "_context_hash", "_g_values", "_history", "_history_counts")

    def bind(self, context: BuildContext) -> None:
        self._g_values = GValues(self.keys, self.sampling_table_size, self.sampling_table_seed)

    def reset(self, prompt: Sequence[int]) -> None:
        """Start with a context of zeros and an empty history, whatever the prompt."""
        self._start(())

    def rewind(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self._start(output)

    def _start(self, output: Sequence[int]) -> None:
        """Compute the context and the history after ``output``."""
        context_size = self.ngram_len - 1
        padded_output = [*([0] * context_size), *output]
        self._accepted_count = len(output)
        self._context: tuple[int, ...] = tuple(padded_output[-context_size:])
        self._context_hash: int = context_hash(self._context)
        # The context of token n of the output is padded_output[n : n + context_size].
        first_marked = context_size if self.skip_first_ngram_calls else 0
        first_remembered = max(first_marked, len(output) - self.context_history_size)
        hashes: list[int] = []
        if first_remembered < len(output):
            tokens_of_contexts = np.array(padded_output[first_remembered:-1], dtype=np.int64)
            hashes = ngram_hashes(tokens_of_contexts, context_size).view(np.uint64).tolist()
        self._history: deque[int] = deque(hashes)
        self._history_counts: Counter[int] = Counter(hashes)

    def accept(self, token: int) -> None:
        if not self._is_before_first_ngram:
            self._remember(self._context_hash)
        self._accepted_count += 1
        self._context = (*self._context[1:], token)
        self._context_hash = context_hash(self._context)

    def apply(self, candidates: Candidates) -> None:
        if self.is_neutral or self._unmarked_reason() is not None:
            return
        probs = candidates.weights().astype(np.float64)
        probs /= np.add.reduce(probs)
        hashes = extend_hash(self._context_hash, candidates.ids)
        for g_values in self._g_values.of_hashes(hashes):
            g = g_values.astype(np.float64)  # NumPy is slow at mixed types
            expected_g = np.add.reduce(probs * g)
            probs *= g + (1.0 - expected_g)
        # Rounding may leave a mass above 1, and then a probability below 0.
        is_possible = probs > 0
        if not is_possible.all():
            candidates.filter_rows(is_possible)
            probs = probs[is_possible]
        candidates.set_logits(np.log(probs).astype(np.float32))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        reason = self._unmarked_reason()
        if reason is not None:
            return f"not marked: {reason}"
        return f"mean g {short_number(self._mean_g(before))} -> {short_number(self._mean_g(after))}"

    @property
    def _is_before_first_ngram(self) -> bool:
        return self.skip_first_ngram_calls and self._accepted_count < self.ngram_len - 1

    def _unmarked_reason(self) -> str | None:
        """Return the reason why the next token is not marked; None if it is marked."""
        if self._is_before_first_ngram:
            return f"fewer than {self.ngram_len - 1} tokens precede"
        # The history of transformers begins with zeros, so that a hash of 0 counts as repeated.
        is_in_first_zeros = self._context_hash == 0 and len(self._history) < self.context_history_size
        is_repeated = is_in_first_zeros or self._history_counts[self._context_hash] > 0
        return "the context is repeated" if is_repeated else None

    def _remember(self, context: int) -> None:
        """Add the hash of a context to the history, from which the oldest one is dropped when it is full."""
        self._history.append(context)
        self._history_counts[context] += 1
        if len(self._history) > self.context_history_size:
            oldest = self._history.popleft()
            self._history_counts[oldest] -= 1
            if not self._history_counts[oldest]:
                del self._history_counts[oldest]

    def _mean_g(self, stage: StageCandidates) -> float:
        """Return the expected value of the mean g value of a token that is drawn from a stage."""
        probs: NDArray[np.float64] = stage.probs_of(stage.logits)
        hashes = extend_hash(self._context_hash, stage.ids)
        masses = [float(np.add.reduce(probs * g)) for g in self._g_values.of_hashes(hashes)]
        return sum(masses) / self._g_values.depth
