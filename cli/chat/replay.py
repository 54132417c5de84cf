"""Makes an answer again, from what is stored of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .errors import ChatError, ReplayError
from .store.records import StoredAnswer

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...grammars.constraint import Constraint
    from ...grammars.spec import GrammarSpec
    from ...logprobs.events import Event


def model_record(model: Model) -> dict[str, Any]:
    """What is stored of a model: its name and path, and what its logits depend on. Raises ``ModelError``."""
    return {"name": model.name, "path": str(model.path.absolute()), **model.identity()}


def constraint_of(model: Model, spec: GrammarSpec | None, beginning: str) -> Constraint | None:
    """The constraint of an answer, which has a beginning already; None without a grammar.

    Raises ``GrammarError``; ``ChatError`` for a beginning that the grammar does not allow.
    """
    if spec is None:
        return None
    from ...engine.generation import start_constraint
    from ...grammars.errors import GrammarError

    constraint = start_constraint(spec, model)
    try:
        for token in model.vocabulary.tokenize(beginning.encode()) if beginning else ():
            constraint.accept(token)
    except GrammarError as error:
        raise ChatError(f"the answer's beginning does not match the grammar: {error}") from None
    return constraint


def replay(
    model: Model,
    answer: StoredAnswer,
    trace: int | None = None,
    count: int | None = None,
    *,
    is_interrupted: Callable[[], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Event]:
    """Yield the events of a stored answer again; see `ChatSession.replay`.

    Args:
        model: the model.
        answer: the answer.
        trace: how many candidates the events' traces have; None: they have none.
        count: make only its first tokens; None: all.
        is_interrupted: once it returns True, this ends.
        progress: called while the prompt is read.
    """
    from ...engine.generation import generate
    from ...grammars.spec import GrammarSpec
    from ...logprobs.events import Token
    from ...samplers.building import build

    recipe = answer.recipe
    spec = None if recipe.grammar is None else GrammarSpec(**recipe.grammar)
    options = recipe.options
    length = len(answer.token_ids) if count is None else min(count, len(answer.token_ids))
    # What completes a sentence comes after the length that was set.
    is_completed = recipe.max_tokens is not None and length > recipe.max_tokens
    events = generate(
        model,
        answer.prompt_ids,
        build(recipe.chain, seed=recipe.seed, vocab=model.vocabulary),
        constraint_of(model, spec, answer.beginning),
        stop=recipe.stop,
        max_tokens=recipe.max_tokens if is_completed else length,
        complete_sentence=is_completed,
        jump=options.get("jump", True),
        lookup=options.get("lookup", 0),
        trace=trace,
        exact_reuse=True,
        progress=progress,
        is_interrupted=is_interrupted,
    )
    for event in events:
        if isinstance(event, Token) and event.id != answer.token_ids[event.index]:
            raise ReplayError(f"token {event.index} comes out differently now: {_what_changed(model, answer)}")
        yield event


def check_model(loaded: dict[str, Any], answer: StoredAnswer) -> None:
    """Raise ``ReplayError`` if another model made an answer. ``loaded``: the `model_record` of the one here."""
    record = answer.recipe.model
    if record.get("fingerprint") != loaded["fingerprint"]:
        raise ReplayError(
            f"{record.get('name')} made this answer, and {loaded['name']} is loaded; start gen chat with"
            f" -m {record.get('path')} to see why"
        )


def _what_changed(model: Model, answer: StoredAnswer) -> str:
    """What is known to be different from when the answer was made."""
    from ...engine.generation import versions

    recipe = answer.recipe
    now, before = {**model_record(model), **versions()}, {**recipe.model, **recipe.versions}
    changed = [name for name in now if name not in ("name", "path") and now[name] != before.get(name)]
    if not changed:
        return "another build of llama.cpp or another processor made it"
    return "it was made with " + ", ".join(f"{name} {before.get(name)} (now {now[name]})" for name in changed)
