"""One HTML file from its parts: template, styles, script and data, with nothing to be fetched.

The policy in its head lets a browser run the one script and the one style sheet that belong to it,
by their hashes, and fetch nothing at all. Data is foreign: it is JSON in which no character can end
the element that it stands in, and the script puts it into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fuzz.options import Unusable

# What could end a script element, or be a line's end to one parser and none to another.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


#: the scripts of each kind of page, in order
SCRIPTS = {"trace": ("common", "frames", "trace"), "report": ("common", "charts", "report")}


def page(kind: str, title: str, data: Mapping[str, Any]) -> str:
    """The page of a kind, `trace` or `report`, that shows the data."""
    style = "\n" + "".join(_part(name, "css") for name in ("common", kind))
    script = "\n" + "".join(_part(name, "js") for name in SCRIPTS[kind])
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}';"
        f" script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    return _part("skeleton", "html").format(
        policy=policy,
        # a foreign name may hold half a character, which no file can
        title=html.escape(title.encode(errors="replace").decode()),
        style=style,
        body=_part(kind, "html").strip(),
        data=embedded(data),
        script=script,
    )


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, separators=(",", ":")).translate(_ESCAPES)


def write(text: str, path: Path) -> None:
    """Writes a page; the file is complete or as it was."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise Unusable(f"{path}: can't be written: {error.strerror or error}") from error


def _part(name: str, end: str) -> str:
    return (resources.files(__package__) / f"{name}.{end}").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
