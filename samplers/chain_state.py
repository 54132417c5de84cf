"""The state of a chain at earlier tokens, for a run that goes back, and for texts that continue in several ways.

A saved state does not include random numbers: they continue, so that no number decides about two draws. A number
that led to a dropped token says where the next draw cannot fall, and using it again would bias the choice.
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

# the saved values of the samplers that declare ``state_slots``, in the order of the chain
ChainState = tuple[tuple[Any, ...], ...]


class ChainStates:
    """A saver of the states of one chain. A saved state is a few values, however long the text is."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._saved_steps: list[tuple[Sampler, tuple[str, ...]]] = []
        self._rewound_steps: list[Sampler] = []
        for step in chain.steps:
            names = _declared_slots(step)
            if names is None and _has_state(step):
                self._rewound_steps.append(step)
            elif names:
                self._saved_steps.append((step, names))
        self._state_at_prompt: ChainState | None = None

    def save(self) -> ChainState:
        """Return the state before the next draw."""
        return tuple([tuple([getattr(step, name) for name in names]) for step, names in self._saved_steps])

    def restore(self, state: ChainState, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Return to a saved state. Raises ``SamplingError`` if a sampler cannot be rewound."""
        for (step, names), values in zip(self._saved_steps, state, strict=True):
            for name, value in zip(names, values, strict=True):
                setattr(step, name, value)
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
        if next(_copy_generators(step), None) is not None:
            raise SamplingError(f"{step.about.name} draws random numbers; leave it out of the chain")
        if isinstance(step, Temperature) and step.t == 0:
            raise SamplingError(
                "temperature 0 keeps one token at each step, so that there is one text; leave it out"
            )
    if _declared_slots(selector) != ():
        name = selector.about.name
        raise SamplingError(f"{name} chooses by what it has drawn before; end the chain with dist or greedy")


def _declared_slots(step: Sampler) -> tuple[str, ...] | None:
    """Return the slots that a sampler declares as its state; None if it declares none."""
    # A class that adds state to a class with a declaration must repeat the declaration.
    for cls in type(step).__mro__:
        members = vars(cls)
        if members.get("state_slots") is not None:
            slots: tuple[str, ...] = members["state_slots"]
            return slots
        if members.get("__slots__") or not _STATEFUL_METHODS.isdisjoint(members):
            return None
    return None


# Methods that change state. A class that defines one of them may have state that its base class does not know.
_STATEFUL_METHODS = frozenset({"accept", "reset", "select"})


def _has_state(step: Sampler) -> bool:
    """Return whether a sampler without ``state_slots`` may have state: only `accept` or a draw changes it."""
    return isinstance(step, Selector) or type(step).accept is not Sampler.accept


def _copy_generators(step: Sampler) -> Iterator[tuple[str, Any]]:
    """Yield the names of a sampler's attributes that are random generators, each with a copy of the generator."""
    slots = {name for cls in type(step).__mro__ for name in getattr(cls, "__slots__", ()) if hasattr(step, name)}
    for name in sorted(slots - _PYDANTIC_SLOTS):
        value = getattr(step, name)
        if _is_generator(value):
            yield name, deepcopy(value)
    for name, value in (getattr(step, "__pydantic_private__", None) or {}).items():
        if _is_generator(value):
            yield name, deepcopy(value)


def _is_generator(value: object) -> bool:
    """Return whether a value is a random generator, whose state continues when a sampler is rewound."""
    if isinstance(value, (MersenneTwister, Random)):
        return True
    # Without the module there is no generator of it, and importing it takes time.
    return "numpy.random" in sys.modules and isinstance(value, (np.random.Generator, np.random.RandomState))


_PYDANTIC_SLOTS = frozenset({"__dict__", "__pydantic_private__", "__pydantic_extra__", "__pydantic_fields_set__"})
