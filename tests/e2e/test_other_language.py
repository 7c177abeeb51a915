"""Runs started by a NATS client in another language, which knows nothing of Fencepost."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fencepost.actors import App, Node, step, workflow
from fencepost.bus import JetStreamBus
from fencepost.world import SQLiteWorld

SCRIPT = Path(__file__).parent / "javascript"


@step
async def increase(number: int) -> int:
    return number + 1


@workflow
async def add(number: int) -> int:
    return await increase(number)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The script beside its one dependency, installed where nothing of ours lies."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js and npm are not installed: this test speaks to Fencepost from JavaScript")
    folder = tmp_path_factory.mktemp("javascript")
    shutil.copytree(SCRIPT, folder, dirs_exist_ok=True)
    command = [npm, "install", "--silent", "--no-audit", "--no-fund"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if installed.returncode:
        pytest.skip(f"npm could not install the NATS client for JavaScript: {installed.stderr[:200]}")
    return folder / "start.mjs"


@pytest.mark.timeout(180)
async def test_a_client_in_javascript_starts_runs_and_hears_of_them(program, nats, tmp_path):
    world = await SQLiteWorld.connect(tmp_path / "world.db")
    bus = JetStreamBus(nats.url, "javascript")
    await bus.open()

    async with Node(App("numbers", [add]), world, bus):
        script = await asyncio.create_subprocess_exec(
            "node", program, nats.url, "javascript", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(script.communicate(), 60)
    await bus.close()
    await world.close()

    assert script.returncode == 0, err.decode()
    said = json.loads(out)
    assert (said["asked"]["existing"], said["again"]["existing"]) == (False, True)
    assert said["asked"]["run_id"] == said["again"]["run_id"]
    assert said["refused"]["code"] == "InvalidInput"
    assert "valid integer" in said["refused"]["message"]
    assert (said["result"]["status"], said["result"]["result"]) == ("completed", 21)
    assert said["stream"] == "FP_javascript_START"
    assert said["published"]["run_id"] == said["publishedResult"]["run_id"]
    assert said["publishedResult"]["result"] == 22
