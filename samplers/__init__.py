"""Samplers in NumPy: candidates, chains of samplers, and the registry that names them."""

from .base import About, BuildContext, Sampler, Selector
from .candidates import Candidates
from .chain import Chain
from .chain_builder import build, make_sampler, parse_chain
from .compact_notation import parse_notation
from .errors import SamplingError, StepError
from .mersenne_twister import SEED_MAX
from .parameter_messages import allowed_values
from .registry import catalogue, find_sampler, list_plugins
from .stage import Stage
from .step_spec import StepSpec
from .vocabulary import Vocabulary

__all__ = [
    "SEED_MAX",
    "About",
    "BuildContext",
    "Candidates",
    "Chain",
    "Sampler",
    "SamplingError",
    "Selector",
    "Stage",
    "StepError",
    "StepSpec",
    "Vocabulary",
    "allowed_values",
    "build",
    "catalogue",
    "find_sampler",
    "list_plugins",
    "make_sampler",
    "parse_chain",
    "parse_notation",
]
