"""Workflows that race payloads with timers and steps: other steps, and another number of them, for each way out."""

import asyncio

from fencepost import App, hook, sleep, step, step_info, timeout, workflow
from fencepost.errors import HookConflict

SAID: dict[str, list[str]] = {}
"""What each step body was called with, by the key of its operation. In this process only."""


@step
async def say(text: str) -> str:
    SAID.setdefault(step_info().idempotency_key, []).append(text)
    return text


@workflow
async def deadline(token: str, patience_s: float) -> list[str | int]:
    """Say what came before a deadline in three steps, or that nothing did in one."""
    async with hook(token, str) as box:
        try:
            async with timeout(patience_s):
                word = await box
        except TimeoutError:
            await sleep(0.001)
            return ["late", await say("refund")]
        return ["word", len(word), await say("ship"), await say("invoice"), await say("thank")]


@workflow
async def step_or_word(token: str) -> list[str | int]:
    """Say other things for a payload than for a step that ended first."""
    box = hook(token, str)
    word, done = asyncio.ensure_future(box), asyncio.ensure_future(say("begin"))
    first, pending = await asyncio.wait({word, done}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if first == {word}:
        return ["word", len(word.result()), await say("ship"), await say("invoice"), await say("thank")]
    await sleep(0.001)
    return ["step", len(first), await say("refund")]


@workflow
async def staggered(token: str, branches: int) -> list[list[str]]:
    """Launch, race a payload with a timer, finish; branch after branch, all under way at once."""

    async def branch(number: int) -> list[str]:
        await sleep(0.004 * number)
        launched = await say(f"launch {number}")
        found = "word"
        async with hook(f"{token}/{number}", str) as box:
            word, nap = asyncio.ensure_future(box), asyncio.ensure_future(sleep(0.04))
            done, pending = await asyncio.wait({word, nap}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            if word not in done:
                found = await say(f"late {number}")
                await sleep(0.002)
        return [launched, found, await say(f"finish {number}")]

    return list(await asyncio.gather(*(branch(number) for number in range(branches))))


@workflow
async def mapped(token: str, one: list[str], other: list[str]) -> dict[str, list[str]]:
    """Map one step over two lists in two branches, which a hook holds up now and then."""
    box = hook(token, str)

    async def over(words: list[str]) -> list[str]:
        found = []
        for number, word in enumerate(words):
            if number == len(words) // 2:
                await box
            found.append(await say(word))
        return found

    left, right = await asyncio.gather(over(one), over(other))
    return {"one": left, "other": right}


@workflow
async def again(token: str, times: int) -> list[str]:
    """Dispose a hook and make it again in the same breath."""
    read = []
    for _ in range(times):
        try:
            async with hook(token, str) as box:
                read.append(await box)
        except HookConflict as conflict:
            read.append(f"conflict with {conflict.owner}")
    return read


@workflow(cancel_grace="1h")
async def stubborn(token: str) -> None:
    """Wait for payloads, whatever happens."""
    box = hook(token, str)
    while True:
        try:
            await box
        except asyncio.CancelledError:
            continue


@workflow
async def patient(token: str) -> str:
    """Listen to a heartbeat until a deadline, which no beat moves."""
    beats, box = 0, hook(f"{token}/beat", str)
    answer = asyncio.ensure_future(hook(f"{token}/answer", str))
    try:
        async with timeout("10d"):
            while not answer.done():
                await box
                beats += 1
    except TimeoutError:
        return f"late after {beats} beats"
    return answer.result()


app = App("raced", [deadline, step_or_word, staggered, mapped, again, stubborn, patient])
