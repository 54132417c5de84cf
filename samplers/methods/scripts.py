"""scripts: only characters of the listed scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from ...common.text import did_you_mean
from ..base import BuildContext, ListParameter, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..stages import dropped_tokens
from ..tokens import text_pieces

if TYPE_CHECKING:
    from ..stages import StageCandidates

# The scripts in wide use (Unicode Standard Annex 31, table 5), from which messages suggest one
_USUAL_SCRIPTS = (
    "Arabic",
    "Armenian",
    "Bengali",
    "Bopomofo",
    "Cyrillic",
    "Devanagari",
    "Ethiopic",
    "Georgian",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Kannada",
    "Katakana",
    "Khmer",
    "Lao",
    "Latin",
    "Malayalam",
    "Myanmar",
    "Oriya",
    "Sinhala",
    "Tamil",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
)
_SCRIPT_NAME = re.compile(r"[A-Za-z][A-Za-z _-]*")


def _check_script(name: str) -> str:
    import regex  # noqa: PLC0415 - 7 ms, and most chains do not have this step

    try:
        if _SCRIPT_NAME.fullmatch(name):
            regex.compile(rf"\p{{Script={name}}}")
            return name
    except regex.error:
        pass
    hint = did_you_mean(name.strip(), _USUAL_SCRIPTS) or "write a name such as Latin, Cyrillic or Han"
    raise ValueError(f"not the name of a script in Unicode; {hint}")


class Scripts(Sampler):
    """Drop the tokens with a character of a script that is not listed, even if bytes spell the character.

    Formula: let t be the unfinished character at the end of the text, in bytes, followed by the bytes of token i.
    Keep i if t is UTF-8 in which each finished character has an allowed script, and if t ends with a finished
    character or with bytes that can still become an allowed one. The allowed scripts are the listed ones, and
    Common and Inherited: digits, punctuation, spaces, emoji, and accents that combine with letters of several
    scripts. The logits, float32 (n,), and the order of the other rows stay.

    So a token that begins with the rest of a character stays only where this rest makes it an allowed one. After
    an unfinished character no other tokens stay, not even those that end the text. If no token is left that
    continues it, the tokens stay that are allowed after a finished one; a decoder then writes U+FFFD for the
    unfinished one. Control tokens and end-of-generation tokens write no text. The end of the prompt counts as
    text.

    Neutral: an empty list. Raises ``SamplingError`` when built without a vocabulary, and if no token is left.
    Scripts are the property Script of the Unicode version that the package regex has. A character without a script
    there has the script Unknown, which can be listed. Source: ik_llama.cpp's ``--allowlist-unicode-rule``, which
    adds biases instead. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="scripts",
        summary="write only characters of the listed scripts, such as Latin",
        formula="drop i if unfinished character + piece(i) has, or can only become, another script's character",
        reference="Unicode Standard Annex 24, Script Property; ik_llama.cpp `--allowlist-unicode-rule`",
        llama_cpp="not in llama.cpp",
        main_parameter="allow",
        example=["Latin"],
        off_values={"allow": []},
        aliases=("allowed_scripts",),
        stage=Stage.LOGIT_BIAS - 3,
        is_bias=True,
    )

    allow: Annotated[list[Annotated[str, AfterValidator(_check_script)]], ListParameter()] = Field(
        default_factory=list,
        description="names of scripts in Unicode; Common and Inherited are included",
    )

    state_slots: ClassVar[tuple[str, ...]] = ("_unfinished",)
    __slots__ = (
        "_characters",
        "_continuing_tokens",
        "_is_allowed_by_id",
        "_pieces",
        "_tokens_after",
        "_unfinished",
    )

    def bind(self, context: BuildContext) -> None:
        vocabulary = need_vocabulary(context, "allow")
        self._pieces = list(text_pieces(vocabulary))
        for token in vocabulary.eog:
            self._pieces[token] = b""
        self._characters = _allowed_characters(frozenset(self.allow))
        self._continuing_tokens = [
            token for token, piece in enumerate(self._pieces) if piece and _is_continuation(piece[0])
        ]
        self._is_allowed_by_id = self._find_allowed_tokens()
        self._tokens_after: dict[bytes, list[int]] = {}  # the results of `_tokens_that_continue`

    def reset(self, prompt: Sequence[int]) -> None:
        text_end = b""
        for token in reversed(prompt):
            if len(text_end) >= _MAX_UNFINISHED_BYTES:
                break
            text_end = self._bytes_of(token) + text_end
        self._unfinished = _unfinished_end(text_end)

    def accept(self, token: int) -> None:
        self._unfinished = _unfinished_end(self._unfinished + self._bytes_of(token))

    def apply(self, candidates: Candidates) -> None:
        if not self.allow:
            return
        size = candidates.vocab_size
        if len(self._pieces) != size:
            raise SamplingError(f"scripts: the row has {size} logits, the vocabulary {len(self._pieces)}")
        tokens = self._tokens_that_continue()
        if tokens:
            continues = candidates.mask_of(tokens)
            if (candidates.logits[continues] > -np.inf).any():
                candidates.filter_rows(continues)
                return
        is_allowed = self._is_allowed_by_id
        if not candidates.is_full_vocabulary:
            is_allowed = is_allowed[candidates.ids]
        if not (candidates.logits[is_allowed] > -np.inf).any():
            raise SamplingError("scripts: every candidate left has a character of a script that is not listed")
        candidates.filter_rows(is_allowed)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        dropped = dropped_tokens(before, after, "token")
        return f"after the bytes {self._unfinished.hex(' ')}: {dropped}" if self._unfinished else dropped

    def _tokens_that_continue(self) -> list[int]:
        """Return the tokens after which the unfinished character is an allowed one, or can still become one."""
        unfinished = self._unfinished
        if not unfinished:
            return []
        if unfinished not in self._tokens_after:
            self._tokens_after[unfinished] = [
                token
                for token in self._continuing_tokens
                if self._characters.allow(unfinished + self._pieces[token])
            ]
        return self._tokens_after[unfinished]

    def _find_allowed_tokens(self) -> NDArray[np.bool_]:
        """Return the tokens that are allowed after a finished character, bool (V,)."""
        is_allowed = np.ones(len(self._pieces), dtype=np.bool_)
        tokens = []  # the tokens that are UTF-8
        texts = []  # their texts
        for token, piece in enumerate(self._pieces):
            try:
                text = piece.decode()
            except UnicodeDecodeError:
                is_allowed[token] = self._characters.allow(piece)
            else:
                tokens.append(token)
                texts.append(text)
        # All characters are looked up together. A look-up for each text would take ten times as long.
        codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")
        token_of_character = np.repeat(np.array(tokens, dtype=np.intp), [len(text) for text in texts])
        is_character_allowed = self._characters.table[codes]
        is_allowed[token_of_character[~is_character_allowed]] = False
        return is_allowed

    def _bytes_of(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""


class _AllowedCharacters(NamedTuple):
    """The characters of some scripts."""

    table: NDArray[np.bool_]  # for each code point, whether it is allowed, (1,114,112,), read-only
    beginnings: frozenset[bytes]  # the first bytes of allowed characters in UTF-8, as b"\xc3" of "é"

    def allow(self, text: bytes) -> bool:
        """Return whether the bytes are allowed characters, and perhaps the beginning of one at the end."""
        unfinished = _unfinished_end(text)
        try:
            characters = text[: len(text) - len(unfinished)].decode()
        except UnicodeDecodeError:
            return False
        is_allowed_end = not unfinished or unfinished in self.beginnings
        return is_allowed_end and all(self.table[ord(character)] for character in characters)


@lru_cache(maxsize=8)
def _allowed_characters(scripts: frozenset[str]) -> _AllowedCharacters:
    """Return the characters of the scripts, of Common and of Inherited."""
    import regex  # noqa: PLC0415 - as above

    properties = "".join(rf"\p{{Script={name}}}" for name in sorted({*scripts, "Common", "Inherited"}))
    all_codes = np.delete(np.arange(_CODE_POINT_COUNT, dtype="<u4"), _SURROGATES)  # a text has no surrogates
    all_characters = all_codes.tobytes().decode("utf-32-le")
    table = np.zeros(_CODE_POINT_COUNT, dtype=np.bool_)
    beginnings: set[bytes] = set()
    for match in regex.finditer(rf"[{properties}]+", all_characters):
        characters = match.group()
        allowed_codes = np.frombuffer(characters.encode("utf-32-le"), dtype="<u4")
        table[allowed_codes] = True
        beginnings.update(_beginnings(characters))
    table.flags.writeable = False
    return _AllowedCharacters(table, frozenset(beginnings))


_CODE_POINT_COUNT = 0x110000  # number of code points of Unicode
_SURROGATES = slice(0xD800, 0xE000)
_MAX_UNFINISHED_BYTES = 3  # a character has at most 4 bytes in UTF-8


def _beginnings(characters: Iterable[str]) -> set[bytes]:
    """Return the first bytes of each character in UTF-8, without the last byte: of ``€``, one and two bytes."""
    longest_beginnings = {character.encode()[:-1] for character in characters}
    return {longest[:count] for longest in longest_beginnings for count in range(1, len(longest) + 1)}


def _is_continuation(byte: int) -> bool:
    """Return whether a byte continues a character in UTF-8."""
    return 0x80 <= byte < 0xC0


def _unfinished_end(text: bytes) -> bytes:
    """Return the bytes at the end that can be the beginning of a character in UTF-8; empty if there are none."""
    for count in range(1, min(_MAX_UNFINISHED_BYTES, len(text)) + 1):
        end = text[-count:]
        if not _is_continuation(end[0]):  # the first byte of a character
            return end if _is_unfinished(end) else b""
    return b""


@lru_cache(maxsize=4096)
def _is_unfinished(data: bytes) -> bool:
    """Return whether 1 to 3 bytes are a beginning of a character in UTF-8, but not an entire character."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start == 0
    return False
