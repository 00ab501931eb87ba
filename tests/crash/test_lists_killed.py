"""A run that goes through a list, killed at several moments: done items stay done, and the step has one result."""

import json
import os
import signal
from collections import Counter

import pytest

from tests.workspaces import Place, wait_for

STEPS = """### list
repeatable
```sh
seq -f item-%g 12
```

### work
when: `true`
each: {{steps.list.output}}
repeatable
```sh
echo {{item}} >> effects; sleep 0.05; echo "{{index}}"
```

### never
when: `false`
```sh
echo never >> effects
```

### tell
after: work
repeatable
```sh
echo {{steps.work.output}}
```
"""


@pytest.mark.parametrize("ended", [1, 5, 11, 12])
def test_killed_after_so_many_items(place: Place, ended: int) -> None:
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text('[tools]\nsandbox = "off"\n[limits]\nparallel = 2\n')
    driver = place.begin("run", place.runbook(STEPS))

    def results() -> list[str]:
        return [path.name for path in place.runs.glob("*/job/steps/work~*.result.json")]

    wait_for(lambda: len(results()) >= ended or driver.poll() is not None, f"{ended} items")
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    done = {name.split(".")[0] for name in results()}
    place.agentfs("run", "--resume", "job", code=None)
    folder = place.run_folder()
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["status"], outcome["steps"]["skipped"]) == ("done", ["never"])
    effects = Counter((folder / "files" / "effects").read_text().split())
    assert set(effects) == {f"item-{number}" for number in range(1, 13)}
    assert [name for name in done if effects[name.partition("~")[2]] != 1] == [], "what was done is not done again"
    ends = [json.loads(path.read_text()) for path in sorted(folder.glob("steps/tell.*.result.json"))]
    result = next(one for one in ends if one["status"] == "done")  # it may have been under way when it was killed
    assert result["output"] == list(range(12)) or result["output"] == [str(number) for number in range(12)]
    place.agentfs("verify", "job")
