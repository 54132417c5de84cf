"""`gen completion`: print the completion script of a shell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from ..command_options import takes_options
from ..flags import REQUIRED, Options, argument

# The scripts ask `gen` for completions as Typer's script for fish does: the line up to the cursor is in a
# variable, and a line of the answer is a completion, a tab and its help. Typer's own scripts for Bash and zsh
# complete nothing after ``=``, add a space after ``top_p.``, and do not quote names with spaces. Typer wraps the
# help at the width.
_QUESTION = "COLUMNS=999 _GEN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS="

_BASH = rf"""# Completion of gen for Bash.
_gen_completion() {{
    local value line=${{COMP_LINE:0:COMP_POINT}} word=${{COMP_WORDS[COMP_CWORD]}}
    local before=${{line##* }}
    before=${{before%"$2"}}
    if [[ $before == -* ]]; then before=${{before#*=}}; fi
    COMPREPLY=()
    while IFS=$'\t' read -r value _; do
        value=${{value#"$before"}}
        if [[ $word != [\"\']* ]]; then
            printf -v value %q "$value"
        elif [[ $value == *[\"\'\$\`\\]* ]]; then
            continue
        fi
        COMPREPLY+=("$value")
        if [[ $value == *[.=\(/] ]]; then compopt -o nospace; fi
    done < <({_QUESTION}"$line" "$1" 2>/dev/null | grep .)
}}
complete -o default -F _gen_completion gen
"""

_ZSH = rf"""#compdef gen
# Completion of gen for zsh.
_gen() {{
    local -a lines parts
    local tab=$'\t'
    lines=("${{(@f)$({_QUESTION}"${{(j: :)words[1,CURRENT-1]}} $QIPREFIX$PREFIX" \
        "${{(Q)words[1]/#\~/$HOME}}" 2>/dev/null)}}")
    [[ $PREFIX == -*=* ]] && compset -P 1 '*='
    if [[ -z $lines[1] ]]; then _files; return; fi
    lines=("${{(@)lines//\\/\\\\}}")
    lines=("${{(@)lines//:/\\:}}")
    lines=("${{(@)lines/$tab/:}}")
    parts=("${{(@M)lines:#*[.=(/](:*|)}}")
    if (( $#parts )); then _describe -t values value lines -S ''; else _describe -t values value lines; fi
}}
if [[ $funcstack[1] == _gen ]]; then _gen "$@"; else compdef _gen gen; fi
"""

_FISH = rf"""# Completion of gen for fish.
function __gen_completion
    set -l flag (string match -r '^-[^=]*=' -- (commandline -ct)); or set flag ""
    set -l typed (string replace -r '^-[^=]*=' '' -- (commandline -ct))
    set -l lines ({_QUESTION}(commandline -cp | string collect) gen 2>/dev/null | string match -r '.+')
    set -q lines[1]; or set lines (__fish_complete_path $typed)
    printf '%s\n' $flag$lines
end
complete -c gen -f -a '(__gen_completion)'
# fish would treat a tilde in a completion as a part of the name; the completion of files in fish does not
complete -c gen -n "string match -q -- '~*' (commandline -ct)" -F
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Shell(StrEnum):
    """A shell that completes command lines."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(Options):
    """The options of `gen completion`."""

    shell: Shell = argument("SHELL", display_name="SHELL", help="bash, zsh or fish.", default=REQUIRED)


@takes_options(CompletionOptions)
def completion(options: CompletionOptions) -> None:
    """Print the script that lets your shell complete gen's commands and flags.

    Add the script once to a file that your shell reads at start; in zsh, after the line with compinit. Completion
    works in new terminals. The script stays valid after updates.

      gen completion bash >> ~/.bashrc
      gen completion zsh >> ~/.zshrc
      gen completion fish > ~/.config/fish/completions/gen.fish
    """
    sys.stdout.write(SCRIPTS[options.shell.value])
