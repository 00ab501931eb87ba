"""Shell completion: a few lines for each shell, which hand the words typed so far to `agentfs complete`."""

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator

from agentfs.commands.parser import COMMANDS, build, name_of

FILES, FOLDERS = ":files", ":folders"  # instead of candidates: the shell itself knows those best

BASH = """\
# agentfs completion for bash: source <(agentfs completion bash)
_agentfs() {
    local line word="${COMP_WORDS[COMP_CWORD]}" IFS=$'\\n'
    COMPREPLY=()
    while read -r line; do
        case "$line" in
        :files) COMPREPLY=($(compgen -f -- "$word")) ;;
        :folders) COMPREPLY=($(compgen -d -- "$word")) ;;
        *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <(printf '%s\\n' "${COMP_WORDS[@]:1:COMP_CWORD}" | agentfs complete 2>/dev/null)
}
complete -o filenames -F _agentfs agentfs
"""
ZSH = """\
#compdef agentfs
# agentfs completion for zsh: source <(agentfs completion zsh), or put it as _agentfs into a folder of $fpath
_agentfs() {
    local -a found
    found=(${(f)"$(print -rl -- "${(@)words[2,CURRENT]}" | agentfs complete 2>/dev/null)"})
    case $found[1] in
    :files) _files ;;
    :folders) _files -/ ;;
    *) found=("${(@)found/$'\\t'/:}"); _describe -t agentfs agentfs found ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _agentfs "$@"; else compdef _agentfs agentfs; fi
"""
FISH = """\
# agentfs completion for fish: agentfs completion fish | source
function __agentfs_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -e words[1]
    set -l found (printf '%s\\n' $words "$word" | agentfs complete 2>/dev/null)
    switch "$found[1]"
        case :files
            __fish_complete_path "$word"
        case :folders
            __fish_complete_directories "$word"
        case '*'
            test -n "$found"; and printf '%s\\n' $found
    end
end
complete -c agentfs -f -a '(__agentfs_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(arguments: Namespace) -> int:
    """`agentfs completion SHELL`"""
    print(SCRIPTS[arguments.shell], end="")
    return 0


def complete(arguments: Namespace) -> int:  # noqa: ARG001
    """What the scripts call: print what may come next, given the words typed so far, a line each, on stdin."""
    *before, word = sys.stdin.read().removesuffix("\n").split("\n")
    for one in candidates(before, word):
        if one.startswith((word, ":")):
            print(one)
    return 0


def command_parsers() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser of every command that is listed, and what it does."""
    listed = {name_of(one): one.summary for commands in COMMANDS.values() for one in commands if one.summary}
    return {name: (build().commands[name], summary) for name, summary in listed.items()}


def candidates(before: list[str], word: str) -> Iterator[str]:
    """Yield what may come after these words, each with what it is behind a tab; `word`: what is typed of it."""
    parser: argparse.ArgumentParser = build()
    folder, placed = ".", 0
    waiting: argparse.Action | None = None  # an option whose value comes next
    for one in before:
        if waiting is not None:
            folder, waiting = one if waiting.dest == "folder" else folder, None
        elif one.startswith("-"):
            option = parser._option_string_actions.get(one)  # noqa: SLF001
            waiting = option if option is not None and option.nargs is None else None
        elif parser is build():
            parser = command_parsers().get(one, (argparse.ArgumentParser(), ""))[0]
        else:
            placed += 1
    if waiting is not None:
        yield from _values(waiting, folder)
        return
    placing = [] if word.startswith("-") else parser._get_positional_actions()  # noqa: SLF001
    if parser is build():
        yield from (f"{name}\t{about}" for name, (_, about) in command_parsers().items())
    elif placing:
        yield from _values(placing[min(placed, len(placing) - 1)], folder)
        return
    options = [one for one in parser._actions if one.option_strings and one.help is not argparse.SUPPRESS]  # noqa: SLF001
    yield from (f"{one.option_strings[-1]}\t{one.help}" for one in options)


def _values(action: argparse.Action, folder: str) -> Iterable[str]:
    if action.metavar in ("RUN", "RUN@REV"):
        return _runs(folder)
    if action.metavar in ("GOAL", "FILE"):
        return [FILES]
    if action.metavar == "DIR":
        return [FOLDERS]
    return map(str, action.choices or action.const or ())


def _runs(folder: str) -> Iterable[str]:
    """Return the last parts of the ids of all runs, which are short for the newest of that name, and the ids."""
    from pathlib import Path

    from agentfs.core.paths import run_id
    from agentfs.storage.workspace import find_workspace

    workspace = find_workspace(Path(folder).resolve())
    folders = list(workspace.run_folders()) if workspace else []
    return [*dict.fromkeys(one.name for one in folders), *map(run_id, folders)]
