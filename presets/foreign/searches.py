"""Keys of several tools that sample in a way that has no counterpart here."""

from __future__ import annotations

from .draft import Draft

BEAM_KEYS = ("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping")
SEARCH_KEYS = (*BEAM_KEYS, "penalty_alpha", "guidance_scale", "cfg_scale", "rep_pen_decay")
"""What `report_searches` looks at."""

# What each value would have to be to change nothing, and what it does otherwise.
_BEAM_NEUTRAL = {"num_beam_groups": 1.0, "diversity_penalty": 0.0, "length_penalty": 1.0}


def report_searches(draft: Draft) -> None:
    """Report beam search, contrastive search, guidance and a decay of the penalty if they are on."""
    table = draft.table
    if table.number("num_beams", 1) > 1:
        draft.report("num_beams", "beam search would have kept the best of several texts; there is none here")
        for key, neutral in _BEAM_NEUTRAL.items():
            if table.number(key, neutral) != neutral:
                draft.report(key, "it would have weighed the texts of the beam search")
        if table.raw("early_stopping") not in (None, False, 0, "false"):
            draft.report("early_stopping", "it would have ended the beam search early")
    if table.number("penalty_alpha", 0) != 0:
        draft.report(
            "penalty_alpha", "contrastive search would have avoided tokens like those before; there is none here"
        )
    for key in ("guidance_scale", "cfg_scale"):
        if table.number(key, 1) != 1:
            draft.report(key, "guidance would have run the model twice, with a negative prompt")
    if table.number("rep_pen_decay", 0) != 0:
        draft.report("rep_pen_decay", "the repetition penalty would have faded with distance")
