"""Runs the examples of one documentation page in order, in the current folder; not a test itself.

Reads the steps as JSON from stdin: `["python", line, code]` or `["shell", line, command]`. All
Python blocks of a page share one namespace, as a reader would type them; a shell line must exit
with 0. Errors show the line of the page.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> None:
    page = sys.argv[1]
    names = {"__name__": "__main__"}
    for kind, line, text in json.load(sys.stdin):
        if kind == "python":
            # Empty lines in front make a traceback point into the page.
            exec(compile("\n" * (line - 1) + text, page, "exec"), names)
        else:
            done = subprocess.run(text, shell=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{page}:{line}: `{text}` left with exit code {done.returncode}")


if __name__ == "__main__":
    main()
