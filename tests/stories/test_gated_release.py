"""The gated release: built and tested by the machine, published only by a person's yes to exactly what goes out."""

import shutil
from pathlib import Path

import pytest

from tests.workspaces import Place

EXAMPLE = Path(__file__).parents[2] / "examples" / "gated-release"


@pytest.fixture
def release(place: Place) -> Place:
    """The example, driven up to its gate."""
    shutil.copytree(EXAMPLE, place.root, dirs_exist_ok=True)
    asked = place.agentfs("run", "goal.md", code=3)
    assert "version.1.question.md" in asked.stderr
    place.agentfs("reply", "gated-release", "version", "1.4")
    gated = place.agentfs("run", "--resume", "gated-release", code=3)
    assert "publish.1.question.md" in gated.stderr
    return place


def test_nothing_goes_out_before_the_yes(release: Place) -> None:
    assert sorted(path.name for path in (release.root / "registry").iterdir()) == ["README.md"]
    name = "gated-release"
    question = (release.run_folder(name) / "steps" / "publish.1.question.md").read_text()
    checksum = release.read("steps/build.1.result.json", name)["output"]
    assert checksum in question
    assert '"REF_1": "1.4"' in question
    assert "steps/publish.1.json" not in release.tree(name)


def test_a_yes_publishes(release: Place) -> None:
    release.agentfs("approve", "gated-release")
    assert release.agentfs("run", "--resume", "gated-release").stdout == "published 1.4\n"
    assert (release.root / "registry" / "latest").read_text() == "app-1.4.tar\n"
    assert release.log()[-1] == "agentfs gated-release: done, 4 of 4 steps"
    release.ledger_is_sound()


def test_a_no_publishes_nothing(release: Place) -> None:
    release.agentfs("reject", "gated-release", "--because", "not on a Friday")
    release.agentfs("run", "--resume", "gated-release", code=1)
    assert not (release.root / "registry" / "latest").exists()
    result = release.read("steps/publish.1.result.json", "gated-release")
    assert (result["status"], result["error"]["message"]) == ("rejected", "not on a Friday")
