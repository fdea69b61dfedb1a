"""Speed, memory and size against peers, each in one run, as ratios."""
