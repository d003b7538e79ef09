"""The recipes of examples/senders/README.md, run word for word as the reader puts them together."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from billhook import Source
from billhook.events.base import _registered
from billhook.extension import get_state
from support.pages import PAGES
from support.sender_packages import Recording, read
from support.templates import new_inbox

PAGE = PAGES["examples/senders/README.md"]
BLOCKS = dict(re.findall(r"<!-- recipe: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
"""The code of the page by name: that of each sender, and these."""
BEGIN, END, CHALLENGE = "begin", "end", "slack_challenge"
RECORDINGS = read()


def code(*blocks: str) -> str:
    """The file of these blocks; without any, of all."""
    return "\n\n".join(BLOCKS[name] for name in blocks or (BEGIN, *RECORDINGS, END, CHALLENGE))


@contextmanager
def receiver(folder: Path, *senders: str) -> Iterator[ModuleType]:
    """`receiver.py` with these recipes; its inbox is in `folder`, and its secrets are the recordings'."""
    new_inbox(url := f"sqlite:///{folder / 'billhook.db'}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BILLHOOK_INBOX_URL", url)
        patch.setenv("BILLHOOK_ENGINE", "worker")
        with executed(BEGIN, *senders, END, CHALLENGE) as module:
            yield module
            get_state(module.app).close()  # hints of other tests would name this app


@contextmanager
def executed(*blocks: str) -> Iterator[ModuleType]:
    """A module of these blocks; its event types end with it."""
    before, module = set(_registered), ModuleType("receiver")
    with pytest.MonkeyPatch.context() as patch:
        for name in RECORDINGS.keys() & set(blocks):
            patch.setenv(*secret_variable(RECORDINGS[name]))
        patch.setitem(sys.modules, module.__name__, module)
        try:
            exec(code(*blocks), vars(module))
            yield module
        finally:
            for name in set(_registered) - before:
                del _registered[name]


def secret_variable(one: Recording) -> tuple[str, str]:
    """The environment variable in which a recipe expects its secret, and the secret of the recording."""
    (variable,) = re.findall(r'os\.environ\["(\w+)"\]', BLOCKS[one.name])
    return variable, one.secret


with executed(BEGIN, *RECORDINGS) as _module:
    SOURCES: dict[str, Source] = {source.name: source for source in _module.sources}
    """The source of each recipe."""
