"""Files are made by `file_modes`, which no planted link or file misleads; other ways are listed."""

from __future__ import annotations

import re
from pathlib import Path

import billhook

SOURCE = Path(billhook.__file__).parent
MAKES = re.compile(r"O_CREAT|\.write_(?:text|bytes)\(|\.open\(\"[wax]|\bopen\([^)\n]*, \"[wax]|\.touch\(")
OTHERS = {
    "cli/demo.py": "in its own temporary folder",
    "cli/demo_handlers.py": "in the same folder",
    "supervising/heartbeat.py": "others may read it; O_NOFOLLOW",
    "cli/output.py": "the null device",
    "inbox/sqlite/file.py": "the inbox, which may be named by a link",
    "notify/outage.py": "it looks at the owner and the kind of the file too; O_NOFOLLOW",
    "sandbox/storage/database.py": "the sandbox's file, made exclusively, by its resolved path",
}


def test_every_module_that_makes_files_does_so_by_file_modes_or_is_listed():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if MAKES.search(path.read_text(encoding="utf-8"))
    }

    assert found - {"basics/file_modes.py"} == set(OTHERS)
