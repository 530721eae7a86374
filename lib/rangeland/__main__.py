"""``python -m rangeland``: the same as the command ``rangeland``."""

import sys

from rangeland.cli.command_line import main

sys.exit(main())
