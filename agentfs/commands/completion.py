"""Shell completion: scripts written from the parser, so that they know what can be typed. Only prints."""

import argparse
from argparse import Namespace
from dataclasses import dataclass

from agentfs.commands.parser import build

RUNS = "agentfs complete-runs"  # prints the names of runs; quick, and in no help text
HIDDEN = ("complete-runs",)
RUN_PLACES = ("RUN", "RUN@REV")


@dataclass(frozen=True, slots=True)
class Word:
    """A command, with the words that say what it does, its flags, and what may follow it."""

    name: str
    about: str
    flags: dict[str, tuple[str, ...]]  # flag -> the values it takes; empty: none that are known
    choices: tuple[str, ...]
    takes_run: bool
    takes_file: bool


def completion(arguments: Namespace) -> int:
    """`agentfs completion SHELL`"""
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    print(scripts[arguments.shell](words()), end="")
    return 0


def complete_runs(arguments: Namespace) -> int:
    """What shell completion calls: the ids of all runs, and the last parts that are short for them."""
    from agentfs.commands.common import print_lines, start_folder
    from agentfs.core.paths import run_id
    from agentfs.storage.workspace import find_workspace

    workspace = find_workspace(start_folder(arguments))
    folders = list(workspace.run_folders()) if workspace else []
    return print_lines([*dict.fromkeys(folder.name for folder in folders), *map(run_id, folders)])


def words() -> list[Word]:
    """Return every command that can be typed, as the parser knows it."""
    parser = build()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    about = {action.dest: action.help or "" for action in commands._choices_actions}  # noqa: SLF001
    return [_word(name, about.get(name, ""), one) for name, one in commands.choices.items() if name not in HIDDEN]


def _word(name: str, about: str, parser: argparse.ArgumentParser) -> Word:
    actions = parser._actions  # noqa: SLF001 - argparse has no other way to ask it
    places = [action for action in actions if not action.option_strings]
    return Word(
        name,
        about,
        {action.option_strings[-1]: _choices(action) for action in actions if action.option_strings},
        next((_choices(place) for place in places if place.choices), ()),
        any(place.metavar in RUN_PLACES for place in places),
        any(place.metavar in ("GOAL", "FILE", "DIR") for place in places),
    )


def _choices(action: argparse.Action) -> tuple[str, ...]:
    if action.metavar in RUN_PLACES:
        return ("RUN",)
    known: tuple[str, ...] = getattr(action, "known", ())
    return tuple(map(str, action.choices or known))


# ── bash ──────────────────────────────────────────────────────────────────────────────────────────────────

_BASH = """\
# agentfs completion for bash: source <(agentfs completion bash)
_agentfs_runs() {
    agentfs ${folder:+-C"$folder"} complete-runs 2>/dev/null
}
_agentfs() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" folder="" place at
    for ((at = 1; at < COMP_CWORD; at++)); do
        place="${COMP_WORDS[at]}"
        if [[ $place == -C ]]; then at=$((at + 1)); folder="${COMP_WORDS[at]}"; continue; fi
        if [[ $place != -* ]]; then command="$place"; break; fi
    done
    local IFS=$'\\n' listed=""
    COMPREPLY=()
    [[ $before == -C ]] && { COMPREPLY=($(compgen -d -- "$word")); return; }
    case "$command $before" in
VALUES
    esac
    [[ -n $listed ]] && { COMPREPLY=($(compgen -W "$listed" -- "$word")); return; }
    case "$command" in
COMMANDS
    esac
}
complete -o filenames -F _agentfs agentfs
"""


def bash(known: list[Word]) -> str:
    """Return the script for bash."""
    values = [
        f'    "{word.name} {flag}") listed={_list(choices)} ;;'
        for word in known
        for flag, choices in word.flags.items()
        if choices
    ]
    top = _quote([*(word.name for word in known), "-C", "--version", "--help"])
    commands = [f'    "") COMPREPLY=($(compgen -W {top} -- "$word")) ;;', *map(_bash_command, known)]
    return _BASH.replace("VALUES", "\n".join(values)).replace("COMMANDS", "\n".join(commands))


