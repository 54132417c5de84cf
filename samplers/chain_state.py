"""The state of a chain at earlier tokens, for a run that goes back, and for texts that continue in several ways.

A saved state does not include the random generators. They continue, so that no number is used for two draws. A
number that led to a dropped token must not be used again, because the choice would then be biased.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np

from .base import Sampler, Selector
from .chain import Chain, step_error
from .errors import SamplingError
from .mersenne_twister import MersenneTwister
from .methods.temperature import Temperature

# For each sampler with ``state_slots``, in the order of the chain: the values of these slots
ChainState = tuple[tuple[Any, ...], ...]


class ChainStates:
    """A saver of the states of one chain. A saved state is a few values, however long the text is."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._saved_steps: list[tuple[Sampler, tuple[str, ...]]] = []  # the steps with the names of their slots
        self._rewound_steps: list[Sampler] = []
        for step in chain.steps:
            slots = _declared_slots(step)
            if slots is None and _may_have_state(step):
                self._rewound_steps.append(step)
            elif slots:
                self._saved_steps.append((step, slots))
        self._state_at_prompt: ChainState | None = None

    def save(self) -> ChainState:
        """Return the state before the next draw."""
        # Lists are faster than generators, and this runs at each token.
        return tuple([tuple([getattr(step, slot) for slot in slots]) for step, slots in self._saved_steps])

    def restore(self, state: ChainState, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Return to a saved state. Raises ``SamplingError`` if a sampler cannot be rewound."""
        for (step, slots), values in zip(self._saved_steps, state, strict=True):
            for slot, value in zip(slots, values, strict=True):
                setattr(step, slot, value)
        for step in self._rewound_steps:
            generators = list(_copy_generators(step))
            try:
                step.rewind(prompt, output)
            except Exception as error:
                raise step_error(step, "rewind", error) from error
            for name, generator in generators:
                object.__setattr__(step, name, generator)

    def begin(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Begin the chain after some output, with its first random number unless it has begun before."""
        if self._state_at_prompt is None:
            self._chain.reset(prompt)
            self._state_at_prompt = self.save()
        else:
            self.restore(self._state_at_prompt, prompt, ())
        for token in output:
            self._chain.accept(token)


def check_without_draws(chain: Chain) -> None:
    """Raise ``SamplingError`` if the candidates of a chain depend on random numbers, or on earlier draws."""
    *applying_steps, selector = chain.steps
    for step in applying_steps:
        has_generator = any(True for _ in _copy_generators(step))
        if has_generator:
            raise SamplingError(f"{step.about.name} draws random numbers; leave it out of the chain")
        if isinstance(step, Temperature) and step.t == 0:
            raise SamplingError(
                "temperature 0 keeps one token at each step, so that there is one text; leave it out"
            )
    if _declared_slots(selector) != ():
        name = selector.about.name
        raise SamplingError(f"{name} chooses by what it has drawn before; end the chain with dist or greedy")


def _declared_slots(step: Sampler) -> tuple[str, ...] | None:
    """Return the ``state_slots`` of a sampler; None if it has no such declaration, or if it may be incomplete."""
    # A class that may add state to its base class must declare all slots again.
    for cls in type(step).__mro__:
        members = vars(cls)
        slots: tuple[str, ...] | None = members.get("state_slots")
        if slots is not None:
            return slots
        may_add_state = members.get("__slots__") or not _STATEFUL_METHODS.isdisjoint(members)
        if may_add_state:
            return None
    return None


_STATEFUL_METHODS = frozenset({"accept", "reset", "select"})  # methods that change state


def _may_have_state(step: Sampler) -> bool:
    """Return whether a sampler may have state that changes at a token: by `accept` or by a draw."""
    return isinstance(step, Selector) or type(step).accept is not Sampler.accept


def _copy_generators(step: Sampler) -> Iterator[tuple[str, Any]]:
    """Yield the names of a sampler's attributes that are random generators, each with a copy of the generator."""
    slots: set[str] = set()
    for cls in type(step).__mro__:
        slots.update(getattr(cls, "__slots__", ()))
    attributes = {slot: getattr(step, slot) for slot in sorted(slots - _PYDANTIC_SLOTS) if hasattr(step, slot)}
    attributes |= getattr(step, "__pydantic_private__", None) or {}
    for name, value in attributes.items():
        if _is_generator(value):
            yield name, deepcopy(value)


def _is_generator(value: object) -> bool:
    """Return whether a value is a random generator, whose state continues when a sampler is rewound."""
    if isinstance(value, (MersenneTwister, Random)):
        return True
    # Before `numpy.random` is imported, which takes time, no object can be one of its generators.
    is_imported = "numpy.random" in sys.modules
    return is_imported and isinstance(value, (np.random.Generator, np.random.RandomState))


_PYDANTIC_SLOTS = frozenset({"__dict__", "__pydantic_private__", "__pydantic_extra__", "__pydantic_fields_set__"})
