"""What travels: bells, offerings, start messages, questions and answers. See `interface.Bus` for the contract."""

from __future__ import annotations

from .errors import BusError, BusUnusable, NoResponder, PayloadTooLarge, Unreachable
from .inprocess import InProcessBus
from .interface import (
    Again,
    Bell,
    Bus,
    Offering,
    OnBell,
    OnOffering,
    OnRequest,
    OnStart,
    Reply,
    Request,
    StartMessage,
    Steps,
    Subscription,
)
from .jetstream import JetStreamBus
from .nats_server import NatsServer

__all__ = [
    "Again",
    "Bell",
    "Bus",
    "BusError",
    "BusUnusable",
    "InProcessBus",
    "JetStreamBus",
    "NatsServer",
    "NoResponder",
    "Offering",
    "OnBell",
    "OnOffering",
    "OnRequest",
    "OnStart",
    "PayloadTooLarge",
    "Reply",
    "Request",
    "StartMessage",
    "Steps",
    "Subscription",
    "Unreachable",
]
