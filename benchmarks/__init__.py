"""Speed, memory and size against peers, each in one run, as ratios."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch loads
