"""Completion for bash: click's, made fit for PCI addresses and for names with blanks.

Bash takes a colon for the end of a word, so that ``0000:3b:00.0`` is five words to it. Here the line is split anew,
and what stands before the last colon is left out of the answers: bash keeps it.
"""

from __future__ import annotations

import os
from typing import ClassVar

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

_SCRIPT = r"""
%(complete_func)s() {
    local line="${COMP_LINE:0:$COMP_POINT}" answer type value last kept=
    last="${line##*[[:space:]]}"
    [[ $COMP_WORDBREAKS == *:* && $last == *:* ]] && kept="${last%%:*}:"
    while IFS= read -r answer; do
        type="${answer%%%%,*}" value="${answer#*,}"
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) printf -v value '%%q' "$value"; COMPREPLY+=("${value#"$kept"}") ;;
        esac
    done < <(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """See the module."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the cursor, and the one that is being typed."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        begins = not words or (line[-1:].isspace() and line[-2:-1] != "\\")
        return (words[1:], "") if begins else (words[1:-1], words[-1])


def add() -> None:
    """Make click use it."""
    add_completion_class(Bash)
