"""A headless Chromium that tests drive by the DevTools protocol, over a pair of pipes. Needs nothing but Python."""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"))), None)


class Browser:
    """One tab. Whatever the page logs as an error, or throws, is in `errors`."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="canopy_test_", ignore_cleanup_errors=True)  # its processes end late
        # The browser reads commands from descriptor 3 and writes to 4: neither may be one of the pipes' own ends.
        low = (*os.pipe(), *os.pipe())
        its_input, self.to, self.back, its_output = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
        for end in low:
            os.close(end)

        def connect():
            os.dup2(its_input, 3)
            os.dup2(its_output, 4)

        words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--no-first-run", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=connect, pass_fds=(3, 4))
        os.close(its_input)
        os.close(its_output)
        self.read, self.sent, self.errors, self.session = b"", 0, [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def receive(self, deadline):
        while b"\0" not in self.read:
            if not select.select([self.back], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            if not (more := os.read(self.back, 1 << 20)):
                raise AssertionError("the browser has ended")
            self.read += more
        message, _, self.read = self.read.partition(b"\0")
        return json.loads(message)

    def call(self, method, **params):
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while (got := self.receive(deadline)).get("id") != self.sent:
            self.note(got)
        if "error" in got:
            raise AssertionError(f"{method}: {got['error']}")
        return got["result"]

    def note(self, event):
        what, params = event.get("method"), event.get("params", {})
        if what == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        if what == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([arg.get("value", arg.get("description")) for arg in params["args"]]))
        if what == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def ask(self, script):
        """The value of this expression in the page."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise AssertionError(f"{script}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def until(self, script, within=60):
        """Waits until this expression is true in the page; its value."""
        deadline = time.monotonic() + within
        while not (value := self.ask(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within} s: {script}; the page says:\n{self.ask('document.body.innerText')}")
            time.sleep(0.05)
        return value

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.ask("window.old = true")
        self.call("Page.reload")
        self.until("!window.old && document.readyState === 'complete'")

    def window(self, width, height, scheme="light"):
        """As a phone where it is narrow."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def press(self, key, text="", shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowDown": 40}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path, whole=False):
        got = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(got["data"]))
