"""The command `gateway`, with its arguments and help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Dir, Json, Namespace, Url, Verbose  # noqa: TC001  (typer reads the annotations)

__all__ = ["gateway_command"]


def gateway_command(
    *,
    host: Annotated[str, typer.Option("--host", help="The address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for a free one.")] = 8080,
    rate: Annotated[
        str,
        typer.Option(
            "--rate", help="How often one address may post, and one token be posted to: 50/s, 100/minute, none."
        ),
    ] = "100/s",
    max_body: Annotated[str, typer.Option("--max-body", help="The largest body: 65536, 512KiB.")] = "1MiB",
    reply_timeout: Annotated[
        str, typer.Option("--reply-timeout", help="How long a caller waits for a step's reply before it is told 202.")
    ] = "30s",
    trusted: Annotated[
        str,
        typer.Option(
            "--trust-forwarded",
            metavar="PROXIES",
            help="Believe X-Forwarded-For of these: addresses or networks with commas between, or * for anybody.",
            show_default=False,
        ),
    ] = "",
    url: Url = None,
    namespace: Namespace = None,
    folder: Dir = None,
    json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Take deliveries to hooks over HTTP: POST /hooks/TOKEN. Any number of them may run; they keep nothing.

    Needs pip install "fencepost[gateway]". SIGTERM lets callers be answered, and ends with exit code 0. TLS is for a
    proxy before it, named by --trust-forwarded.
    """
    from .connecting import where  # noqa: PLC0415  (heavy)
    from .gateway import Asked, gateway  # noqa: PLC0415

    asked = Asked(host, port, rate, max_body, reply_timeout, trusted, json, verbose)
    return gateway(asked, where(url, namespace, folder))
