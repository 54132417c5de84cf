"""Samplers in NumPy: candidates, chains of samplers, and the registry that names them."""

from .base import About, Sampler, Selector, Surroundings
from .build import allowed, build, make, parse
from .candidates import Candidates
from .chain import Chain
from .errors import SamplingError, StepError
from .notation import parse_notation
from .registry import catalogue, find, offered
from .rng import SEED_MAX
from .vocabulary import Vocabulary

__all__ = [
    "SEED_MAX",
    "About",
    "Candidates",
    "Chain",
    "Sampler",
    "SamplingError",
    "Selector",
    "StepError",
    "Surroundings",
    "Vocabulary",
    "allowed",
    "build",
    "catalogue",
    "find",
    "make",
    "offered",
    "parse",
    "parse_notation",
]
