# SPDX-License-Identifier: Apache-2.0
"""What a person does with the dashboard's page, for flow.dashboard_page: gives credentials, opens views, looks, keeps pictures."""

import os
import tempfile

from broker import BUILD
from runner import check

SANDBOX = "/stockade.v1.SandboxService/"
PICTURES = os.path.join(BUILD or tempfile.gettempdir(), "dashboard")
ON = {}  # the page, its broker, and credentials


def key_of(who):
    return {"authorization": f"Bearer {ON[who]}"}


def begin_again():
    """After a case that failed."""
    picture("failed")
    ON["page"].open("about:blank")
    ON["page"].open(ON["url"])
    ON["page"].run("sessionStorage.clear(); location.reload()")


def go(view):
    p = ON["page"]
    p.run("location.hash = arguments[0]", f"#/{view}")
    p.until("return document.getElementById('main').dataset.view === arguments[0]", view, view.split("/")[0])


def is_live():
    return ON["page"].until("return document.getElementById('connection').dataset.state === 'live'", "the page is live")


def picture(name):
    ON["page"].picture(os.path.join(PICTURES, f"{name}.png"))


def both_pictures(name):
    """Light and dark."""
    picture(f"{name}-light")
    ON["page"].click("#theme")
    check(ON["page"].run("return document.documentElement.dataset.theme") == "dark", "dark")
    picture(f"{name}-dark")
    ON["page"].click("#theme")


def use(credential):
    """As a user gives one; none: forgets it."""
    p = ON["page"]
    if p.text("#credential").startswith("Forget"):
        p.click("#credential")
    if not credential:
        return
    p.click("#credential")
    p.type("dialog input", credential)
    p.click("dialog button[type=submit]")
    p.until("return document.querySelector('dialog') === null", "the dialog is closed")


def create(c, name, who="owner", **fields):
    return c.unary(SANDBOX + "Create", {"name": name, **fields}, key_of(who)).sandbox


def delete(c, box, who="owner"):
    c.unary(SANDBOX + "Delete", {"id": box.id}, key_of(who))


def shown(text):
    return ON["page"].until("return document.getElementById('main').innerText.includes(arguments[0])", f"shows {text}", text)