def _bash_command(word: Word) -> str:
    flags = f'COMPREPLY=($(compgen -W {_quote([*word.flags])} -- "$word"))'
    if word.takes_run:
        other = 'COMPREPLY=($(compgen -W "$(_agentfs_runs)" -- "$word"))'
    elif word.choices:
        other = f'COMPREPLY=($(compgen -W {_quote(list(word.choices))} -- "$word"))'
    else:
        other = 'COMPREPLY=($(compgen -f -- "$word"))' if word.takes_file else flags
    return f"    {word.name}) if [[ $word == -* ]]; then {flags}; else {other}; fi ;;"


def _list(choices: tuple[str, ...]) -> str:
    return '"$(_agentfs_runs)"' if choices == ("RUN",) else _quote(list(choices))


def _quote(listed: list[str]) -> str:
    """Return words as one of bash's own, a line each: runs are split at line ends, and so are these."""
    return "$'" + "\\n".join(listed) + "'"


# ── zsh ───────────────────────────────────────────────────────────────────────────────────────────────────

_ZSH = """\
#compdef agentfs
# agentfs completion for zsh: source <(agentfs completion zsh), or put it as _agentfs into a folder of $fpath
_agentfs_runs() {
    local -a runs
    runs=(${(f)"$(_call_program runs agentfs ${opt_args[-C]:+-C} ${opt_args[-C]} complete-runs 2>/dev/null)"})
    _describe -t runs run runs
}
_agentfs() {
    local context state state_descr line
    typeset -A opt_args
    local -a commands
    commands=(
DESCRIBED
    )
    _arguments -C '-C[the workspace, or a folder in it]:folder:_files -/' '--version[print the version]' \\
        '(-h --help)'{-h,--help}'[show help]' '1:command:->command' '*::argument:->argument'
    case $state in
    command) _describe -t commands command commands ;;
    argument)
        case $line[1] in
COMMANDS
        esac ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _agentfs "$@"; else compdef _agentfs agentfs; fi
"""


def zsh(known: list[Word]) -> str:
    """Return the script for zsh."""
    described = [f"        '{word.name}:{_plain(word.about)}'" for word in known]
    commands = [f"        {word.name}) _arguments {_zsh_arguments(word)} ;;" for word in known]
    return _ZSH.replace("DESCRIBED", "\n".join(described)).replace("COMMANDS", "\n".join(commands))


def _zsh_arguments(word: Word) -> str:
    flags = [f"'{flag}{_zsh_value(choices)}'" for flag, choices in word.flags.items()]
    places = ["'1:run:_agentfs_runs'"] if word.takes_run else []
    if word.choices:
        places = [f"'1:value:({' '.join(word.choices)})'"]
    elif word.takes_file:
        places = ["'*:file:_files'"]
    return " ".join([*flags, *places])


def _zsh_value(choices: tuple[str, ...]) -> str:
    if not choices:
        return ""
    return ":run:_agentfs_runs" if choices == ("RUN",) else f":value:({' '.join(choices)})"


# ── fish ──────────────────────────────────────────────────────────────────────────────────────────────────


def fish(known: list[Word]) -> str:
    """Return the script for fish."""
    lines = ["# agentfs completion for fish: agentfs completion fish | source", "complete -c agentfs -f"]
    lines.append(
        "complete -c agentfs -n __fish_use_subcommand -s C -x -a '(__fish_complete_directories)' -d workspace"
    )
    lines.append("complete -c agentfs -n __fish_use_subcommand -l version -d 'print the version'")
    for word in known:
        about = _plain(word.about)
        lines.append(f"complete -c agentfs -n __fish_use_subcommand -a {word.name} -d '{about}'")
        lines += _fish_command(word)
    return "\n".join(lines) + "\n"


def _fish_command(word: Word) -> list[str]:
    begin = f"complete -c agentfs -n '__fish_seen_subcommand_from {word.name}'"
    lines = []
    for flag, choices in word.flags.items():
        values = f" -x -a '{f'({RUNS})' if choices == ('RUN',) else ' '.join(choices)}'" if choices else ""
        lines.append(f"{begin} -l {flag.lstrip('-')}{values}")
    if word.takes_run:
        lines.append(f"{begin} -a '({RUNS})'")
    elif word.choices:
        lines.append(f"{begin} -a '{' '.join(word.choices)}'")
    elif word.takes_file:
        lines.append(f"{begin} -F")
    return lines


def _plain(text: str) -> str:
    """Return a description without what a shell, or zsh's lists, would read as a sign."""
    return text.replace("'", "").replace(":", ",").replace("[", "(").replace("]", ")")
