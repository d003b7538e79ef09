"""`python -m support.sender_packages [--write]`: see the package."""

import sys
import tempfile
from pathlib import Path

from support.sender_packages import main

with tempfile.TemporaryDirectory() as folder:
    sys.exit(main(Path(folder), newest="--write" in sys.argv))
