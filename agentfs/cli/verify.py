"""`verify`: do files and ledger agree?"""

from argparse import Namespace
from collections import Counter

from agentfs.cli.common import here, say
from agentfs.cli.look import print_lines
from agentfs.views.words import inert, json_text


def verify(arguments: Namespace) -> int:
    """`agentfs verify [RUN]`"""
    from agentfs.ledger.verify import Verification
    from agentfs.views.verify import line_of, summary

    workspace = here(arguments)
    work = Verification(workspace, workspace.find_run(arguments.run) if arguments.run else None)
    kept, grades = [], Counter[str]()
    for one in work.disagreements():
        grades[one.grade] += 1
        if arguments.json:
            kept.append(one.as_json())
        else:
            print_lines([inert(line_of(one))])
    if arguments.json:
        counts = {"runs": work.runs, "commits": work.commits, "revisions": work.revisions, "tip": work.tip}
        print_lines([json_text({"agrees": not grades["wrong"], **counts, "disagreements": kept})])
    say(summary(grades["wrong"], grades["later"], work.runs, work.commits, work.revisions, work.tip))
    return 2 if grades["wrong"] else 0
