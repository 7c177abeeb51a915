"""What happens: runs, steps, timers, and how messages come in. Knows the world and the bus, and nobody else."""

from __future__ import annotations

from .app import App
from .author import RunInfo, now, random, run_info, sleep, timeout, uuid4
from .define import Step, Workflow, step, workflow
from .errors import (
    DefinitionError,
    FatalError,
    FencepostError,
    HookConflict,
    HookDisposed,
    InvalidInput,
    NondeterminismError,
    RetryAfter,
    SerializationError,
    StepFailed,
    StepLost,
    StepTimeout,
)
from .executor import StepInfo, step_info
from .hooks import Hook, hook, webhook
from .lint import NondeterminismWarning
from .node import Node, NodeSettings
from .retry import Retry
from .webhooks import Reply, Webhook, reply

__all__ = [
    "App",
    "DefinitionError",
    "FatalError",
    "FencepostError",
    "Hook",
    "HookConflict",
    "HookDisposed",
    "InvalidInput",
    "Node",
    "NodeSettings",
    "NondeterminismError",
    "NondeterminismWarning",
    "Reply",
    "Retry",
    "RetryAfter",
    "RunInfo",
    "SerializationError",
    "Step",
    "StepFailed",
    "StepInfo",
    "StepLost",
    "StepTimeout",
    "Webhook",
    "Workflow",
    "hook",
    "now",
    "random",
    "reply",
    "run_info",
    "sleep",
    "step",
    "step_info",
    "timeout",
    "uuid4",
    "webhook",
    "workflow",
]
