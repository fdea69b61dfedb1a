"""``cog serve``: a project goes in, a page and an API on it are served until Ctrl-C."""

import logging
from collections.abc import Callable
from typing import Any

import click

from cog.cli.main import open_project
from cog.cli.numbers import make_type
from cog.cli.options import device_option
from cog.cli.output import tell
from cog.records import PRECISIONS
from cog.serve.settings import ServeSettings


def _limit(name: str, words: str) -> Callable[[Any], Any]:
    # an option for a number among the settings, with its range and default
    default = ServeSettings.__dataclass_fields__[name].default
    kind = make_type(ServeSettings, name)
    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, type=kind, default=default, show_default=True, help=words)


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
@_limit("batch_size", "Texts written together.")
@_limit("max_waiting", "Texts that may wait for a place.")
@_limit("max_indexes", "Indexes that stay open.")
@_limit("max_texts", "Texts of one request.")
@_limit("max_tokens", "Tokens of one text.")
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

    paths, params = open_project(ctx)
    params = set_precision(params, given.pop("precision"))
    device = given.pop("device")
    settings = ServeSettings(allowed_hosts=allow_host, has_prompts_in_log=log_prompts, **given)
    settings.check()
    if settings.is_open and not settings.api_key:
        tell(f"everybody who reaches {settings.host} is served, without a key")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("cog.serve").setLevel(logging.INFO)
    from cog.serve.run import serve

    serve(paths, params, settings=settings, device=device, say=tell)
