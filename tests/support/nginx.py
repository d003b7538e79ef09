"""nginx with a site of deploy/, and a certificate made for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.certificates import certificate
from support.examples import answers
from support.postgres import unavailable
from support.processes import logged, run_command

HOST = "hooks.example.com"
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class Nginx:
    """A site in a folder of its own; the text is that of deploy/nginx.conf, perhaps with other ports."""

    def __init__(self, folder: Path, site: str) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            unavailable("no nginx: apt-get install nginx")
        folder.mkdir()
        self._log = folder / "log"
        certificate(folder)
        for name, made in (("fullchain", "ca"), ("privkey", "key")):
            site = site.replace(f"/etc/ssl/billhook/{name}.pem", str(folder / f"{made}.pem"))
        (folder / "site.conf").write_text(site)
        temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in FOLDERS)
        account = "user root root;" if os.geteuid() == 0 else ""  # whom a test's folder belongs to
        (folder / "nginx.conf").write_text(
            f"pid {folder}/pid; error_log stderr; daemon off; worker_processes 1; {account} events {{}}"
            f" http {{ access_log off; {temporary} include {folder}/site.conf; }}"
        )
        self._command = [program, "-q", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self.trust = ssl.create_default_context(cafile=folder / "ca.pem")

    def check(self) -> subprocess.CompletedProcess[str]:
        """What nginx says of the site."""
        return run_command([self._command[0], "-t", *self._command[1:]])

    @contextlib.contextmanager
    def running(self, port: int) -> Iterator[None]:
        """Serve until the block ends; `port` is one on which the site listens."""
        with logged([self._command[0], *self._command[2:]], self._log, ready=lambda: answers(port)):
            yield
