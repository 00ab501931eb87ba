"""`agentfs status --watch` on a terminal: the table, kept current."""

from tests.terminals import OnTerminal
from tests.workspaces import Place


def test_the_table_is_kept_current_until_a_person_has_seen_enough(place: Place) -> None:
    place.agentfs("run", place.runbook("### a\n```sh\necho a\n```\n", name="one.md"))
    with OnTerminal(["status", "--watch"], place.root, place.env) as shown:
        screen = shown.wait_to_see("RUN", "/one", "1 of 1 steps done")
        assert len(screen) == 2
        place.agentfs("plan", place.runbook("### a\n```sh\necho a\n```\n", name="two.md"))
        screen = shown.wait_to_see("/two", "draft")
        assert ["/two" in screen[1], "agentfs approve" in screen[2], "/one" in screen[3]] == [True] * 3
        shown.press_control_c()
        assert shown.wait() == (0, "")
        assert shown.terminal.shows_cursor()


def test_it_needs_a_terminal_and_the_table(place: Place) -> None:
    place.agentfs("init")
    assert "--watch needs a terminal" in place.agentfs("status", "--watch", code=2).stderr
    assert "leave out RUN and --json" in place.agentfs("status", "--watch", "--json", code=2).stderr
