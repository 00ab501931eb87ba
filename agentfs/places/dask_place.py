"""A place on a Dask cluster: every attempt is one task. Dask may start a task twice; the driver answers `go` once.

Messages go through queues of the scheduler, under the cluster's TLS: one for all that attempts send to this driver,
and one for each worker process that works for it (see dask_worker). What was received is not kept there. The
assignment travels inside the task's function: it is in no name, argument or result of a task.
"""

import contextlib
import json
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentfs.places.channel import Closed, Message
from agentfs.storage.safe_open import reading
from agentfs.storage.timing import TIMING

if TYPE_CHECKING:
    from distributed import Client, Future, Queue


ENDED = "ended"  # what the driver itself puts behind all that a task has sent
REFUSED = "refused"  # by a worker that cannot carry out an order
BYE = "bye"  # to a worker: its driver ends


def is_safe(address: str) -> bool:
    """Whether what is sent to a scheduler stays on this machine, or goes over TLS."""
    url = urlsplit(address if "://" in address else f"tcp://{address}")
    if url.scheme in ("tls", "wss", "inproc"):
        return True
    try:
        return url.hostname == "localhost" or ip_address(url.hostname or "").is_loopback
    except ValueError:
        return False


def address_in(scheduler_file: str) -> str:
    """Return the address that a scheduler wrote into its file. Raises Closed."""
    try:
        with reading(Path(scheduler_file)) as file:
            return str(json.load(file)["address"])
    except OSError as error:
        raise Closed(f"{scheduler_file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Closed(f"{scheduler_file} is not a scheduler file") from None


def next_in(line: "Queue", timeout: float) -> Any:
    """Return the next of a queue. Raises TimeoutError if none came, Closed where the scheduler does not answer."""
    began, patience = time.monotonic(), timeout + TIMING.place_silence
    try:
        return line.get(timeout=timeout, callback_timeout=patience)
    except TimeoutError:
        if time.monotonic() - began >= patience:  # a later answer would be lost: the line is of no use
            raise Closed("the scheduler does not answer") from None
        raise
    except Exception as error:  # noqa: BLE001 - whatever Dask raises, the line is cut
        raise Closed(str(error)) from None


@dataclass(slots=True)
class Connection:
    """A client of the scheduler, and its queues. Once cut it stays so: another one is made."""

    client: "Client"
    name: str
    up: "Queue"
    cut: str | None = None  # why nothing more will arrive
    avoided: set[str] = field(default_factory=set)  # workers that refused, or lost an attempt, and did no work since
    _lines: dict[str, "DaskLine"] = field(default_factory=dict)
    _down: dict[str, "Queue"] = field(default_factory=dict)  # by the worker's mailbox
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, line: "DaskLine") -> None:
        self._lines[line.ident] = line

    def forget(self, line: "DaskLine") -> None:
        self._lines.pop(line.ident, None)

    def others(self) -> list[str] | None:
        """Return the workers to prefer; None: any. One that refuses, or is frozen, looks idle to the scheduler."""
        return [worker for worker in self.workers() if worker not in self.avoided] or None if self.avoided else None

    def workers(self) -> list[str]:
        """Return the addresses of all workers that the scheduler knows."""
        return [*self.client.scheduler_info(n_workers=-1)["workers"]]

    def read(self) -> None:
        """Hand every message to the attempt it is about, until the scheduler is gone."""
        while self.is_open:
            try:
                with contextlib.suppress(TimeoutError):
                    self._deliver(next_in(self.up, TIMING.place_alive))
                    for one in self.up.get(batch=True, callback_timeout=TIMING.place_silence):
                        self._deliver(one)
            except Exception as error:  # noqa: BLE001 - whatever Dask raises, the line is cut
                self.cut = self.cut or f"the line to the scheduler was cut ({error})"

    @property
    def is_open(self) -> bool:
        """Whether messages may still arrive."""
        if self.cut is None and self.client.status != "running":
            self.cut = "the line to the scheduler was cut"
        return self.cut is None

    def _deliver(self, sent: Any) -> None:
        worker, mailbox, messages = sent
        for ident, message in messages:
            (self.avoided.add if message["kind"] == REFUSED else self.avoided.discard)(worker)
            if (line := self._lines.get(ident)) is not None:
                line.take(worker, mailbox, message)

    def send(self, mailbox: str, ident: str, message: Message) -> None:
        """Send something to a worker. Raises Closed."""
        from distributed import Queue

        try:
            with self._lock:
                if mailbox not in self._down:
                    self._down[mailbox] = Queue(mailbox, client=self.client)
            self._down[mailbox].put([ident, message], callback_timeout=TIMING.place_connect)
        except Exception as error:  # noqa: BLE001 - whatever Dask raises, the line is cut
            raise Closed(f"the cluster does not answer: {error}") from None

    def close(self) -> None:
        with contextlib.suppress(Closed):
            for mailbox in self._down if self.is_open else ():
                self.send(mailbox, "", {"kind": BYE})
        self.cut = self.cut or "it was closed"
        for line in (*self._down.values(), self.up):
            with contextlib.suppress(Exception):
                line.close()
        with contextlib.suppress(Exception):
            self.client.close(timeout=TIMING.close)


