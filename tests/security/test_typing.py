"""A prompt is for people: a step cannot type on the terminal it is asked on."""

from tests.terminals import OnTerminal
from tests.workspaces import Place, wait_for

TYPES = """\
### types
after: nothing
```python
import fcntl, os, pathlib, termios, time
while not pathlib.Path("go").exists():
    time.sleep(0.05)
found = list(range(10))
for path in ["/dev/tty", pathlib.Path("go").read_text()]:
    try:
        found.append(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        pass
for descriptor in found:
    for key in b"yes\\r":
        try:
            fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([key]))
        except OSError:
            pass
pathlib.Path("typed").touch()
```

### send
after: nothing
gate
```sh
touch sent
```
"""


def test_a_step_cannot_type_a_yes(place: Place) -> None:
    name = place.runbook(TYPES)
    with OnTerminal(["run", name], place.root, place.env, rows=40, keyboard=True) as shown:
        shown.wait_to_see("send: yes, no [why], show, edit, later")
        files = place.run_folder() / "files"
        (files / "go.new").write_text(shown.path)
        (files / "go.new").rename(files / "go")
        wait_for((files / "typed").exists, "the step to have tried")
        shown.enter("later")  # comes after what the step has typed
        assert shown.wait()[0] == 3
    assert not (files / "sent").exists()
    assert not (place.run_folder() / "steps" / "send.1.reply.md").exists()
