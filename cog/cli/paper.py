"""``cog paper``: what only the paper's comparison needs, its baselines and studies."""

from cog.cli.main import LazyCommands

command = LazyCommands(
    "paper",
    help="What the paper's comparison needs beside evaluations.",
    sections={
        "Commands": {
            "datastore": "What the baseline kNN-LM searches: build, info.",
            "retro": "The baseline RETRO: train.",
            "segment": "The phrases of a corpus that its other documents hold, too.",
            "study": "Studies over several evaluations: ablations, blind, domain, ...",
        }
    },
)
