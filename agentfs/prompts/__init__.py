"""The words models are given: files that people can read and replace, each known by its hash."""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from agentfs.core.hashing import sha256_bytes
from agentfs.errors import UserError
from agentfs.regular import MOST_SOURCE, NotRegular, read_regular

_PLACE = re.compile(r"<<([a-z_]+)>>")  # filled once: what a value holds is never filled again
FOLDER = "prompts"  # of a workspace: a file of the same name there is used instead


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it was read."""

    name: str
    text: str
    sha256: str

    def filled(self, **values: str) -> str:
        """Return the text with every `<<name>>` replaced by its value."""
        return _PLACE.sub(lambda match: values.get(match[1], match[0]), self.text)


def load_prompt(name: str, workspace: Path | None) -> Prompt:
    """Return a prompt: the workspace's own, else the one that comes with agentfs."""
    own = workspace / FOLDER / f"{name}.md" if workspace else None
    comes_along = files(__package__) / f"{name}.md"
    try:
        source = read_regular(own, MOST_SOURCE) if own and own.is_file() else comes_along.read_bytes()
        return Prompt(name, source.decode("utf-8"), sha256_bytes(source))
    except NotRegular as error:
        raise UserError(f"{own}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{own}: byte {error.start + 1} is not UTF-8 (save it as UTF-8, or remove it)") from None
