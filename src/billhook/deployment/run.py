"""Run a command with the options of the services: `python -m billhook.deployment.run`, in the account's name.

The wrapper `NAME-billhook` has become the account before it starts this.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path

from billhook.deployment.options_file import parse_options


def main(arguments: Sequence[str]) -> str:
    """Replace this process by the command; return what is wrong if it cannot be."""
    match arguments:
        case ["--options", file, "--folder", folder, "--", program, *rest]:
            pass
        case _:
            return "usage: python -m billhook.deployment.run --options FILE --folder FOLDER -- PROGRAM..."
    account = pwd.getpwuid(os.getuid())
    try:
        options = parse_options(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return (
            f"the options in {file} cannot be read by {account.pw_name}: {why}; as root: "
            f"chgrp {account.pw_name} {file} && chmod 0640 {file}"
        )
    given = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    environ = {**os.environ, **given, **options}
    try:
        os.chdir(folder)
        os.execve(program, [program, *rest], environ)  # noqa: S606 - no shell is wanted
    except OSError as error:
        return f"{program} cannot be started in {folder}: {error.strerror}"


if __name__ == "__main__":
    if problem := main(sys.argv[1:]):
        sys.stderr.write(f"Error: {problem}\n")
        sys.exit(2)
