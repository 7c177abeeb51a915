"""The programs behind the golden histories. Never edit one: a changed program is a new one with a new history."""

import asyncio
import random
import time
import uuid

from fencepost.actors import hook, now, sleep, step, timeout, uuid4, workflow


class Declined(Exception):
    pass


@step
async def a(x: int = 0) -> int:
    return x + 1


@step
async def b(x: int = 0) -> int:
    return x + 2


@step
def c(x: int = 0) -> int:
    return x + 3


@workflow
async def sequence() -> int:
    return await c(await b(await a(1)))


@workflow
async def fan() -> list[int]:
    return await asyncio.gather(*(a(i) for i in range(4)), *(b(i) for i in range(2)))


@workflow
async def race() -> str:
    tasks = {asyncio.create_task(a(), name="a"), asyncio.create_task(b(), name="b")}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    name = done.pop().get_name()
    await (c(1) if name == "a" else a(9))
    return name


@workflow
async def deadlines() -> list[str]:
    seen = []
    async with timeout("1h"):
        await a()
    for patience in (0.5, 60):
        try:
            seen.append(str(await asyncio.wait_for(b(), patience)))
        except TimeoutError:
            seen.append("late")
    try:
        async with asyncio.timeout(5), asyncio.timeout(3600):
            await asyncio.gather(c(1), sleep("2d"))
    except TimeoutError:
        seen.append("outer")
    return seen


@workflow
async def as_they_come() -> list[int]:
    return [await found for found in asyncio.as_completed([a(i) for i in range(3)], timeout=600)]


@workflow
async def groups() -> str:
    found = "fine"
    try:
        async with asyncio.TaskGroup() as tg:
            tg.create_task(a(1))
            tg.create_task(b(2))
            tg.create_task(sleep(30))
    except* Declined as declined:
        await c(len(declined.exceptions))
        found = "declined"
    return found


@workflow
async def chances() -> list[str]:
    first = [str(random.random()), str(uuid.uuid4()), str(random.sample(range(50), 5)), str(uuid4())]
    await sleep(10)
    return [*first, str(time.time()), now().isoformat(), str(random.randint(0, 10**9))]


@workflow
async def careful() -> str:
    try:
        await a()
        await sleep("1d")
    finally:
        await asyncio.shield(b())
    return "not cancelled"


@workflow
async def talking() -> list[int]:
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock, ready = asyncio.Lock(), asyncio.Event()

    async def worker(number: int) -> None:
        await ready.wait()
        async with lock:
            await queue.put(await a(number))

    workers = [asyncio.create_task(worker(n)) for n in range(3)]
    await b()
    ready.set()
    await asyncio.gather(*workers)
    return [queue.get_nowait() for _ in range(3)]


@workflow
async def generators() -> list[int]:
    async def numbers():
        try:
            for number in range(5):
                yield await a(number)
        finally:
            await b()

    found = []
    async for number in numbers():
        found.append(number)
        if len(found) == 2:
            break
    found.append(await c())
    return found


@workflow
async def callbacks() -> str:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    async def later() -> None:
        await a()
        done.set_result("called back")

    loop.call_later(5, lambda: asyncio.ensure_future(later()))
    return await done


@workflow
async def signals() -> list[int | str]:
    """Hooks in every way: raced with a deadline, iterated beside steps, made anew, awaited by two, left over."""
    seen: list[int | str] = []
    words = hook("words", str)

    async def reader(name: str) -> None:
        async for word in words:
            seen.append(f"{name} {word}")
            seen.append(await a(len(seen)))
            if len(seen) > 4:
                words.dispose()

    async def raced(number: int) -> None:
        async with hook(f"raced/{number}", int) as inbox:
            try:
                async with timeout(60):
                    seen.append(await inbox)
            except TimeoutError:
                seen.append("late")
            await b(number)

    await asyncio.gather(reader("one"), reader("two"), *(raced(n) for n in range(3)))
    async with hook("words", int) as again, hook() as left_over:
        assert left_over.token.startswith("hook_")
        seen.append(await again)
    return seen
