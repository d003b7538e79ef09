"""A machine with Python, its venv, git and nothing else: a root of Debian, and commands that run in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from support.postgres import unavailable
from support.processes import output_of, run_command

PACKAGES = ("python3", "python3-venv", "git", "ca-certificates")
USER = "newcomer"
HOME = Path("/home") / USER
USER_ID = 1000
FROM_THIS_MACHINE = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""How this machine finds the indexes of packages, and whom it trusts."""
KEPT = re.compile(r"PIP_\w+|\w+_proxy", re.IGNORECASE)
"""Those of its variables that say the same."""
MOUNTS = """
root=$1
shift
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""
PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BareRoot:
    """A root of one of Debian's suites. Its processes see their own /proc, and end with the command."""

    def __init__(self, folder: Path, suite: str) -> None:
        """Make it. Skips the test where that is not possible."""
        if shutil.which("mmdebstrap") is None:
            unavailable("no mmdebstrap, which makes a root of Debian: it is Debian's package of that name")
        if os.geteuid() != 0:
            unavailable("only root can make a root of Debian here and run commands in it")
        self.path = folder / suite
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        # Debian's next release has no date of its own: a mirror may be older than its lists are valid.
        valid = ['--aptopt=Acquire::Check-Valid-Until "false"'] if suite == "sid" else []
        self._call([*command, *valid, suite, str(self.path), *_mirror()])
        for name in FROM_THIS_MACHINE:
            if Path(name).exists():
                shutil.copy(name, self.path / name[1:])
        self.run(["useradd", "--create-home", "--uid", str(USER_ID), "--user-group", USER], 60)

    def add_python(self, version: str) -> None:
        """Put this machine's `python3.N` before Debian's. Skips the test where none can be copied."""
        program = shutil.which(f"python{version}")
        said = run_command([program, "-c", "import sys; print(sys.base_prefix)"]) if program else None
        if said is None or said.returncode or said.stdout.strip() in ("/usr", "/usr/local"):
            unavailable(f"no python{version} on PATH that has a folder of its own, to copy into Debian")
        for part in ("bin", "lib"):  # not its headers: the machine has no compiler
            source, target = Path(said.stdout.strip()) / part, self.path / "usr" / "local" / part
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        self.run(["ldconfig"], 60)

    def clone(self, source: Path, name: str) -> Path:
        """Give the user a clone of a checkout; its folder as seen in the root."""
        inside = HOME / name
        outside = self.path / inside.relative_to("/")
        self._call(["git", "clone", "--quiet", str(source), str(outside)])
        self._call(["chown", "--recursive", f"{USER_ID}:{USER_ID}", str(outside)])
        return inside

    def as_user(self, command: str, folder: Path, seconds: float) -> str:
        """Give what a shell command prints that a user without rights types there; raises if it fails."""
        ids = [f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]
        own = [f"HOME={HOME}", f"USER={USER}"]
        typed = ["sh", "-c", f'cd "{folder}" && {command}']
        return self.run(["setpriv", *ids, "env", *own, *typed], seconds)

    def run(self, command: list[str], seconds: float) -> str:
        """Give what a command of root's prints; raises AssertionError if it fails."""
        kept = [f"{name}={text}" for name, text in os.environ.items() if KEPT.fullmatch(name)]
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", MOUNTS, "sh"]
        clean = ["env", "-i", f"PATH={PLAIN_PATH}", "HOME=/root", "LANG=C.UTF-8", *kept]
        return self._call([*alone, str(self.path), *clean, *command], seconds)

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path)

    def _call(self, command: list[str], seconds: float = 600) -> str:
        return output_of(*command, timeout=seconds, stdin=subprocess.DEVNULL)


def _mirror() -> list[str]:
    """The mirror of Debian that this machine's apt uses, if it uses one."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    return run_command(asked).stdout.split()[:1]
