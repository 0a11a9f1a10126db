"""What the tests share: a client that writes down what it asked, an agent to
talk to, and a server of one's own that can be killed."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

import httpx
from letta_client import APIStatusError, Letta

HTTP_URL = os.environ["MNEME_HTTP_URL"]
MODEL = os.environ["MNEME_MODEL"]
PATIENCE = 30.0  # seconds for anything that is waited for

NOBODY = {
    kind: f"{kind}-00000000-0000-4000-8000-000000000000"
    for kind in ("agent", "conv", "message", "run", "step", "block")
}


def record(response):
    """Writes a line per call, for the count of covered endpoints."""
    request = response.request
    if calls := os.environ.get("MNEME_CALLS"):
        with open(calls, "a", encoding="utf-8") as file:
            file.write(f"{request.method} {request.url.raw_path.decode().split('?')[0]} {response.status_code}\n")


def connect(url=HTTP_URL, **options):
    """The official client. It does not retry unless options say so."""
    http = httpx.Client(event_hooks={"response": [record]}, timeout=PATIENCE)
    return Letta(**{"base_url": url, "api_key": None, "max_retries": 0, "timeout": PATIENCE, "http_client": http} | options)


def user(content, **more):
    return {"role": "user", "content": content} | more


def calls(*steps, last="ECHO_LAST_TOOL_RESULT"):
    """A script for the model: one call after the other, then a text."""
    return "\n".join([("THEN " if i else "") + f"CALL {name} {json.dumps(args)}" for i, (name, args) in enumerate(steps)] + [f"THEN {last}"])


def kinds(items):
    return [m.message_type for m in items]


def of(items, kind):
    return [m for m in items if m.message_type == kind]


def text(items):
    return "".join(m.content for m in of(items, "assistant_message"))


def numbered(n):
    return " ".join(f"t{i}" for i in range(n))


def until(what, holds):
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := holds():
            return value
        time.sleep(0.025)
    raise AssertionError(f"{what} did not come within {PATIENCE} s")


class Case(unittest.TestCase):
    """A test with a client on the server that all tests share."""

    @classmethod
    def setUpClass(cls):
        cls.client = connect()
        cls.addClassCleanup(cls.client.close)

    def agent(self, client=None, **fields):
        """An agent on the scripted model without tools or memory, unless fields say so."""
        defaults = {"name": f"agent {uuid.uuid4()}", "model": MODEL, "include_base_tools": False}
        return (client or self.client).agents.create(**defaults | fields)

    def conversation(self, **fields):
        return self.client.conversations.create(agent_id=self.agent(**fields).id)

    def say(self, agent, content, **more):
        return self.client.agents.messages.create(agent.id, messages=[user(content)], **more)

    def refused(self, status, pattern, call, *args, **kwargs):
        """Demands that the call is refused like this; returns the error."""
        with self.assertRaises(APIStatusError) as caught:
            answer = call(*args, **kwargs)
            if hasattr(answer, "response"):
                list(answer)  # a stream
        self.assertEqual(caught.exception.status_code, status, caught.exception.message)
        self.assertRegex(str(caught.exception), pattern)
        return caught.exception

    def ended(self, run, client=None):
        def look():
            now = (client or self.client).runs.retrieve(run)
            return now if now.status in ("completed", "failed", "cancelled") else None

        return until(f"the end of {run}", look)


class Server:
    """A server of one's own, to be killed and started again on its state."""

    def __init__(self, case):
        self.home = tempfile.mkdtemp(dir=os.environ["MNEME_WORKSPACE"])
        self.port = 0
        self.child = None
        case.addCleanup(self.kill)
        subprocess.run(self._command("connect", "lmstudio", "--base-url", os.environ["MNEME_MODEL_URL"]), env=self._env(), cwd=self.home, check=True, stdout=subprocess.DEVNULL)
        self.start()

    def _command(self, *args):
        return [os.environ["MNEME_BIN"], *args]

    def _env(self):
        return {"PATH": os.environ["PATH"], "HOME": self.home, "MNEME_HOME": os.path.join(self.home, ".mneme")}

    def start(self):
        """Starts it, on the port it had before if there was one."""
        self.child = subprocess.Popen(
            self._command("server", "--listen", f"ws://127.0.0.1:{self.port}", "--rest"),
            env=self._env(), cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for line in self.child.stdout:
            if line.startswith("WebSocket: "):
                self.port = int(line.split(":")[-1].split("/")[0])
                self.url = f"http://127.0.0.1:{self.port}"
                return
        raise AssertionError(f"the server ended with {self.child.wait()} before it was ready")

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.child.stdout.close()
