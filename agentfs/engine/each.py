"""Write the result of a step that goes through a list, once every item has ended."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentfs.core import paths
from agentfs.core.each import gather_items, surprises
from agentfs.core.records import Failure, Result
from agentfs.core.reports import AttemptFinished
from agentfs.core.run_state import spent_on
from agentfs.core.steps import StepView
from agentfs.engine.attempts import order_for, step_context
from agentfs.engine.driver import Driver
from agentfs.executor.attempt import Halt, publish_result
from agentfs.storage.jsonl import whole_output
from agentfs.tools.output import value_result


def gather(view: StepView, driver: Driver) -> None:
    """Publish the step's own result: the items' outputs in the order of the list, null for one that failed."""
    order, (is_done, words) = order_for(view, view.next, driver), gather_items(view)
    context = step_context(driver, Halt(), paths.conversation(view.id, view.next))
    file = Path(context.steps_folder.path(view.id, view.next, "output"))
    with suppress(FileNotFoundError):
        file.unlink()  # left by a driver that died before the result was there
    outputs = [_output(one, driver) for one in view.items] if is_done else None
    given = value_result(outputs, replace(context, output_file=file))
    found, surprise = [one.result for one in view.items if one.result], "; ".join([*surprises(view)][:3])
    result = Result(
        **order.shared_with_result(),
        status="done" if is_done else "failed",
        output=given.output,
        cut=given.cut,
        surprising=bool(surprise) and is_done,
        surprise=surprise or None if is_done else None,
        error=None if is_done or words is None else Failure(kind="items", message=words),
        items={one.id.partition(paths.ITEM)[2]: one.attempt for one in view.items},
        sandbox=driver.world.sandbox,
        started_at=min((one.started_at for one in found if one.started_at), default=None),
        ended_at=driver.world.clock.stamp(),
        duration_s=round(spent_on(found).seconds, 6),  # items that ran at the same time count once
    )
    driver.learn(AttemptFinished(publish_result(result, context.steps_folder, context.mask)))


def _output(item: StepView, driver: Driver) -> Any:
    """Return what an item gave back, whole; None if it failed."""
    if item.status != "done" or item.result is None:
        return None
    if not item.result.cut:
        return item.result.output
    path = driver.folder / paths.STEPS / paths.step_file(item.id, item.attempt, "output")
    try:
        return whole_output(path)
    except OSError:
        return item.result.output
