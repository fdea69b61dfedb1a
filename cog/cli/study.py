"""``cog study``: what takes more than one evaluation; each study has a file of its own."""

import click

from cog.cli.study_ablations import ablations
from cog.cli.study_blind import command as blind
from cog.cli.study_paper import paper
from cog.cli.study_runs import domain, index_size


@click.group("study")
def command() -> None:
    """Studies over several evaluations."""


command.add_command(ablations)
command.add_command(blind)
command.add_command(domain)
command.add_command(index_size)
command.add_command(paper)
