"""On which line of a TOML document each key stands, so that a mistake can be pointed at.

`tomllib` reads values and forgets where they came from. This module reads the same text for the
places alone. It is only given documents that `tomllib` has accepted, so it need not judge
anything: it walks over keys and values, skipping what it does not need, and names each by its
path: `("broker", 0, "limits", "queue")` is the key `queue` in the table `limits` of the first
`[[broker]]`. A table is named by its header, or, if it has none, by the first key that made it; an
element of an array by itself.

The one rule of TOML that is not local: a header `[a.b]` whose `a` is an array of tables means the
last of them so far.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final, TypeAlias

#: Names of tables and keys, and indexes into arrays.
KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY: Final = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*""")
_MULTILINE: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{1,2}(?!"))?' + "|" + r"'''.*?'''(?:'{1,2}(?!'))?", re.DOTALL
)
_STRING: Final = re.compile(r"""\"(?:[^"\\\n]|\\.)*\"|'[^'\n]*'""")
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*")


class TomlLines:
    """Looks up lines, counted from 1.

    >>> lines = TomlLines('[limits]\\nqueue = 5\\n\\n[[broker]]\\nneighbors = [\\n  "b2",\\n]\\n')
    >>> lines.of("limits", "queue"), lines.of("broker", 0, "neighbors", 0)
    (2, 6)
    >>> lines.of("broker", 0, "absent")  # where it would belong
    4
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._lines: dict[KeyPath, int] = {(): 1}
        self._lengths: dict[KeyPath, int] = {}
        self._document()

    def of(self, *path: str | int) -> int:
        """The line of what the path names; if there is no such thing, of what encloses it."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def __contains__(self, path: KeyPath) -> bool:
        return path in self._lines

    # -- the walk

    def _document(self) -> None:
        table: KeyPath = ()
        while not self._ended():
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._assignment(table)

    def _ended(self) -> bool:
        self._skip(_BLANK)
        return self._at >= len(self._text)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, "a document that tomllib would not accept"
        self._at = match.end()
        return match[0]

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _note(self, path: KeyPath, line: int) -> None:
        for end in range(1, len(path) + 1):
            self._lines.setdefault(path[:end], line)

    def _header(self) -> KeyPath:
        line = self._here()
        many = self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        keys = self._keys()
        self._at += 2 if many else 1
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._last_of((*path, key))
        path = (*path, keys[-1])
        if many:
            index = self._lengths.get(path, 0)
            self._lengths[path] = index + 1
            self._note(path, line)
            path = (*path, index)
        # A table may have been made by a header further up that names one inside it.
        self._note(path, line)
        self._lines[path] = line
        return path

    def _last_of(self, path: KeyPath) -> KeyPath:
        length = self._lengths.get(path)
        return path if length is None else (*path, length - 1)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            match = _KEY.match(self._text, self._at)
            assert match is not None, "a document that tomllib would not accept"
            self._at = match.end()
            written = match[1]
            # Quoted keys may hold escapes: let tomllib read them.
            keys.append(
                next(iter(tomllib.loads(f"{written}=0"))) if written[0] in "\"'" else written
            )
            if self._text[self._at : self._at + 1] != ".":
                return keys
            self._at += 1

    def _assignment(self, table: KeyPath) -> None:
        line = self._here()
        path = (*table, *self._keys())
        self._note(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._skip(_BLANK)
        first = self._text[self._at]
        if first == "[":
            self._at += 1
            index = 0
            while not self._closed("]"):
                self._note((*path, index), self._here())
                self._value((*path, index))
                index += 1
        elif first == "{":
            self._at += 1
            while not self._closed("}"):
                self._assignment(path)
        elif _MULTILINE.match(self._text, self._at):
            self._skip(_MULTILINE)
        elif first in "\"'":
            self._skip(_STRING)
        else:
            self._skip(_SCALAR)

    def _closed(self, bracket: str) -> bool:
        """Whether the array or table ends here; steps over the comma or the bracket."""
        self._skip(_BLANK)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_BLANK)
        if self._text[self._at] == bracket:
            self._at += 1
            return True
        return False
