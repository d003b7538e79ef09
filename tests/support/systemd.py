"""Units of systemd: what it says of them, and their services as it would start them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from billhook.deployment.options_file import parse_options
from support.postgres import unavailable
from support.processes import run_command
from support.timeouts import scaled


def verify_units(units: Iterable[Path]) -> None:
    """Have systemd read units, and find nothing to say about them."""
    if shutil.which("systemd-analyze") is None:
        unavailable("no systemd-analyze: apt-get install systemd")
    done = run_command(["systemd-analyze", "verify", "--man=no", *units])
    assert (done.returncode, done.stderr) == (0, "")


def unit_settings(unit: Path) -> dict[str, str]:
    """Key and last value of each line."""
    return dict(re.findall(r"(?m)^([A-Za-z]+)=(.*)$", unit.read_text(encoding="utf-8")))


class NotifySocket:
    """Hears what is sent to NOTIFY_SOCKET; `environ` names it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()  # a short path: an address has 107 bytes
        self.environ = {"NOTIFY_SOCKET": f"{self._folder.name}/notify"}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(self.environ["NOTIFY_SOCKET"])

    def told(self, seconds: float | None = None) -> tuple[str, int] | None:
        """The next message, and who sent it; with `seconds` None if there is none for that long."""
        self._socket.settimeout(scaled(30) if seconds is None else seconds)
        try:
            message, ((_, _, credentials),), _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(12))
        except TimeoutError:
            if seconds is None:
                raise
            return None
        return message.decode(), struct.unpack("iii", credentials)[0]

    def next(self, seconds: float | None = None) -> str | None:
        """The next message."""
        found = self.told(seconds)
        return None if found is None else found[0]

    def close(self) -> None:
        self._socket.close()
        self._folder.cleanup()


class Service:
    """The service of a unit: its command, folder and options, in this account and without its confinement.

    `arguments` are added to its command. The service is of `Type=notify`, and is started when it says so.
    """

    def __init__(self, unit: Path, environment: Mapping[str, str], arguments: Iterable[str] = ()) -> None:
        self._settings = unit_settings(unit)
        self._environment = environment
        self._arguments = arguments
        self.log = unit.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it has."""
        options = parse_options(Path(self._settings["EnvironmentFile"]).read_text(encoding="utf-8"))
        assert self._settings["Type"] == "notify"
        with contextlib.closing(NotifySocket()) as notified, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._settings["ExecStart"].split(), *self._arguments],
                cwd=self._settings["WorkingDirectory"],
                env={**self._environment, **options, **notified.environ},
                stdout=log, stderr=log,
            )  # fmt: skip
            try:
                while "READY=1" not in notified.next():
                    pass
            except TimeoutError as error:
                error.add_note(self.log.read_text())
                raise

    def stop(self) -> None:
        """Stop it as `KillMode=mixed` does; it has to end in order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(scaled(15)) == 0, self.log.read_text()

    def reload(self) -> None:
        """Reload it as `ExecReload` does."""
        assert self._process is not None
        assert self._settings["ExecReload"] == "/bin/kill -s HUP $MAINPID"
        self._process.send_signal(signal.SIGHUP)

    def restart(self) -> None:
        """Stop it, and start it again."""
        self.stop()
        self.start()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End what a test that failed has left."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
            self._process.wait(scaled(30))