class DaskLine:
    """The driver's end of the line to one task."""

    def __init__(self, connection: Connection) -> None:
        self.ident = uuid.uuid4().hex
        self._connection = connection
        self._arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._mailboxes: dict[str, str] = {}  # of the workers that have it: one, unless Dask started it twice
        self._future: Future | None = None
        self._why_ended = "its task ended"
        self._is_over = False  # it has sent its last message
        connection.add(self)

    def submit(self, message: Message, worker: str | None) -> None:
        """Have a worker carry out an assignment: this one, or any."""
        one = self._connection
        preferred = [worker] if worker else one.others()
        self._future = one.client.submit(
            start_on_worker(self.ident, one.name, json.dumps(message)),
            key=f"agentfs-attempt-{self.ident}",
            pure=False,
            retries=0,
            workers=preferred,
            allow_other_workers=preferred is not None and worker is None,
        )
        self._future.add_done_callback(self._done)

    def _done(self, future: "Future") -> None:
        """The task is over. Its messages are in the queue by now: the end is put behind them."""
        if self._is_over:
            return
        if future.status == "error":
            self._why_ended = f"its task failed: {future.exception()}"
        elif future.status in ("cancelled", "lost"):
            self._why_ended = f"its task was {future.status}"
        with contextlib.suppress(Exception):  # the line is cut, which `receive` will see
            end = ["", "", [(self.ident, {"kind": ENDED})]]
            self._connection.up.put(end, callback_timeout=TIMING.place_connect)

    def take(self, worker: str, mailbox: str, message: Message) -> None:
        """Take what arrived from a worker."""
        if mailbox:
            self._mailboxes[mailbox] = worker
        self._is_over = self._is_over or message.get("kind") == "over"
        self._arrived.put(message)

    def send(self, message: Message) -> None:
        for mailbox in list(self._mailboxes):
            self._connection.send(mailbox, self.ident, message)

    def receive(self, timeout: float) -> Message | None:
        try:
            message = self._arrived.get(timeout=timeout)
        except queue.Empty:
            if not self._connection.is_open:
                raise Closed(self._connection.cut or "") from None
            return None
        if message.get("kind") == ENDED:
            raise Closed(self._why_ended)
        return message

    def has_another(self) -> bool:
        return self._connection.others() is not None

    def close(self) -> None:
        self._connection.forget(self)
        if self._is_over:
            return  # the task ends by itself
        self._connection.avoided.update(self._mailboxes.values())
        self._is_over = True
        with contextlib.suppress(Exception):
            if self._future is not None and not self._future.done():
                self._future.cancel(force=True)


@dataclass(slots=True)
class DaskPlace:
    """One connection for all attempts of a process; made when the first one starts, and again when it is cut."""

    name: str
    slots: int
    scheduler: str | None = None
    scheduler_file: str | None = None
    insecure: bool = False
    _connection: Connection | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def workers(self) -> list[str]:
        try:
            if known := self._connected().workers():
                return known
            raise Closed("the scheduler has no workers")
        except Closed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Dask raises, the line is cut
            raise Closed(f"no connection to the scheduler: {error}") from None

    def start(self, message: Message, worker: str | None = None) -> DaskLine:
        try:
            line = DaskLine(self._connected())
        except Closed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Dask raises, the line is cut
            raise Closed(f"no connection to the scheduler: {error}") from None
        try:
            line.submit(message, worker)
        except Exception as error:  # noqa: BLE001
            line.close()
            raise Closed(f"the cluster does not answer: {error}") from None
        return line

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None or not self._connection.is_open:
                self._drop()
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        from distributed import Queue

        address = self.scheduler or address_in(self.scheduler_file or "")
        if not self.insecure and not is_safe(address):
            raise Closed(f"{address} is beyond this machine, and not protected by TLS")
        client = _open_client(address)
        name = f"agentfs-driver-{uuid.uuid4().hex}"
        connection = Connection(client, name, Queue(name, client=client))
        threading.Thread(target=connection.read, name=f"place-{self.name}-reader", daemon=True).start()
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        with self._lock:
            self._drop()


def _open_client(address: str) -> "Client":
    """Connect to a scheduler. A client that cannot is closed at once: later nothing answers it."""
    from distributed import Client

    class ClosedWhenItFails(Client):  # type: ignore[misc]  # the package is half typed
        def start(self, **given: Any) -> None:
            try:
                super().start(**given)
            except BaseException:
                with contextlib.suppress(Exception):
                    self.close(timeout=TIMING.close)
                raise

    return ClosedWhenItFails(address, set_as_default=False, timeout=TIMING.place_connect, name="agentfs")


def start_on_worker(ident: str, driver: str, text: str) -> Callable[[], None]:
    """Return what Dask sends to a worker: by value, as a worker dies that cannot import what it receives."""

    def attempt() -> None:
        try:
            from agentfs.places.dask_place import run_on_worker
        except ImportError as error:
            from distributed import Queue, get_client, get_worker

            worker = get_worker().address
            why = f"the worker {worker} has no agentfs of this release ({error})"
            Queue(driver, client=get_client()).put([worker, "", [(ident, {"kind": "refused", "why": why})]])
            return
        run_on_worker(ident, driver, text)

    return attempt


# ── the attempt's end, on a Dask worker ───────────────────────────────────────────────────────────────────


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
                _tell_sent([self._unsent.get_nowait()])  # nothing waits for a line that is cut

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
        """Let go of the queues: the scheduler drops those that are not in use."""
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
    """Carry out an assignment. Its result is sent, and is not the result of the task."""
    from agentfs.places.elsewhere import serve  # no driver needs it

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
