"""Threads that wait for work."""

import threading
from concurrent.futures import ThreadPoolExecutor

from agentfs.storage.system import Starter


class Pool(ThreadPoolExecutor):
    """A pool whose threads are all started at once: later there may be no room for one."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)
        all_there = threading.Event()
        for _ in range(most):
            Starter().start(lambda: self.submit(all_there.wait))
        all_there.set()
