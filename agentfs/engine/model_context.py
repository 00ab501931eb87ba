"""Where a model sits down to do an order of a run: what it may know, and how far it may go. Starts nothing."""

from agentfs.core.facts import Facts
from agentfs.core.planner_calls import DO, loops
from agentfs.core.records import Order
from agentfs.engine.driver import Driver
from agentfs.executor.desk import Accept, Desk


def desk_for(order: Order | None, driver: Driver, accept: Accept | None = None) -> Desk:
    """Return where a model sits down to do an order; with none, to judge what belongs to no attempt."""
    run, world = driver.facts.settings, driver.world
    own = order is not None and order.step == DO and loops(driver.facts)
    return Desk(
        choose=lambda name: world.executor(run, name),
        meter=driver.meter,
        hears=driver.hears,
        workspace=world.workspace,
        goal=driver.facts.goal.title,
        earlier=earlier_errors(order, driver.facts) if order is not None and order.tool is None else (),
        max_turns=world.max_turns,
        may_hand_over=own,
        split_over=run.split_over,
        scratchpad=own and run.mode == "scratchpad",
        accept=accept if own else None,
        unconfined=run.sandbox == "off",
    )


def earlier_errors(order: Order, facts: Facts) -> tuple[str, ...]:
    """Return what went wrong in earlier attempts at this very step, as it is now."""
    results = [one.result for one in facts.attempts.get(order.step, ()) if one.number < order.attempt]
    return tuple(
        f"{result.error.message} ({result.error.hint})" if result.error.hint else result.error.message
        for result in results
        if result and result.error and result.status == "failed" and result.key == order.key
    )
