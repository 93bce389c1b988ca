# SPDX-License-Identifier: Apache-2.0
"""A real browser: Debian's chromium, headless, by its driver and the WebDriver protocol (W3C), over HTTP."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import tempfile

from broker import skip
from runner import check, until
from slowness import Popen, scaled

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Shift": "\ue008", "End": "\ue010", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowUp": "\ue013",
        "ArrowRight": "\ue014", "ArrowDown": "\ue015", "PageDown": "\ue00f", " ": " "}


class Browser:
    def __init__(self, dark=False, size=(1400, 900)):
        for name in ("chromium", "chromedriver"):
            if not shutil.which(name):
                skip(f"there is no {name}: deploy/setup --dev installs it")
        self.dark, self.size = dark, size

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="stockade-browser-")
        self.log = os.path.join(self.folder, "log")
        with open(self.log, "wb") as log:
            self.driver = Popen(["chromedriver", "--port=0"], stdout=log, stderr=log, start_new_session=True, env=dict(os.environ, HOME=self.folder, TMPDIR=self.folder))
        try:
            self.port = int(until(lambda: re.search(r"successfully on port (\d+)", self.read_log()), self.read_log)[1])
            arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                         "--disable-background-networking", "--disable-component-update", f"--window-size={self.size[0]},{self.size[1]}",
                         f"--user-data-dir={self.folder}/profile", "--lang=en-US", "--force-color-profile=srgb",
                         "--blink-settings=preferredColorScheme=" + ("0" if self.dark else "1")]
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments},
                      "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"script": int(scaled(60)) * 1000}}
            self.session = self.request("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        except BaseException:
            self.end()
            raise
        return self

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def end(self):
        """The driver has a process group of its own, in which the browser is."""
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.driver.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __exit__(self, *_):
        try:
            self.request("DELETE", f"/session/{self.session}")
        finally:
            self.end()

    def request(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=scaled(120))
        try:
            c.request(method, path, json.dumps(body if body is not None else {}) if method == "POST" else None, {"Content-Type": "application/json"})
            value = json.loads(c.getresponse().read())["value"]
        finally:
            c.close()
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{path}: {value['error']}: {value['message']}")
        return value

    def do(self, method, path, body=None):
        return self.request(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self.do("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value of a function's body in the page."""
        return self.do("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, *args):
        """The same, of a body with `await`, which returns."""
        return self.do("POST", "/execute/async", {"script": "const done = arguments[arguments.length - 1]; const args = arguments;"
                                                            f"(async () => {{ {script} }})().then(done, (e) => done('failed: ' + e));", "args": list(args)})

    def until(self, script, what, *args, seconds=30):
        return until(lambda: self.run(script, *args), lambda: f"{what}: {self.text()[:3000]}", seconds)

    def text(self, selector="body"):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def find(self, selector):
        return self.do("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.do("POST", f"/element/{self.find(selector)}/click")

    def click_text(self, selector, text):
        """Clicks the element whose text begins so, as a user would."""
        found = self.run("return [...document.querySelectorAll(arguments[0])].find((e) => e.innerText.trim().startsWith(arguments[1]))", selector, text)
        check(found, f"{selector} with the text {text}: {self.text()[:2000]}")
        self.do("POST", f"/element/{found[ELEMENT]}/click")

    def type(self, selector, text):
        self.do("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys):
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.do("GET", "/screenshot")))

    def complaints(self):
        """What the console says: errors, and what the policy of the page has refused."""
        return [e["message"] for e in self.do("POST", "/se/log", {"type": "browser"}) if e["level"] in ("SEVERE", "WARNING")]
