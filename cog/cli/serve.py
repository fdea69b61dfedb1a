"""``cog serve``: a project goes in, a page and an API on it are served until Ctrl-C."""

import logging
from typing import Any

import click

from cog.cli.main import get_project
from cog.cli.options import device_option
from cog.params import load_params
from cog.records import PRECISIONS


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 for any that is free.",
)
@click.option("--api-key", default="", help="Key that every request must bring.")
@click.option("--no-auth", "is_open", is_flag=True, help="Serve everybody who reaches --host.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Name the server may be called by, too."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Texts written together.",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(0),
    default=128,
    show_default=True,
    help="Texts that may wait for a place.",
)
@click.option(
    "--max-indexes",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Indexes that stay open.",
)
@click.option(
    "--max-texts",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Texts of one request.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=2048,
    show_default=True,
    help="Tokens of one text.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds after which a request is given up.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Of the prefix encoder's matrices [default: auto, what is fast here].",
)
@device_option
@click.option("--log-prompts", is_flag=True, help="Write what is asked for to the log.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    allow_host: tuple[str, ...],
    log_prompts: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Serve a page and an API: OpenAI's completions, with the source of every copied phrase.

    On this machine only, unless --host says otherwise; that needs --api-key.
    """
    from cog.decoding.settings import set_precision
    from cog.serve.settings import ServeSettings

    paths = get_project(ctx)
    params = set_precision(load_params(paths.params), given.pop("precision"))
    device = given.pop("device")
    settings = ServeSettings(allowed_hosts=allow_host, has_prompts_in_log=log_prompts, **given)
    settings.check()
    if settings.is_open and not settings.api_key:
        click.echo(f"cog: everybody who reaches {settings.host} is served, without a key", err=True)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("cog.serve").setLevel(logging.INFO)
    from cog.serve.run import serve

    def say(line: str) -> None:
        click.echo(f"cog: {line}", err=True)

    serve(paths, params, settings=settings, device=device, say=say)
