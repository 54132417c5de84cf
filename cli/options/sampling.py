"""The flags of presets, chains, samplers and grammars, which several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...common.errors import UsageError
from ...common.flags import CompletionKind, Limit, at_least, within
from ...common.llama_cpp_limits import MAX_SLOTS
from ..flags import Options, flag, iterate_flags

if TYPE_CHECKING:
    from ...engine.request import BeamSearch

_sampling = partial(flag, panel="Sampling")
_more = partial(flag, panel="More samplers (all of them: gen samplers)")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Options):
    """The flags of the preset, the chain, the seed, and the samplers that are set most often."""

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
    seed: int | None = _sampling(
        "-s",
        "--seed",
        help="Random seed: the same seed gives the same text; -1 = random. [-1]",
        display_name="--seed",
    )
    temp: float | None = _sampling(
        "--temp",
        "--temperature",
        help="Temperature; 0 = always select the most likely token.",
        setting_name="temperature.t",
        limit=Limit("≥ 0; 0 = the most likely token", 0),
    )
    top_k: int | None = _sampling(
        "--top-k", help="Keep the k most likely tokens; 0 = off.", setting_name="top_k.k"
    )
    top_p: float | None = _sampling(
        "--top-p",
        help="Keep the most likely tokens up to this total probability; 1 = off.",
        setting_name="top_p.p",
        limit=Limit("within 0..1; 1 = off", 0, 1),
    )
    min_p: float | None = _sampling(
        "--min-p",
        help="Keep tokens with at least this fraction of the highest probability; 0 = off.",
        setting_name="min_p.p",
    )
    repeat_penalty: float | None = _sampling(
        "--repeat-penalty",
        help="Penalty factor for tokens that occurred before; 1 = off.",
        setting_name="penalties.repeat",
    )


@dataclass(frozen=True, kw_only=True)
class FullSamplingOptions(SamplingOptions):
    """All flags of samplers. They have the names of llama.cpp's flags."""

    repeat_last_n: int | None = _sampling(
        "--repeat-last-n",
        help="Apply the penalties to the last N tokens; 0 = off, -1 = all tokens.",
        setting_name="penalties.last_n",
    )
    presence_penalty: float | None = _sampling(
        "--presence-penalty",
        help="Subtract this from the logits of tokens that occurred before; 0 = off.",
        setting_name="penalties.presence",
    )
    frequency_penalty: float | None = _sampling(
        "--frequency-penalty",
        help="Subtract this from a token's logit for each earlier occurrence; 0 = off.",
        setting_name="penalties.frequency",
    )
    typical: float | None = _more(
        "--typical",
        "--typical-p",
        help="Keep tokens of about the expected surprise, up to this total probability; 1 = off.",
        setting_name="typical.p",
    )
    top_n_sigma: float | None = _more(
        "--top-n-sigma",
        "--top-nsigma",
        help="Keep tokens within N standard deviations of the highest logit; 0 = off.",
        setting_name="top_n_sigma.n",
    )
    xtc_probability: float | None = _more(
        "--xtc-probability",
        help="Probability of dropping the top choices; 0 = off.",
        setting_name="xtc.probability",
    )
    xtc_threshold: float | None = _more(
        "--xtc-threshold",
        help="Minimum probability of a top choice that XTC may drop. [0.1]",
        setting_name="xtc.threshold",
    )
    dynatemp_range: float | None = _more(
        "--dynatemp-range",
        help="Vary the temperature by up to this amount, depending on the entropy; 0 = off.",
        setting_name="dynatemp.range",
    )
    dynatemp_exp: float | None = _more(
        "--dynatemp-exp",
        help="Exponent of the relative entropy in dynatemp. [1]",
        setting_name="dynatemp.exponent",
    )
    dry_multiplier: float | None = _more(
        "--dry-multiplier",
        help="Strength of the DRY penalty on repetitions; 0 = off, 0.8 is usual.",
        setting_name="dry.multiplier",
    )
    dry_base: float | None = _more(
        "--dry-base",
        help="Growth factor of the DRY penalty for each repeated token. [1.75]",
        setting_name="dry.base",
    )
    dry_allowed_length: int | None = _more(
        "--dry-allowed-length",
        help="Number of repeated tokens after which DRY penalizes the next repeated one. [2]",
        setting_name="dry.allowed_length",
    )
    dry_penalty_last_n: int | None = _more(
        "--dry-penalty-last-n",
        help="Search the last N tokens for repetitions (DRY); -1 = all tokens. [-1]",
        setting_name="dry.last_n",
    )
    dry_sequence_breaker: list[str] | None = _more(
        "--dry-sequence-breaker",
        metavar="TEXT",
        help="Text that ends a repetition in DRY; 'none' = no text; repeatable. [newline : \" *]",
        has_escapes=True,
    )
    mirostat: int | None = _more(
        "--mirostat",
        limit=within(0, 2),
        help="Select by Mirostat version 1 or 2; keeps only biases and temperature; 0 = off.",
    )
    mirostat_lr: float | None = _more(
        "--mirostat-lr", help="Learning rate of Mirostat (eta). [0.1]", setting_name="mirostat.eta"
    )
    mirostat_ent: float | None = _more(
        "--mirostat-ent", help="Target surprise of Mirostat, in bits (tau). [5]", setting_name="mirostat.tau"
    )
    adaptive_target: float | None = _more(
        "--adaptive-target",
        help="Select tokens near this probability (adaptive-p); negative = no target.",
        setting_name="adaptive_p.target",
    )
    adaptive_decay: float | None = _more(
        "--adaptive-decay",
        help="Memory of adaptive-p: about 1 / (1 - N) tokens. [0.9]",
        setting_name="adaptive_p.decay",
    )
    samplers: str | None = _more(
        "--samplers",
        "--sampler-seq",
        "--sampling-seq",
        metavar="A;B;C",
        help="Use only these samplers, in this order: 'top_k;top_p;temperature' or 'kpt'.",
        completion_kind=CompletionKind.LLAMA_CPP_SAMPLERS,
    )
    logit_bias: list[str] | None = _sampling(
        "-l",
        "--logit-bias",
        metavar="TOKEN=BIAS",
        help="Add a bias to a token's logit: ID+1, ID-1, ID=-inf or TEXT=2; repeatable.",
        display_name="--logit-bias",
    )
    ignore_eos: bool = _sampling("--ignore-eos", help="Never select an end-of-generation token.", default=False)

    def check(self) -> None:
        """Raise ``UsageError`` for two flags that both choose the samplers. llama.cpp ignores one of the flags."""
        arrangements = {
            "--chain": self.chain,
            "--samplers": self.samplers,
            "--mirostat": self.mirostat or None,
            "--adaptive-target": self.adaptive_target if self.mirostat else None,
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


_grammar_flag = partial(flag, panel="Grammar (use one of the first six)")


@dataclass(frozen=True, kw_only=True)
class GrammarOptions(Options):
    """The sources of a grammar. At most one flag is given."""

    grammar: str | None = _grammar_flag(
        "--grammar",
        metavar="NAME|GBNF",
        help="Grammar: a name (see gen grammars), or GBNF itself.",
        setting_name="grammar",
        completion_kind=CompletionKind.GRAMMAR_NAME,
    )
    grammar_file: Path | None = _grammar_flag(
        "--grammar-file", help="Grammar: a file with GBNF.", setting_name="grammar.file"
    )
    json_schema: str | None = _grammar_flag(
        "-j",
        "--json-schema",
        help="Grammar: JSON that matches this JSON Schema.",
        display_name="--json-schema",
        setting_name="grammar.json_schema",
    )
    json_schema_file: Path | None = _grammar_flag(
        "-jf",
        "--json-schema-file",
        help="Grammar: JSON that matches the JSON Schema in a file.",
        display_name="--json-schema-file",
        setting_name="grammar.json_schema_file",
    )
    regex: str | None = _grammar_flag(
        "--regex",
        help="Grammar: text that this regular expression matches completely.",
        setting_name="grammar.regex",
    )
    lark_file: Path | None = _grammar_flag(
        "--lark-file", help="Grammar: a file with llguidance's variant of Lark.", setting_name="grammar.lark_file"
    )

    schema_lenient: bool = _grammar_flag(
        "--schema-lenient",
        help="Ignore unsupported keywords of a JSON Schema, and list them.",
        default=False,
    )

    def check(self) -> None:
        given = [
            flag.name for flag, value in iterate_flags(self) if flag.setting_name is not None and value is not None
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


class GivenGrammar(NamedTuple):
    """A grammar on the command line."""

    flag: str
    value: str | dict[str, str]  # as a preset's ``grammar:`` would define it, a string or a table


def given_grammar(options: Options) -> GivenGrammar | None:
    """Return the grammar that a flag of these options gives; None if there is none."""
    for described, value in iterate_flags(options):
        setting, _, key = (described.setting_name or "").partition(".")
        if setting == "grammar" and value is not None:
            return GivenGrammar(described.name, {key: str(value)} if key else value)
    return None
