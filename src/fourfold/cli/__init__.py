"""Command line: translate arguments into calls, and results into text or JSON.

Each command is one file, or one package, with a click command called `command`. `main` lists the
commands and turns every outcome into an exit code; only `output` prints.
"""
