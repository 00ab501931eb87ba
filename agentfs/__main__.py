"""How agentfs starts, as a command and as `python -m agentfs`: it imports from its own installation, nowhere else."""

import sys

from agentfs.storage.installation import import_from_installation


def start() -> int:
    """Run the command that was typed; return its exit code."""
    import_from_installation()
    from agentfs.commands import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
