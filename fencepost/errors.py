"""Every error a user can meet, in one tree. What it is about are attributes; nobody reads message texts.

FencepostError
├── at the client
│   ├── RunNotFound(run_id)                  no run and no chain has this id
│   ├── RunExists(id)                        the id belongs to a run that was started with other input
│   ├── RunFailed(run_id, code, cause)       code: user_error, max_events, timeout, node_lost, internal
│   ├── RunCancelled(run_id, reason)
│   ├── RunTerminated(run_id, reason)
│   ├── InvalidInput                         what was sent does not fit; nothing was started
│   ├── ValueTooLarge(size_bytes, limit_bytes)
│   ├── WorkflowUnknown(workflow)
│   ├── Unavailable                          no NATS server, no node, or a store that cannot answer or be used
│   └── RequestRefused(code)                 the node refused or failed in a way that has no type of its own
├── before anything runs
│   ├── SettingsError(problems)              an unknown or wrong setting
│   ├── LoadError(target)                    the target holds nothing to run, or its code does not load
│   └── DefinitionError                      a decorator or App used in a way that cannot work
└── in workflows and steps
    ├── StepFailed(cause, attempts)          the base of what could not be rebuilt as its own type
    │   ├── StepTimeout
    │   └── StepLost
    ├── NondeterminismError, SerializationError, LifespanError
    └── FatalError, RetryAfter(delay)        raised *by* steps

WorldError                                   what the store itself says, to nodes and to tests of stores
├── Superseded, StaleLog(between), ClaimLost(ops), RunEnded(status), Taken(op)
└── UnknownEvent(kind)
"""

from __future__ import annotations

from fencepost.actors.errors import (
    DefinitionError,
    FatalError,
    FencepostError,
    InvalidInput,
    LifespanError,
    NondeterminismError,
    RetryAfter,
    SerializationError,
    StepFailed,
    StepLost,
    StepTimeout,
)
