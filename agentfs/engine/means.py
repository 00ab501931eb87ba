"""What a workspace and its runs have to work with: tools, models; and a reader that judges by them.

Commands that only look need no more than this, and it is quick to import: no engine, no model, no ledger.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentfs.core import paths
from agentfs.core.config import ModelSettings, Settings
from agentfs.core.records import Run, Tools
from agentfs.core.run_state import Means
from agentfs.core.tool_spec import Catalogue
from agentfs.engine.plan_judge import FileJudge
from agentfs.engine.run_reader import RunReader
from agentfs.storage.files import read_whole
from agentfs.tools.registry import Known, known_tools, specs
from agentfs.tools.web import NO_ENGINE


def has_model(settings: ModelSettings, environment: Mapping[str, str]) -> bool:
    """Whether a model is configured: its key is set, its address is set, or it is a command."""
    return bool(settings.kind == "command" or settings.base_url or environment.get(settings.api_key_env))


def catalogue_of(settings: Settings, environment: Mapping[str, str], known: Known | None = None) -> Catalogue:
    """Return the tools of a workspace, for checking plans and goals; by default those that come with agentfs."""
    known = known or Known(specs())
    model = has_model(settings.executor, environment)
    allowed = frozenset(allowing_own(settings, known).tools.allow)
    models = settings.executor.models or (settings.executor.model,)
    return Catalogue(known.specs, allowed, settings.tools.network, model, known.broken, unset_tools(settings), models)


def unset_tools(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return the tools that cannot be used as the settings are: why, and what to set."""
    return {} if settings.tools.web_search.url else {"web_search": NO_ENGINE}


def allowing_own(settings: Settings, known: Known) -> Settings:
    """Return the settings with a person's own tools allowed, unless [tools] allow says which are."""
    if "allow" in settings.tools.model_fields_set:
        return settings
    tools = settings.tools.model_copy(update={"allow": (*settings.tools.allow, *known.own)})
    return settings.model_copy(update={"tools": tools})


def means_of(run: Run, repeatable: Mapping[str, bool]) -> Means:
    """Return what a run has to work with, as run.json says: never what the process that reads it has."""
    models = run.models
    return Means(planner=models.planner is not None, executor=models.executor is not None, repeatable=repeatable)


def catalogue_of_run(run: Run, settings: Settings, known: Known) -> Catalogue:
    """Return the tools and the model that one run began with. `settings`: what a planner is to be offered of them."""
    model = run.models.executor is not None
    unset, models = unset_tools(settings), run.models.named or (run.models.executor or settings.executor.model,)
    return Catalogue(known.specs, frozenset(run.tools), run.network, model, known.broken, unset, models)


def reader_for(folder: Path, settings: Settings, *, patient: bool, known: Known | None = None) -> RunReader:
    """Return a reader of one run that judges plans by the tools the run began with.

    `known`: None to read a person's own tools by their source, without running anything of theirs.
    """
    run = run_record(folder)
    known = known or known_tools(folder.parents[2], {*run.tools, *(tools_in_plan(folder).allow or ())})
    catalogue = catalogue_of_run(run, settings, known)
    judge = FileJudge(replace(catalogue, run=f"{folder.parent.name}/{folder.name}"))
    return RunReader(folder, judge, patient=patient, committed=partial(_committed, folder))


def _committed(folder: Path, name: str) -> Iterator[bytes]:
    """Yield what a file of a run held in the ledger, newest first; nothing where that does not read."""
    from agentfs.ledger import Ledger, LedgerError

    with suppress(LedgerError, OSError):
        yield from Ledger(folder.parents[1]).versions(f"{folder.parent.name}/{folder.name}", name)


def tools_in_plan(folder: Path) -> Tools:
    """Return what plan.json itself says of the run's tools, as far as it reads."""
    try:
        own = json.loads(read_whole(folder / paths.PLAN)).get("tools")
        return Tools.model_validate_json(json.dumps(own or {}))
    except (OSError, ValueError, AttributeError, RecursionError):
        return Tools()


def run_record(folder: Path) -> Run:
    """Return the settings a run began with."""
    return Run.model_validate_json(read_whole(f"{folder}/{paths.RUN}"))
