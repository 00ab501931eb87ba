"""Holds a value against a JSON Schema, in a process of its own: a schema that explodes can be ended from outside.

Run as a script: {"schema", "value"} on stdin, what is wrong (or null) on stdout.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # the last: nothing that lies there takes the place of a package
    from agentfs.core.conformance import mismatch

    asked = json.load(sys.stdin)
    json.dump(mismatch(asked["schema"], asked["value"]), sys.stdout)
