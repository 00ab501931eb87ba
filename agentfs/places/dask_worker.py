"""The attempt's end of the line on a Dask worker: one mailbox for each driver that this process works for."""

import contextlib
import json
import os
import queue
import threading
import time
import uuid
from typing import TYPE_CHECKING

from agentfs.places.channel import Closed, Message
from agentfs.places.dask_place import BYE, next_in
from agentfs.places.elsewhere import serve
from agentfs.storage.timing import TIMING

if TYPE_CHECKING:
    from distributed import Client

Item = tuple[str, Message] | threading.Event  # a message of an attempt; or set once those before have been sent
MOST_UNSENT = 16  # messages, before an attempt waits for the line
_mailboxes: dict[str, "Mailbox"] = {}  # by driver
_lock = threading.Lock()


class Mailbox:
    """A queue each way between this process and one driver, for all attempts; closed when none has come for a while.

    What attempts send while a message is under way goes together: a message costs the same, however much is in it.
    """

    def __init__(self, driver: str, client: "Client", worker: str) -> None:
        from distributed import Queue

        self.name = f"agentfs-worker-{uuid.uuid4().hex}"
        self._driver, self._worker, self._cut = driver, worker, ""
        self._down, self._up = Queue(self.name, client=client), Queue(driver, client=client)
        self._channels: set[WorkerChannel] = set()
        self._unsent: queue.Queue[Item] = queue.Queue(MOST_UNSENT)
        self._used = time.monotonic()
        for work in (self._receive, self._send):
            threading.Thread(target=work, name="mailbox", daemon=True).start()

    def add(self, ident: str) -> "WorkerChannel":
        """Return the channel of one start of an attempt."""
        channel = WorkerChannel(self, ident)
        self._channels.add(channel)
        return channel

    def close(self, channel: "WorkerChannel") -> None:
        """Forget a channel, once all that it sent is on its way."""
        sent = threading.Event()
        with contextlib.suppress(Closed):
            self.send(sent)
            sent.wait(TIMING.place_silence)
        with _lock:
            self._channels.discard(channel)
            self._used = time.monotonic()

    def send(self, item: Item) -> None:
        """Send a message, or learn when those before have been sent. Raises Closed."""
        with contextlib.suppress(queue.Full):
            if not self._cut:
                self._unsent.put(item, timeout=TIMING.place_silence)
                return
        raise Closed(self._cut)

    def _send(self) -> None:
        while not self._cut:
            items = [self._unsent.get()]
            while not self._unsent.empty():
                items.append(self._unsent.get())
            messages = [item for item in items if isinstance(item, tuple)]
            try:
                if messages:
                    self._up.put([self._worker, self.name, messages], callback_timeout=TIMING.place_silence)
            except Exception as error:  # noqa: BLE001 - whatever Dask raises, the line is cut
                self._end(str(error))
            _tell_sent(items)
        with contextlib.suppress(queue.Empty):
            while True:
                _tell_sent([self._unsent.get_nowait()])  # nobody waits for a line that is cut

    def _receive(self) -> None:
        while not self._cut and not self._is_idle():
            with contextlib.suppress(TimeoutError):
                try:
                    ident, message = next_in(self._down, TIMING.place_alive)
                except Closed as closed:
                    return self._end(str(closed))
                if message["kind"] == BYE:
                    return self._end("its driver has ended")
                for channel in [*self._channels]:
                    channel.take(ident, message)
        return None

    def _is_idle(self) -> bool:
        """Whether nothing has run here for a while; then nothing will: the next attempt gets another mailbox."""
        with _lock:
            if self._channels or time.monotonic() - self._used < TIMING.place_silence:
                return False
            self._end("nothing runs here")
            return True

    def _end(self, why: str) -> None:
        """Let go of the queues: the scheduler drops one that nobody has."""
        self._cut = why or "the line was cut"
        if _mailboxes.get(self._driver) is self:
            del _mailboxes[self._driver]
        for channel in [*self._channels]:
            channel.cut(self._cut)
        for one in (self._down, self._up):
            with contextlib.suppress(Exception):
                one.close()
        with contextlib.suppress(queue.Full):
            self._unsent.put_nowait(threading.Event())  # wakes `_send`


def _tell_sent(items: list[Item]) -> None:
    for item in items:
        if isinstance(item, threading.Event):
            item.set()


class WorkerChannel:
    """The attempt's end of the line, on a Dask worker."""

    def __init__(self, mailbox: Mailbox, ident: str) -> None:
        self._mailbox, self._ident = mailbox, ident
        self._arrived: queue.SimpleQueue[Message | Closed] = queue.SimpleQueue()

    def take(self, ident: str, message: Message) -> None:
        """Take what arrived in the mailbox, if it is for this attempt."""
        if ident == self._ident:
            self._arrived.put(message)

    def cut(self, why: str) -> None:
        self._arrived.put(Closed(why))

    def send(self, message: Message) -> None:
        self._mailbox.send((self._ident, message))

    def receive(self, timeout: float) -> Message | None:
        try:
            message = self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(message, Closed):
            raise message
        return message

    def close(self) -> None:
        self._mailbox.close(self)
        self.cut("it has ended")


def run_on_worker(ident: str, driver: str, text: str) -> None:
    """Carry out an assignment. What it comes to is sent, and is no result of the task."""
    channel = _open_channel(ident, driver)
    channel.take(ident, json.loads(text))
    try:
        serve(channel, os.environ)
    finally:
        channel.close()


def _open_channel(ident: str, driver: str) -> WorkerChannel:
    from distributed import get_client, get_worker

    with _lock:
        if driver not in _mailboxes:
            _mailboxes[driver] = Mailbox(driver, get_client(), get_worker().address)
        return _mailboxes[driver].add(ident)
