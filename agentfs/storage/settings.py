"""Load agentfs.toml, with AGENTFS_… variables laid over it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentfs.core.config import ON_WAIT_VARIABLES, Settings
from agentfs.core.documents import Document, read_toml
from agentfs.core.plan_check import check_settings
from agentfs.core.problems import Rejected, did_you_mean
from agentfs.core.records import Record
from agentfs.errors import BadFile, UserError
from agentfs.storage.files import read_whole

PREFIX = "AGENTFS_"


def load_settings(path: Path, environment: Mapping[str, str]) -> Settings:
    """Return the settings of a workspace; raise BadFile or UserError in words."""
    source = b""
    try:
        source = read_whole(path)
        document = read_toml(source)
        check_settings(document)  # the file first, so that its problems point into it
        overridden = document.with_value(_overridden(document.value, environment))
        return check_settings(overridden)
    except Rejected as rejected:
        raise BadFile(str(path), rejected.problems, source) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def default_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings of a workspace that is made now."""
    return check_settings(Document(_overridden({}, environment)))


def _overridden(value: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with AGENTFS_LIMITS_PARALLEL=8 and its like laid over them."""
    known = dict(_variables(Settings, ()))
    merged: dict[str, Any] = json.loads(json.dumps(value))
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in ON_WAIT_VARIABLES:
            continue
        if name not in known:
            raise UserError(f"{name} is no setting ({did_you_mean(name, known, 'see docs/format.md for the names')})")
        *tables, key = known[name]
        place = merged
        for table in tables:
            place = place.setdefault(table, {})
        place[key] = _value(text)
    return merged


def _variables(record: type[Record], path: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, field in record.model_fields.items():
        here = (*path, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Record):
            found += _variables(field.annotation, here)
        else:
            found.append((PREFIX + "_".join(here).upper(), here))
    return found


def _value(text: str) -> Any:
    """A number, true, false or a list is what it looks like; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
