"""``cog paper study``: what takes more than one evaluation; each study has a file of its own."""

from cog.cli.main import LazyCommands

command = LazyCommands(
    "study",
    help="Studies over several evaluations.",
    sections={
        "Commands": {
            "ablations": "What each part of CoG is worth.",
            "blind": "Sheets for people who judge two systems: export, import.",
            "domain": "Every corpus on the held-out prompts of every corpus.",
            "index-size": "Nested parts of a corpus on the same prompts.",
            "table": "A table of the paper with figures of one's own.",
        }
    },
    modules="cog.cli.study_",
    moved={"paper": "table"},
)
