"""Entry point: words go in, an exit code comes out; commands are imported only when used."""

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from cog.errors import CogError, ProjectError
from cog.extras import explain_missing
from cog.paths import ProjectPaths, find_project, settle_torch
from cog.version import __version__

if TYPE_CHECKING:
    from cog.params import Params

# what each command does, in the order in which a project needs them; modules have the same names
SECTIONS = {
    "Project": {
        "init": "Make a project of a folder.",
        "demo": "Build two small corpora and write with each of them.",
        "status": "What is active, and whether it is intact.",
        "params": "The settings of the project: what differs from its default, or all.",
        "doctor": "What is wrong with the project, and the command that mends it.",
        "upgrade": "Bring a project of an older version to the installed one.",
    },
    "Corpora": {
        "corpus": "Cards, documents, versions: list, show, add, remove, stats, diff, ...",
        "index": "The phrase index of a corpus: build, plan, info, verify, ...",
        "switch": "Make a corpus and its index the active one, atomically.",
        "rollback": "Go back to what was active before the last switch.",
        "history": "Who switched on what when.",
    },
    "Texts": {
        "generate": "Write cited text with the active corpus, or with --corpus.",
        "cite": "The sources of texts as a list, with what their licences ask.",
        "serve": "A page and an API that OpenAI clients speak, on this machine.",
        "tune": "Choose the decoding settings that suit an index best.",
    },
    "Measuring and training": {
        "evaluate": "Score texts under one pinned protocol, and log them to MLflow.",
        "compare": "Scores of evaluated corpora side by side: table, plot, page.",
        "train": "Train a model on text files or a corpus, resume a run.",
        "paper": "What the paper's comparison needs: baselines, studies, phrases.",
    },
}
MOVED = {name: f"paper {name}" for name in ("datastore", "retro", "segment", "study")}


class LazyCommands(click.Group):
    """A group whose commands live in modules of their own, imported on use."""

    def __init__(
        self,
        *words: Any,  # noqa: ANN401
        sections: dict[str, dict[str, str]],
        modules: str = "cog.cli.",
        moved: dict[str, str] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*words, **settings)
        self.sections = sections  # what each command does, by heading and command
        self.modules = modules  # what the name of a module begins with
        self.moved = moved or {}  # what commands of the version before are called now

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, in the order of the help."""
        return [name for section in self.sections.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{self.modules}{cmd_name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find what is called, by its old name, too, and say its new one."""
        if args and args[0] in self.moved:
            old, new = f"{ctx.command_path} {args[0]}", self.moved[args[0]]
            click.echo(
                f"cog: {old} is now {ctx.command_path} {new}; the next version knows the new name "
                f"only",
                err=True,
            )
            args = [*new.split(), *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))


@click.group(
    cls=LazyCommands,
    sections=SECTIONS,
    moved=MOVED,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="cog")
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current folder or the nearest above it",
    help="Folder of the project.",
)
@click.pass_context
def cli(ctx: click.Context, project: Path) -> None:
    """Domain adaptation of text generation without training: switch the corpus, keep the model."""
    ctx.obj = project


def get_project(ctx: click.Context) -> ProjectPaths:
    """The project that --project, or the current folder, points to; of this version of cog."""
    from cog.pipeline_file import load_pipeline  # YAML is not needed for --help

    paths = find_root(ctx)
    load_pipeline(paths)
    return paths


def find_root(ctx: click.Context) -> ProjectPaths:
    """The project, of whatever version."""
    paths = find_project(ctx.find_object(Path) or Path())
    if "?" in str(paths.root.resolve()):
        raise ProjectError(
            "the path of a project must have no '?', where LanceDB ends a path",
            found=str(paths.root.resolve()),
            run="move or rename that folder",
        )
    return paths


def get_project_of(ctx: click.Context, corpus_id: str) -> ProjectPaths:
    """The project, in which a corpus must have a card."""
    from cog.registry import load_card  # YAML is not needed for --help

    paths = get_project(ctx)
    load_card(paths, corpus_id)
    return paths


def open_project(ctx: click.Context, corpus_id: str | None = None) -> "tuple[ProjectPaths, Params]":
    """The project and its params.yaml; the corpus, if one is named, must have a card."""
    from cog.params import load_params  # YAML is not needed for --help

    paths = get_project(ctx) if corpus_id is None else get_project_of(ctx, corpus_id)
    return paths, load_params(paths.params)


def open_stage(ctx: click.Context) -> "tuple[ProjectPaths, Params, str]":
    """The project, its params.yaml and the corpus of a command that runs as a stage.

    params.yaml has the settings of a stage, options none.
    """
    allowed = ("corpus_id", "is_stage")
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in allowed and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--stage goes with --corpus only, not with {parameter.opts[0]}")
    corpus_id = ctx.params["corpus_id"]
    if corpus_id is None:
        raise click.UsageError("--stage goes with --corpus ID")
    return *open_project(ctx, corpus_id), corpus_id


def main() -> None:
    """Run the command line and turn stated failures into one line and exit 1."""
    settle_torch()
    _keep_stdout_for_results()
    try:
        cli.main(standalone_mode=False)
    except ModuleNotFoundError as error:
        missing = explain_missing(error)
        if missing is None:
            raise
        _fail(str(missing))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("cog: stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except PermissionError as error:
        named = error.filename or "a file of the project"
        _fail(
            f"{named} must be readable and writable; found: {error.strerror}; next: have its "
            f"owner run chmod -R g+rwX on its folder, or work in a copy of the project"
        )
    except (CogError, OSError) as error:  # a full disk, a file that is gone
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    click.echo(f"cog: {message}", err=True)
    sys.exit(1)


def _keep_stdout_for_results() -> None:
    # Libraries print by themselves (FAISS, when it maps lists): that goes to stderr, by descriptor.
    with contextlib.suppress(OSError):  # one of them is closed
        results = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(results, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


if __name__ == "__main__":
    main()
