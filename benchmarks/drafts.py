"""Generating with drafts of a smaller model, compared with generating without.

python -m benchmarks.drafts [--draft FILE] [-m FILE] [--tokens 120] [--seeds 5] [PROMPT ...]

The same prompts, presets and seeds run with and without a draft model, in turns; `benchmarks.draft_runs` explains
the columns. Without --draft, the bundled model drafts for itself with 27 of its 30 layers. Such a draft model is
too large to save time, but it shows what a draft costs, and from that follows where drafts pay:

- c: the time in which the draft model computes a token, divided by the time of the model
- r(n + 1): the time in which the model reads a draft of n tokens and the token before it, divided by the time of
  one token
- a draft of n tokens, of which the share s is right, gives 1 + n s tokens in the time n c + r(n + 1). So drafts
  pay if s is above c + (r(n + 1) - 1) / n.

The last table has this share for the measured r and several c. If reading the weights takes all the time, as with
a large model on a GPU, r is 1 and the share is c.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from logitsmith.engine import DraftOptions, Model, locate

from tests.engine.pruned_model import write_pruned_model

from .draft_runs import CHAINS, CHAT_PROMPTS, PLAIN_PROMPTS, Comparison, compare, decode_seconds, print_header

_PROMPTS = ("story", "code", "JSON, schema", "chat")
_KEPT_LAYERS = (*range(25), 28, 29)
_DRAFT_TOKENS = (1, 2, 3, 5, 8)
_DRAFT_COSTS = (0.5, 0.25, 0.1, 0.05, 0.02)


def main() -> None:
    """Measure, and print the tables."""
    names = (*PLAIN_PROMPTS, *CHAT_PROMPTS)
    parser = argparse.ArgumentParser(description="drafts of a smaller model against none")
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help=f"{', '.join(names)} [{', '.join(_PROMPTS)}]")
    parser.add_argument("-m", "--model", type=Path, default=locate()[0])
    parser.add_argument("--draft", type=Path, help="draft model [27 of the 30 layers of the bundled model]")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, Model.load(options.model, n_ctx=1024) as model:
        draft = options.draft or Path(folder) / "pruned.gguf"
        if options.draft is None:
            write_pruned_model(draft, _KEPT_LAYERS, tokens=None)
        _measure(model, draft, options)


def _measure(model: Model, draft: Path, options: argparse.Namespace) -> None:
    print(
        f"{model.name} with {draft.stem}, {model.threads} threads, {options.tokens} tokens, {options.seeds} seeds"
    )
    variants = {str(count): {"draft": DraftOptions(draft, count)} for count in _DRAFT_TOKENS if count in (1, 3, 5)}
    print_header("n_max")
    found: dict[str, Comparison] = {}
    for name in options.prompts or _PROMPTS:
        for preset in CHAINS:
            results = compare(model, name, preset, variants, token_count=options.tokens, seed_count=options.seeds)
            found |= {f"{name}, {preset}, {count}": result for count, result in results.items()}
    draft_model = DraftOptions(draft).open_for(model)
    assert draft_model is not None
    prompt = model.vocabulary.tokenize_prompt(PLAIN_PROMPTS["code"].encode())
    seconds = decode_seconds(model.context, prompt, (1, *(count + 1 for count in _DRAFT_TOKENS)))
    draft_cost = decode_seconds(draft_model.second_context, prompt, (1,))[1] / seconds[1]
    row_costs = {count: seconds[count + 1] / seconds[1] for count in _DRAFT_TOKENS}
    promise = {count: str(model.draft_exactness(count)) for count in _DRAFT_TOKENS}
    print(f"\ncost of a draft token, c: {draft_cost:.2f} of a token")
    print(
        "cost of reading a draft, r:", ", ".join(f"{count + 1}: {cost:.2f}" for count, cost in row_costs.items())
    )
    print("promise:", ", ".join(f"{count}: {promise[count]}" for count in _DRAFT_TOKENS))
    _print_predictions(found, draft_cost, row_costs)
    _print_break_even(draft_cost, row_costs)


def _print_predictions(found: Mapping[str, Comparison], draft_cost: float, row_costs: Mapping[int, float]) -> None:
    """Print the ratio that follows from c, r and the share, next to the measured one."""
    print(f"\n{'ratio':36} {'measured':>9} {'from c, r, s':>13}")
    for name, result in found.items():
        count = int(name.rpartition(", ")[2])
        share = result.accepted / result.drafted if result.drafted else 0.0
        predicted = (1 + count * share) / (count * draft_cost + row_costs[count])
        print(f"{name:36} {result.ratios[1]:9.2f} {predicted:13.2f}")


def _print_break_even(draft_cost: float, row_costs: Mapping[int, float]) -> None:
    """Print the share of right tokens above which drafts pay; a dash where they never do."""
    print("\nshare of right tokens above which drafts pay")
    print(f"{'c':>6}", *(f"{f'n = {count}':>8}" for count in row_costs))
    for cost in (draft_cost, *_DRAFT_COSTS):
        shares = [cost + (rows - 1) / count for count, rows in row_costs.items()]
        cells = (f"{share:.0%}" if share < 1 else "-" for share in shares)
        print(f"{cost:6.2f}", *(f"{cell:>8}" for cell in cells))


if __name__ == "__main__":
    main()
