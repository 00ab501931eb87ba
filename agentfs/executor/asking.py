"""Write the question of an `ask`: from then on the attempt waits as files, and nobody need be running."""

import os
from dataclasses import replace

from agentfs.core import paths
from agentfs.core.mask import Mask
from agentfs.core.records import Order
from agentfs.executor import questions
from agentfs.executor.desk import Asked
from agentfs.executor.log import AttemptLog
from agentfs.executor.rebuilding import QUESTION
from agentfs.storage.steps_folder import Shelf


def wait_with(asked: Asked, order: Order, log: AttemptLog, shelf: Shelf, mask: Mask, seconds: float) -> Asked:
    """Write a question that a loop asks; the conversation is safe in the log before the question is there."""
    count = next_question(order, shelf)
    log.write(QUESTION, {**asked.memory, "count": count, "seconds": seconds})
    log.sync()
    put_question(order, asked.question, count, shelf, mask)
    return replace(asked, count=count)


def next_question(order: Order, shelf: Shelf) -> int:
    """Return the number that the next question of an attempt gets; a gate may have had the first."""
    count = 1
    while os.path.exists(f"{shelf.folder}/{paths.step_file(order.step, order.attempt, 'question', count)}"):
        count += 1
    return count


def put_question(order: Order, question: str, count: int, shelf: Shelf, mask: Mask) -> None:
    """Make the question appear beside its order: the commit point of waiting."""
    reply = paths.step_file(order.step, order.attempt, "reply", count)
    text = questions.ask(order.step, mask.text(question), reply)
    name = paths.step_file(order.step, order.attempt, "question", count)
    shelf.put(name, text.encode("utf-8", "replace"), durable=True)
