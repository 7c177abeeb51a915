"""What an answer is when its handler fails or says too much: the same on every bus."""

from __future__ import annotations

import asyncio
import logging

from .interface import OnRequest, Reply, Request
from .mailbox import cancelled

__all__ = ["answered", "too_large"]

log = logging.getLogger("fencepost.bus")


async def answered(handler: OnRequest, request: Request, body_bytes_max: int) -> Reply:
    """Return the handler's answer; its error becomes `internal`, without the text, which may hold a secret."""
    try:
        reply = await handler(request)
    except (Exception, asyncio.CancelledError):  # who asked waits for an answer, whatever ended the handler
        if cancelled():
            raise
        log.exception("the handler of %s failed", request.endpoint)
        return Reply(b"", "internal", "the node could not answer; its log says why")
    return too_large(reply, body_bytes_max)


def too_large(reply: Reply, body_bytes_max: int) -> Reply:
    """Return the reply, or the error `too_large` when it cannot be sent, so that who asked is not left waiting."""
    if len(reply.body) <= body_bytes_max:
        return reply
    return Reply(b"", "too_large", f"the answer has {len(reply.body):,} bytes, over the limit of {body_bytes_max:,}")
