"""``python -m rangeland``: the same as the command ``rangeland``."""

import sys

from rangeland.cli import main

sys.exit(main())
