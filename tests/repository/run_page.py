"""Runs the examples of one page in order, as a reader pastes them; not a test itself.

Shell commands go to one bash, Python blocks to one namespace, both in the current folder. So a
server that a page starts in the background keeps running, and so do variables of either. Reads the
steps as JSON from stdin: `["python", line, code]` or `["shell", line, command, output]`. A command
must exit with 0, and print the output that the page shows, if it shows any. Errors name the line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

END = "end of command"
SHELL = f"""
while IFS= read -r -u 3 -d '' command; do
  eval "$command" < /dev/null
  printf '\\n%s %d\\n' '{END}' $?
done
"""
VARIABLE = re.compile(
    r"\d{8}T\d{6}\.\d{3}Z-[0-9a-f]+|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)|lag \d+\.\d s"
)
"""Restore points and times, which differ from run to run."""


class Terminal:
    """One bash that runs commands one after the other."""

    def __init__(self) -> None:
        commands, self._commands = os.pipe()
        self._bash = subprocess.Popen(
            ["bash", "-c", f"exec 3<&{commands}; {SHELL}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[commands],
        )
        os.close(commands)

    def run(self, command: str) -> tuple[int, str]:
        os.write(self._commands, command.encode() + b"\0")
        output = []
        for line in self._bash.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(output)
            output.append(line)
        sys.exit(f"`{command}` ended the shell: {''.join(output)}")

    def close(self) -> None:
        """End what still runs in the background, such as a server."""
        if self._bash.poll() is None:
            self.run("kill $(jobs -p) 2> /dev/null; wait")
        os.close(self._commands)
        self._bash.wait()


def matches(shown: str, printed: str) -> bool:
    """Return whether the output is the shown one, with `...` for any text."""
    parts = [re.escape(squeezed(part)) for part in shown.split("...")]
    return (
        re.fullmatch(r"\s*" + ".*".join(parts) + r"\s*", squeezed(printed), re.DOTALL) is not None
    )


def squeezed(text: str) -> str:
    """Return the text without what differs between runs: times, widths of columns."""
    return re.sub(
        r"[ \t]+", " ", re.sub(r" +$", "", VARIABLE.sub("TIME", text), flags=re.MULTILINE)
    )


def main() -> None:
    page = sys.argv[1]
    terminal = Terminal()
    try:
        run_steps(page, terminal)
    finally:
        terminal.close()


def run_steps(page: str, terminal: Terminal) -> None:
    names = {"__name__": "__main__"}
    for kind, line, *step in json.load(sys.stdin):
        if kind == "python":
            # Empty lines in front make a traceback point into the page.
            exec(compile("\n" * (line - 1) + step[0], page, "exec"), names)
            sys.stdout.flush()
            continue
        command, shown = step
        code, printed = terminal.run(command)
        if code != 0:
            sys.exit(f"{page}:{line}: `{command}` left with exit code {code}:\n{printed}")
        if shown.strip() and not matches(shown, printed):
            sys.exit(f"{page}:{line}: `{command}` printed\n{printed}\nnot\n{shown}")


if __name__ == "__main__":
    main()
