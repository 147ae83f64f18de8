"""Runs commands of the command line in one process, one after the other; not a test itself.

Reads a JSON list of argument lists from stdin and prints a JSON list of outputs. A command must
exit with 0. Starting Python, and Spark for some commands, takes longer than most of them do.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from fourfold.cli import main


def printed(arguments: list[str]) -> str:
    """Return what a command prints to stdout."""
    original = os.dup(1)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 1)
        try:
            code = main.run(arguments)
        finally:
            sys.stdout.flush()
            os.dup2(original, 1)
            os.close(original)
        if code != 0:
            sys.exit(f"`fourfold {' '.join(arguments)}` left with exit code {code}")
        output.seek(0)
        return output.read().decode()


if __name__ == "__main__":
    outputs = [printed(arguments) for arguments in json.load(sys.stdin)]
    print(json.dumps(outputs))
