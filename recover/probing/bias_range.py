"""Which biases an endpoint adds as asked, as far as is known by now."""

from __future__ import annotations

from .profile import EndpointProfile

_LEAST_BIAS = 1.0
_REDUCTION = 0.8
"""A bias that was cut is followed by this part of it."""


class BiasRange:
    """Begins with what the probe measured; a method that uses larger biases confirms or rejects them.

    Attributes: ``largest``: the largest bias to use. ``confirmed``: biases up to it were seen to be added in full.
    """

    def __init__(self, profile: EndpointProfile) -> None:
        self.largest = profile.max_bias
        self.confirmed = profile.confirmed_bias
        self._step = profile.bias_step

    def rounded(self, bias: float) -> float:
        """Return the bias, or the next one towards 0 that the endpoint adds as asked."""
        return int(bias / self._step) * self._step if self._step else bias

    def confirm(self, bias: float) -> None:
        """Note that this bias was added in full."""
        self.confirmed = bias

    def reject(self, bias: float) -> None:
        """Note that this bias was not added in full: only smaller ones are used from now on."""
        self.largest = max(self.confirmed, _LEAST_BIAS, self.rounded(_REDUCTION * bias))
