"""Seeds of random numbers. A seed has 64 bits, as in OpenAI's API and vLLM. A generator gets the low 32 bits."""

from __future__ import annotations

SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1
RANDOM_SEED = -1  # The seed that stands for a random one. A run records the number that was drawn.
# the allowed seeds, as a noun phrase for messages
SEED_VALUES = f"an integer within {SEED_MIN}..{SEED_MAX}, where -1 is random"
UINT32_MAX = 2**32 - 1  # the greatest seed of a generator, and a mask of its bits
_SEED_COUNT = 2**64


def is_seed(value: int) -> bool:
    return SEED_MIN <= value <= SEED_MAX


def generator_seed(seed: int) -> int:
    """Return the low 32 bits of a seed, 0 to 2^32 - 1."""
    return seed & UINT32_MAX


def fresh_seed() -> int:
    """Return a random seed of 32 bits, as in llama.cpp."""
    import secrets  # noqa: PLC0415 - a run with a seed needs no random one

    return secrets.randbits(32)


def fixed_seed(seed: int | None) -> int:
    """Return the seed itself, or a random seed for None and -1."""
    return fresh_seed() if seed is None or seed == RANDOM_SEED else seed


def following_seed(seed: int, count: int) -> int:
    """Return the seed ``count`` after a seed."""
    # -1 is left out, because it stands for a random seed. After the greatest seed comes the least seed.
    following = seed + count
    passes_random_seed = seed < RANDOM_SEED <= following
    if passes_random_seed:
        following += 1
    return following if following <= SEED_MAX else following - _SEED_COUNT
