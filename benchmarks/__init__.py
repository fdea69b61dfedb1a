"""Speed, memory and size against peers, each in one run, as ratios."""

from cog.paths import settle_torch

settle_torch()  # as the command line does, before torch loads
