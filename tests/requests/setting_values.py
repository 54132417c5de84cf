"""A value of each setting."""

VALUES = {
    "seed": 7,
    "max_tokens": 5,
    "stop": ["a"],
    "system": "Be brief.",
    "grammar": {"regex": "a"},
    "bans": ["a"],
    "ban_retries": 3,
    "ban_then": "keep",
    "loop_guard": "stop",
    "phases": [{"until": "a"}, {}],
    "enable_thinking": False,
    "reasoning_effort": "low",
    "heal": True,
    "guidance": {"scale": 2},
    "field_confidence": True,
    "memory": "A story by the sea.",
    "authors_note": {"text": "short sentences", "depth": 1},
    "world_info": {"entries": [{"keys": ["sea"], "content": "The sea is calm."}]},
}
