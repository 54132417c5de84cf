"""All invocations by their ids: command lines as in a shell, one a line, in a folder with a copy of `inputs/`.

``$PWD`` is that folder and ``$API`` the address of the fake APIs; ``< FILE`` gives a file on stdin, which is empty
otherwise. Every command that loads a model computes with one thread, so that its logits do not depend on the load.
"""

from .batches import BATCHES
from .lookups import LOOKUPS
from .recoveries import RECOVERIES
from .refusals import REFUSALS
from .runs import GRAMMARS, RUNS
from .scores import SCORES

_COMMANDS = (
    "",
    "run",
    "batch",
    "score",
    "inspect",
    "samplers",
    "grammars",
    "grammars list",
    "grammars show",
    "grammars check",
    "grammars sample",
    "presets",
    "presets list",
    "presets show",
    "presets check",
    "presets schema",
    "recover",
    "recover-basis",
)
HELP = {f"help-{command.replace(' ', '-') or 'gen'}": f"gen {command} --help" for command in _COMMANDS}

INVOCATIONS = {}
for group in (RUNS, GRAMMARS, SCORES, BATCHES, LOOKUPS, RECOVERIES, REFUSALS, HELP):
    assert not INVOCATIONS.keys() & group.keys()
    INVOCATIONS.update(group)
