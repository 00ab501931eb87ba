"""Imported by any Python that a check starts: the script's folder and the working folder come last in its path.

A check may import what it checks. What a step put there cannot take the place of Python's own library.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_script = getattr(sys, "argv", [""])[0]
_folders = [os.path.dirname(os.path.abspath(_script))] if os.path.isfile(_script) else []
sys.path[:] = [
    *(path for path in sys.path if os.path.abspath(path) != _HERE),
    *dict.fromkeys((*_folders, os.getcwd())),
]
