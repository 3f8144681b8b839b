"""A headless Chromium over the DevTools protocol's pipe: nothing to install besides the browser itself."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
_KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, "Enter": 13, "/": 191}


class Browser:
    """One tab. `problems` holds console errors and exceptions, `requests` what the page asked for."""

    def __init__(self, commands: int, answers: int):
        self._commands, self._answers = os.fdopen(commands, "wb", buffering=0), os.fdopen(answers, "rb", buffering=0)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def open(self, path: Path, fragment: str = "") -> None:
        self._send("Page.navigate", url="about:blank")
        self._send("Page.navigate", url=path.as_uri() + fragment)
        self.wait("document.readyState === 'complete' && document.querySelector('#main').dataset.ready !== undefined")

    def size(self, width: int, height: int) -> None:
        options = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **options)

    def scheme(self, name: str) -> None:
        self._send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}; {self.problems}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of the first such element."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{place}.scrollIntoView({{block: 'center'}})")
        box = json.loads(self.run(f"JSON.stringify({place}.getBoundingClientRect())"))
        middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, **middle, button="left", clickCount=1)

    def key(self, name: str) -> None:
        options = {"key": name, "code": name, "windowsVirtualKeyCode": _KEYS[name]}
        if name == "Enter":
            options["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, **options)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._send("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def close(self) -> None:
        self._session = None
        self._send("Browser.close")

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._answers.fileno(), 1 << 20)
            assert block, "the browser is gone"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: str | None, found: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(found["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(found["args"]))
        elif event == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.problems.append(found["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a fresh profile, ended with the block. It reads commands from descriptor 3 and answers on 4."""
    commands, answers = os.pipe(), os.pipe()
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands[0], answers[1])]
    log = os.open(profile.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
    places = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip([log, log, *theirs], (1, 2, 3, 4), strict=True)]
    arguments = [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    process = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=places)
    for end in (commands[0], answers[1], log, *theirs):
        os.close(end)
    try:
        browser = Browser(commands[1], answers[0])
        yield browser
        browser.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
