"""Measure Fencepost, in one command: `python bench/run.py`; `--help` says what can be left out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.command import main

if __name__ == "__main__":
    sys.exit(main())
