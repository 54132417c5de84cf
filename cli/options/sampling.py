"""The flags of presets, chains, samplers and grammars."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...common.errors import UsageError
from ..flags import CompletionKind, Limit, Options, flag, iterate_flags, options_class, within

_sampling = partial(flag, panel="Sampling")
_more = partial(flag, panel="More samplers (all of them: gen samplers)")


@options_class
class SamplingOptions(Options):
    """The preset, the chain, the seed, and the samplers that are set most often."""

    preset: str | None = _sampling(
        "-P",
        "--preset",
        help="A preset's name, or a file, also of another tool; 'model': the GGUF author's.",
        display_name="--preset",
        completion_kind=CompletionKind.PRESET,
    )
    chain: str | None = _sampling(
        "--chain",
        metavar="STEPS",
        help="Steps in order: 'top-k40 > top-p0.9 > temp0.8'.",
        completion_kind=CompletionKind.CHAIN,
    )
    set: list[str] | None = _sampling(
        "--set",
        metavar="NAME.PARAM=VALUE",
        help="Set one parameter; repeatable.",
        completion_kind=CompletionKind.SETTING,
    )
    seed: int | None = _sampling(
        "-s", "--seed", help="Same seed, same text; -1 picks one. [-1]", display_name="--seed"
    )
    temp: float | None = _sampling(
        "--temp",
        "--temperature",
        help="Temperature; 0 = the most likely token.",
        setting_name="temperature.t",
        limit=Limit("≥ 0; 0 = the likeliest token", 0),
    )
    top_k: int | None = _sampling(
        "--top-k", help="Keep the k most likely tokens; 0 = off.", setting_name="top_k.k"
    )
    top_p: float | None = _sampling(
        "--top-p",
        help="Keep the likeliest tokens up to this mass; 1 = off.",
        setting_name="top_p.p",
        limit=Limit("within 0..1; 1 = off", 0, 1),
    )
    min_p: float | None = _sampling(
        "--min-p", help="Keep tokens at least this likely beside the best.", setting_name="min_p.p"
    )
    repeat_penalty: float | None = _sampling(
        "--repeat-penalty", help="Penalty on past tokens; 1 = off.", setting_name="penalties.repeat"
    )


@options_class
class FullSamplingOptions(SamplingOptions):
    """All flags of samplers: llama.cpp's."""

    repeat_last_n: int | None = _sampling(
        "--repeat-last-n", help="Penalties look at the last N tokens; -1 = all.", setting_name="penalties.last_n"
    )
    presence_penalty: float | None = _sampling(
        "--presence-penalty",
        help="Penalty on a token that came before; 0 = off.",
        setting_name="penalties.presence",
    )
    frequency_penalty: float | None = _sampling(
        "--frequency-penalty",
        help="Penalty for each time that a token came before; 0 = off.",
        setting_name="penalties.frequency",
    )
    typical: float | None = _more(
        "--typical",
        "--typical-p",
        help="Keep the tokens about as surprising as expected; 1 = off.",
        setting_name="typical.p",
    )
    top_n_sigma: float | None = _more(
        "--top-n-sigma",
        "--top-nsigma",
        help="Keep logits within n deviations of the best; 0 = off.",
        setting_name="top_n_sigma.n",
    )
    xtc_probability: float | None = _more(
        "--xtc-probability", help="How often the top choices go; 0 = off.", setting_name="xtc.probability"
    )
    xtc_threshold: float | None = _more(
        "--xtc-threshold", help="What counts as a top choice. [0.1]", setting_name="xtc.threshold"
    )
    dynatemp_range: float | None = _more(
        "--dynatemp-range", help="Temperature by entropy, this far up and down.", setting_name="dynatemp.range"
    )
    dynatemp_exp: float | None = _more(
        "--dynatemp-exp", help="Exponent of the entropy in dynatemp. [1]", setting_name="dynatemp.exponent"
    )
    dry_multiplier: float | None = _more(
        "--dry-multiplier",
        help="Strength of DRY against loops; 0 = off, 0.8 is usual.",
        setting_name="dry.multiplier",
    )
    dry_base: float | None = _more(
        "--dry-base", help="Growth for each repeated token. [1.75]", setting_name="dry.base"
    )
    dry_allowed_length: int | None = _more(
        "--dry-allowed-length", help="Repetitions up to this go free. [2]", setting_name="dry.allowed_length"
    )
    dry_penalty_last_n: int | None = _more(
        "--dry-penalty-last-n", help="DRY looks at the last N tokens; -1 = all. [-1]", setting_name="dry.last_n"
    )
    dry_sequence_breaker: list[str] | None = _more(
        "--dry-sequence-breaker",
        metavar="TEXT",
        help="Instead of newline : \" and *; 'none' clears; repeatable.",
        has_escapes=True,
    )
    mirostat: int | None = _more(
        "--mirostat", limit=within(0, 2), help="1 or 2 selects; only bias and temperature stay before it. 0 = off."
    )
    mirostat_lr: float | None = _more(
        "--mirostat-lr", help="Learning rate of mirostat, eta. [0.1]", setting_name="mirostat.eta"
    )
    mirostat_ent: float | None = _more(
        "--mirostat-ent", help="The surprise in bits, tau. [5]", setting_name="mirostat.tau"
    )
    adaptive_target: float | None = _more(
        "--adaptive-target",
        help="Select by adaptive_p, near this probability; below 0 = a plain draw.",
        setting_name="adaptive_p.target",
    )
    adaptive_decay: float | None = _more(
        "--adaptive-decay", help="Memory of adaptive-p: 1 / (1 - N) tokens. [0.9]", setting_name="adaptive_p.decay"
    )
    samplers: str | None = _more(
        "--samplers",
        "--sampler-seq",
        "--sampling-seq",
        metavar="A;B;C",
        help="These only, in this order: 'top_k;top_p;temperature' or 'kpt'.",
        completion_kind=CompletionKind.LLAMA_CPP_SAMPLERS,
    )
    logit_bias: list[str] | None = _sampling(
        "-l",
        "--logit-bias",
        metavar="TOKEN=BIAS",
        help="ID+1, ID-1, ID=-inf or TEXT=2; repeatable.",
        display_name="--logit-bias",
    )
    ignore_eos: bool = _sampling("--ignore-eos", help="Never end by an end-of-generation token.", default=False)

    def check(self) -> None:
        """Refuse two flags that both say which steps there are; llama.cpp ignores one of them."""
        arrangements = {
            "--chain": self.chain,
            "--samplers": self.samplers,
            "--mirostat": self.mirostat or None,
            "--adaptive-target": self.adaptive_target if self.mirostat else None,
        }
        given = [name for name, value in arrangements.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} both say which samplers there are; give one")


