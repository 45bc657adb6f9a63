"""A headless Chromium driven over a pipe (the DevTools protocol), with the standard library alone."""
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

# As root a container gives it no sandbox of its own; what it renders here are pages of this project.
kFlags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync",
          "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"]


def find():
    """The path of a Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome", "chrome"])), None)


class Browser:
    """One page in one browser: with Browser(find()) as page: page.open("file:///...")."""

    def __init__(self, path, timeout=60):
        self.timeout, self.number, self.buffer, self.requests = timeout, 0, b"", []
        self.profile = tempfile.TemporaryDirectory(prefix="assay_browser_", ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()

        def descriptors():                       # the protocol is spoken on 3 and 4
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3), os.dup2(b, 4)

        self.process = subprocess.Popen([path, *kFlags, f"--user-data-dir={self.profile.name}", "about:blank"], preexec_fn=descriptors, close_fds=False, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in), os.close(theirs_out)
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.call("Page.enable"), self.call("Network.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.out), os.close(self.into)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.profile.cleanup()

    def _message(self, deadline):
        while b"\0" not in self.buffer:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the browser said nothing for {self.timeout} s")
            chunk = os.read(self.into, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def view(self, width, height=900, dark=False, media="screen"):
        """The window and what the page is told of it."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        """Loads a page to its end; `requests` then holds every address that was asked for."""
        self.requests.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + self.timeout
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") != url:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} is not loaded after {self.timeout} s")
            time.sleep(0.02)

    def evaluate(self, expression):
        """A JavaScript expression's value."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer["exceptionDetails"])))
        return answer["result"].get("value")

    def screenshot(self, path):
        """The whole page as PNG."""
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def pdf(self, path, dark=False):
        """On paper, without "background graphics", as a browser prints by default."""
        self.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]))
