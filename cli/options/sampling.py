"""The flags of presets, chains, samplers and grammars, which several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Literal

from ...common.errors import UsageError
from ...common.flags import CompletionKind, Limit, at_least, within
from ...common.llama_cpp_limits import MAX_SLOTS
from ...presets.parameter_names import MAIN_SAMPLER_FLAGS, SAMPLER_FLAGS
from ...presets.setting_table import GRAMMAR, SAMPLING, SETTINGS
from ..flags import Options, flag, flag_values, iterate_flags, with_flags

if TYPE_CHECKING:
    from ...engine.request import BeamSearch

_sampling = partial(flag, panel=SAMPLING)


@dataclass(frozen=True, kw_only=True)
class ChainOptions(Options):
    """The flags of the preset and the chain, and the one that sets any setting."""

    preset: str | None = _sampling(
        "-P",
        "--preset",
        help="Preset: a name, a file (also of other tools), or 'model' for the GGUF author's settings. [default]",
        display_name="--preset",
        completion_kind=CompletionKind.PRESET,
    )
    chain: str | None = _sampling(
        "--chain",
        metavar="STEPS",
        help="Samplers in order: 'top-k40 > top-p0.9 > temp0.8'. [the preset's]",
        completion_kind=CompletionKind.CHAIN,
    )
    set: list[str] | None = _sampling(
        "--set",
        metavar="NAME.PARAM=VALUE",
        help="Set one parameter, such as min_p.p=0.1; repeatable.",
        completion_kind=CompletionKind.SETTING,
    )


@dataclass(frozen=True, kw_only=True)
@with_flags(SETTINGS["seed"].flag, *MAIN_SAMPLER_FLAGS)
class SamplingOptions(ChainOptions):
    """The flags of the preset, the chain, the seed, and the samplers that are set most often."""


@dataclass(frozen=True, kw_only=True)
@with_flags(*SAMPLER_FLAGS)
class FullSamplingOptions(SamplingOptions):
    """All flags of samplers. They have the names of llama.cpp's flags."""

    def check(self) -> None:
        """Raise ``UsageError`` for two flags that both choose the samplers. llama.cpp ignores one of the flags."""
        values = flag_values(self)
        is_mirostat_on = bool(values["--mirostat"])
        arrangements = {
            "--chain": self.chain,
            "--samplers": values["--samplers"],
            "--mirostat": is_mirostat_on or None,
            "--adaptive-target": values["--adaptive-target"] if is_mirostat_on else None,
        }
        given = [name for name, value in arrangements.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} both choose the samplers; give only one")


_beam_flag = partial(flag, panel="Beam search")


class EarlyStopping(StrEnum):
    """When a beam search ends, as transformers names it."""

    true = "true"
    false = "false"
    never = "never"


@dataclass(frozen=True, kw_only=True)
class BeamSearchOptions(Options):
    """The flags of a beam search that finds one text for each prompt."""

    beams: int | None = _beam_flag(
        "--beams",
        metavar="N",
        help="Draw no token: keep the N texts with the highest probability at each step. [off]",
        limit=Limit(f"1 to {MAX_SLOTS}", 1, MAX_SLOTS),
    )
    length_penalty: float = _beam_flag(
        "--length-penalty",
        metavar="X",
        help="Exponent of the length that divides a text's log-probability; above 0 favors long texts. [1]",
        default=1.0,
        limit=within(-20, 20),
        required_companions="--beams N",
    )
    early_stopping: EarlyStopping = _beam_flag(
        "--early-stopping",
        help="Stop at N ended texts (true), or if a better one is unlikely (false) or impossible (never). [false]",
        default=EarlyStopping.false,
        required_companions="--beams N",
    )

    def settings(self, best_count: int | None) -> BeamSearch | None:
        """Return the settings of the search, if any; ``best_count``: see `BeamSearch`."""
        from ...engine.request import BeamSearch

        if self.beams is None:
            return None
        modes: dict[EarlyStopping, Literal[False, True, "never"]] = {
            EarlyStopping.false: False,
            EarlyStopping.true: True,
            EarlyStopping.never: "never",
        }
        return BeamSearch(self.beams, self.length_penalty, modes[self.early_stopping], best_count)


@dataclass(frozen=True, kw_only=True)
class BeamOptions(BeamSearchOptions):
    """The flags of a beam search, and of the number of its texts that are written."""

    n_best: int | None = _beam_flag(
        "--n-best",
        metavar="K",
        help="Write the K best texts of --beams, the best first. [1; jsonl: all]",
        limit=at_least(1),
        required_companions="--beams N",
    )

    def check(self) -> None:
        """Raise ``UsageError`` for more texts than beams."""
        if self.beams is not None and self.n_best is not None and self.n_best > self.beams:
            raise UsageError(f"--n-best {self.n_best} is more than --beams {self.beams}")


_grammar_flag = partial(flag, panel=GRAMMAR)


@dataclass(frozen=True, kw_only=True)
@with_flags(*SETTINGS["grammar"].flags)
class GrammarOptions(Options):
    """The sources of a grammar. At most one flag is given."""

    schema_lenient: bool = _grammar_flag(
        "--schema-lenient",
        help="Ignore unsupported keywords of a JSON Schema, and list them.",
        default=False,
    )

    def check(self) -> None:
        given = [
            flag.name
            for flag, value in iterate_flags(self)
            if flag.setting_name == "grammar" and value is not None
        ]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} both define a grammar; give only one")


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions(GrammarOptions):
    """The flags that choose a grammar, and those that determine how a run applies the grammar."""

    grammar_root: str | None = _grammar_flag(
        "--grammar-root", metavar="RULE", help="First rule of a GBNF grammar. [root]"
    )
    grammar_after: str | None = _grammar_flag(
        "--grammar-after", metavar="TEXT", help="Apply the grammar only after this text was generated."
    )
    grammar_complete: bool = _grammar_flag(
        "--grammar-complete",
        help="Complete the grammar's sentence even beyond the limit set by -n.",
        default=False,
    )
    no_jump: bool = _grammar_flag(
        "--no-jump", help="Let the chain select tokens even where the grammar allows only one text.", default=False
    )