_grammar = partial(flag, panel="Grammar (one of the first six)")


@options_class
class GrammarOptions(Options):
    """Where a grammar comes from: one of these."""

    grammar: str | None = _grammar(
        "--grammar",
        metavar="NAME|GBNF",
        help="A grammar's name (gen grammars), or GBNF itself.",
        setting_name="grammar",
        completion_kind=CompletionKind.GRAMMAR_NAME,
    )
    grammar_file: Path | None = _grammar("--grammar-file", help="A GBNF file.", setting_name="grammar.file")
    json_schema: str | None = _grammar(
        "-j",
        "--json-schema",
        help="JSON that fits this JSON Schema.",
        display_name="--json-schema",
        setting_name="grammar.json_schema",
    )
    json_schema_file: Path | None = _grammar(
        "-jf",
        "--json-schema-file",
        help="The same, from a file.",
        display_name="--json-schema-file",
        setting_name="grammar.json_schema_file",
    )
    regex: str | None = _grammar("--regex", help="Text that matches as a whole.", setting_name="grammar.regex")
    lark_file: Path | None = _grammar(
        "--lark-file", help="A grammar in llguidance's Lark.", setting_name="grammar.lark_file"
    )

    schema_lenient: bool = _grammar(
        "--schema-lenient",
        help="Leave out what is not supported in a JSON Schema, and list it.",
        default=False,
    )

    def check(self) -> None:
        """Refuse two grammars."""
        given = [
            flag.name for flag, value in iterate_flags(self) if flag.setting_name is not None and value is not None
        ]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} each give a grammar; one at a time")


@options_class
class ConstraintOptions(GrammarOptions):
    """A grammar, and how it is applied."""

    grammar_root: str | None = _grammar("--grammar-root", metavar="RULE", help="GBNF's first rule. [root]")
    grammar_after: str | None = _grammar(
        "--grammar-after", metavar="TEXT", help="Free text until this is written, then the grammar."
    )
    grammar_complete: bool = _grammar(
        "--grammar-complete", help="Close the sentence also where -n breaks it off.", default=False
    )
    no_jump: bool = _grammar("--no-jump", help="Draw also the tokens that the grammar forces.", default=False)


class GivenGrammar(NamedTuple):
    """What a flag gives; ``value`` is what a preset's ``grammar:`` would hold, a text or a table."""

    flag: str
    value: str | dict[str, str]


def given_grammar(options: Options) -> GivenGrammar | None:
    """The grammar that a flag of these options gives; None if none does."""
    for described, value in iterate_flags(options):
        setting, _, key = (described.setting_name or "").partition(".")
        if setting == "grammar" and value is not None:
            return GivenGrammar(described.name, {key: str(value)} if key else value)
    return None
