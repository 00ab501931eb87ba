"""`doctor`: what is wrong with this machine and this workspace, and how to mend it."""

from argparse import Namespace

from agentfs.cli.common import environment, say, start_folder
from agentfs.cli.look import print_lines
from agentfs.core.problems import is_well
from agentfs.views.words import inert, json_text
from agentfs.workspace import find_workspace


def doctor(arguments: Namespace) -> int:
    """`agentfs doctor`"""
    import agentfs
    from agentfs.doctor import examine
    from agentfs.views.doctor import doctor_lines

    workspace = find_workspace(start_folder(arguments))
    findings = list(examine(workspace, environment()))
    if arguments.json:
        page = {
            "agentfs": agentfs.__version__,
            "workspace": str(workspace.root) if workspace else None,
            "well": is_well(findings),
            "findings": [one.as_json() for one in findings],
        }
        print_lines([json_text(page)])
    else:
        print_lines(inert(line) for line in doctor_lines(findings))
        if workspace is None:
            say("there is no workspace here: only the machine was looked at (`agentfs init` makes one)")
    return 0 if is_well(findings) else 2
