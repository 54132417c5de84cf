"""What happens when a text matches a ban."""

from __future__ import annotations

from typing import Literal, get_args

# what happens at a match after `DEFAULT_BAN_RETRIES`, or another number of retries, at its place
BanAction = Literal["step_back", "keep", "stop"]

BAN_ACTIONS: tuple[BanAction, ...] = get_args(BanAction)
DEFAULT_BAN_ACTION: BanAction = "step_back"
DEFAULT_BAN_RETRIES = 20  # number of times that a text returns to one place
