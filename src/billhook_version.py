"""The version of a build: that of the release and its commit, so that pip knows one commit from another.

    0.1.0.post20261129063746+g759b899d9f   a commit of 2026-11-29 06:37:46 UTC: above 0.1.0 and older commits
    0.1.0+unknown                        a copy without its git history

BILLHOOK_BUILD_VERSION sets it for a build that has no history, as that of an image: what this prints in the
checkout. hatchling reads it when billhook is built; an installed billhook has it in its metadata.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

RELEASE = "0.1.0"
FOLDER = Path(__file__).resolve().parents[1]
# The checkout may be of another owner than the one who installs, which git refuses. A shallow clone knows no
# number of commits, so the time of the commit takes its place.
GIT = ("git", "-c", "safe.directory=*", "-C", str(FOLDER), "log", "-1")
FORMAT = ("--abbrev=10", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd+g%h")


def version() -> str:
    """Return the version of this folder's billhook."""
    given = os.environ.get("BILLHOOK_BUILD_VERSION")
    if given:
        return given
    # Not a repository around it, in which this folder is a copy. A worktree has a file there.
    if (FOLDER / ".git").exists():
        environ = {**os.environ, "TZ": "UTC"}
        try:
            found = subprocess.run((*GIT, *FORMAT), capture_output=True, text=True, env=environ, check=True)
        except (OSError, subprocess.SubprocessError):
            return f"{RELEASE}+unknown"
        return f"{RELEASE}.post{found.stdout.strip()}"
    return f"{RELEASE}+unknown"


if __name__ == "__main__":
    print(version())
