"""A scheduler or a worker of Dask in a fork of the warm process: Dask is imported once, not by each of them."""

from typing import Any

import dask
from distributed.cli import dask_scheduler, dask_worker
from distributed.config import initialize_logging

MAINS = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def main(given: dict[str, Any]) -> int:
    """Be what `dask ROLE WORDS…` is, by the settings of this process's environment."""
    initialize_logging(dask.config.config)
    MAINS[given["role"]](given["words"], prog_name=f"dask {given['role']}")
    return 0
