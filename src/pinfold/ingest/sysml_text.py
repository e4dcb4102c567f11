"""The text of SysML v2 -> elements and what relates them: a subset of its statements, read without ever failing a file.

What is read: packages, imports, aliases, docs, definitions and usages, connections, bindings, flows, allocations, satisfy,
verify, dependencies. Anything else (the steps of behaviour, expressions, metadata) is passed over up to its `;` or its
closing brace and counted by its first word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from pinfold.ingest.source import words

Path = tuple[str, ...]
"""A name in segments; what stands between them (`::` or `.`) makes no difference to what it means here."""


class Element(msgspec.Struct, gc=False):
    """A definition or usage. owner: its place in the file's list, -1 at the top. name: "" where it has none of its own.

    types, above, redefined: what it is typed by, specializes (a usage: subsets) and redefines.
    """

    keyword: str
    is_def: bool
    name: str
    owner: int
    line: int
    short: str = ""
    mult: str = ""
    value: str = ""
    doc: str = ""
    types: list[Path] = []
    above: list[Path] = []
    redefined: list[Path] = []


class Relation(msgspec.Struct, frozen=True, gc=False):
    """What a statement relates, as it names it. source None: its owner, or the element `by`. text: the ends as written, where that says more."""

    name: str
    owner: int
    source: Path | None
    target: Path
    text: str = ""
    by: int = -1


class Import(msgspec.Struct, frozen=True, gc=False):
    """What names a scope sees beside its own: a path, with all that is in it (`*`), or all below it too (`**`).

    alias: the one name it is seen by. public: whether others see it there.
    """

    owner: int
    path: Path
    reach: str = ""
    alias: str = ""
    public: bool = False


class Model(msgspec.Struct, gc=False):
    """One file. skipped: first word -> statements that were passed over."""

    elements: list[Element]
    relations: list[Relation]
    imports: list[Import]
    statements: int
    skipped: dict[str, int]


_token = re.compile(
    r"//\*.*?\*/|//[^\n]*"
    r"|(?P<comment>/\*.*?\*/)"
    r'|(?P<text>"(?:[^"\\]|\\.)*+")'
    r"|(?P<name>'(?:[^'\\]|\\.)*+'|[^\W\d]\w*+)"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<sign>::>|:>>|:>|::|:=|->|=>|\.\.|[^\w\s])",
    re.DOTALL,
)


class Token(msgspec.Struct, gc=False):
    """kind: comment, text, name (quotes removed), number, sign. quoted: a name that is no keyword. glued: nothing stood before it."""

    kind: str
    text: str
    line: int
    quoted: bool = False
    glued: bool = False


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text. Never fails: what is none is left out."""
    ends = [m.end() for m in re.finditer(r"\n", text)]
    end = 0
    for m in _token.finditer(text):
        kind = m.lastgroup
        if kind is not None:
            found, quoted = m[0], m[0][0] == "'" and kind == "name"
            if quoted:
                found = re.sub(r"\\(.)", r"\1", found[1:-1])
            yield Token(kind, found, bisect_right(ends, m.start()) + 1, quoted, m.start() == end)
        end = m.end()


DEFINED = frozenset(
    ["attribute", "enum", "occurrence", "item", "part", "connection", "interface", "allocation", "port", "action", "calc", "state", "constraint"]
    + ["requirement", "concern", "case", "analysis", "verification", "use case", "view", "viewpoint", "rendering", "flow", "metadata"]
)
"""Keywords that stand before `def`, and before a usage."""
_REFS = frozenset({"subject", "actor", "stakeholder", "objective"})
"""Keywords of usages alone."""
_PREFIXES = frozenset(
    ["in", "out", "inout", "ref", "abstract", "variation", "variant", "end", "readonly", "derived", "constant", "individual", "snapshot", "timeslice", "return"]
)
_VISIBILITY = frozenset({"public", "private", "protected"})
_SKIPPED = frozenset(
    ["first", "then", "accept", "send", "assign", "transition", "entry", "do", "exit", "perform", "exhibit", "include", "succession", "if", "else"]
    + ["while", "loop", "until", "for", "merge", "decide", "join", "fork", "terminate", "assert", "assume", "require", "frame", "expose", "render"]
    + ["filter", "rep", "language", "event", "message", "inv", "about", "not", "new", "comment", "locale"]
)
"""First words of statements that are passed over."""
_COMMENTS = frozenset({"doc", "comment", "rep", "language"})
"""First words of what ends with a comment, without a `;`."""
_CLAUSES = frozenset(
    ["defined", "typed", "specializes", "subsets", "redefines", "references", "default", "ordered", "nonunique", "connect", "from", "to", "of", "by"]
    + ["allocate", "bind", "about", "crosses", "chains"]
)
"""Words that may follow a name, or stand where it has none."""
_MORE = {":>": "above", "subsets": "above", "specializes": "above", "::>": "above", "references": "above", ":>>": "redefined", "redefines": "redefined"}
_DEPTH = 64
"""Scopes within scopes: a qualified name repeats all that is around it."""
_TEXT_CHARS = 120
_DOC_CHARS = 240


def read_sysml(text: str) -> Model:
    """Return what a file says. O(len(text)); no recursion, so depth is free."""
    return _Parser(Model([], [], [], 0, {})).run(text)


class _Parser:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.scopes: list[int] = [-1]

    def run(self, text: str) -> Model:
        head: list[Token] = []
        skipping = depth = 0
        for token in tokens(text):
            sign = token.text if token.kind == "sign" else ""
            if skipping:
                skipping += (sign == "{") - (sign == "}")
            elif token.kind == "comment":
                if head and head[0].text in _COMMENTS and not head[0].quoted:
                    self._doc(head, token.text)
                    head, depth = [], 0
            elif sign == "{" and _is_body_of_expression(head):
                skipping = 1
            elif sign == "{":
                opened = self._statement(head, True)
                if opened is None:
                    skipping = 1
                else:
                    self.scopes.append(opened)
                head, depth = [], 0
            elif sign == "}":
                if head:
                    self._skip("expression")
                head, depth = [], 0
                if len(self.scopes) > 1:
                    self.scopes.pop()
            elif sign == ";" and depth <= 0:
                if head:
                    self._statement(head, False)
                head, depth = [], 0
            else:
                depth += (sign in ("(", "[")) - (sign in (")", "]"))
                head.append(token)
        if head:
            self._skip("unfinished")
        return self.model

    def _skip(self, word: str) -> None:
        self.model.skipped[word] = self.model.skipped.get(word, 0) + 1

    def _doc(self, head: list[Token], comment: str) -> None:
        """Give a doc to the element it stands in; a mere comment is for readers, other languages are for their tools."""
        if head[0].text in ("rep", "language"):
            self._skip("rep")
            return
        self.model.statements += 1
        owner = self.scopes[-1]
        if head[0].text == "doc" and owner >= 0 and not self.model.elements[owner].doc:
            body = re.sub(r"^\s*\*+ ?", "", comment[2:-2], flags=re.MULTILINE)
            self.model.elements[owner].doc = words(body, _DOC_CHARS)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statement(self, tokens: list[Token], block: bool) -> int | None:
        """Take one statement up to `;` or `{`. Return the scope that a block opens; None where it is to be passed over."""
        if len(self.scopes) > _DEPTH:
            self._skip("too deep")
            return None
        head = _Head(tokens)
        public = head.word() == "public"
        if head.word() in _VISIBILITY:
            head.at += 1
        opened = self._take(head, public)
        if opened is None:
            word = head.word()
            self._skip(word if word in _SKIPPED or word in DEFINED else "metadata" if head.sign() in ("@", "#") else "expression")
        else:
            self.model.statements += 1
        return opened

    def _take(self, head: _Head, public: bool) -> int | None:
        owner = self.scopes[-1]
        word = head.word()
        if word in ("library", "standard"):
            head.at += 1 + (word == "standard" and head.word(1) == "library")
            word = head.word()
        if word in ("package", "namespace"):
            head.at += 1
            short, name = head.names()
            return self._add(Element("package", True, name, owner, head.line, short))
        if word == "import":
            return self._import(head, public)
        if word == "alias":
            return self._alias(head)
        if word == "dependency":
            return self._dependency(head)
        if word in ("assert", "not") and "satisfy" in (head.word(1), head.word(2)):
            head.skip_to("satisfy")
            word = "satisfy"
        if word in ("satisfy", "verify"):
            return self._satisfy(head, word)
        if word in ("connect", "bind", "allocate"):
            return self._ends(head, word, owner)
        if word == "succession" and head.word(1) == "flow":
            head.at += 1
        return self._element(head)

    def _add(self, element: Element) -> int:
        self.model.elements.append(element)
        return len(self.model.elements) - 1

    def _import(self, head: _Head, public: bool) -> int | None:
        head.at += 1 + (head.word(1) == "all")
        path = head.path()
        if not path:
            return None
        reach = ""
        while head.sign() == "::" and head.sign(1) == "*":
            reach = "**" if head.sign(2) == "*" else reach or "*"
            head.at += 3 if head.sign(2) == "*" else 2
        self.model.imports.append(Import(self.scopes[-1], path, reach, "" if reach else path[-1], public))
        return self.scopes[-1]

    def _alias(self, head: _Head) -> int | None:
        head.at += 1
        short, name = head.names()
        if head.word() != "for":
            return None
        head.at += 1
        path = head.path()
        for alias in filter(None, (short, name)):
            self.model.imports.append(Import(self.scopes[-1], path, "", alias, True))
        return self.scopes[-1] if path else None

    def _dependency(self, head: _Head) -> int | None:
        head.at += 1
        head.skip_to("from", past=True)
        sources = head.paths()
        if head.word() != "to":
            return None
        head.at += 1
        for target in head.paths():
            for source in sources:
                self.model.relations.append(Relation("depends_on", self.scopes[-1], source, target))
        return self.scopes[-1]

    def _satisfy(self, head: _Head, word: str) -> int | None:
        """`satisfy R [by P]`, `verify R`; `satisfy requirement r : R [by P]` is a requirement of its own, and what is satisfied."""
        line = head.line
        head.at += 1 + (head.word(1) == "requirement")
        target = head.path()
        if head.sign() == ":" and len(target) == 1:
            head.at += 1
            self._add(Element("requirement", False, target[0], self.scopes[-1], line, types=head.paths()))
        if not target:
            return None
        head.skip_to("by", past=True)
        source = head.path() if head.at < len(head.tokens) else ()
        name = "satisfies" if word == "satisfy" else "verifies"
        self.model.relations.append(Relation(name, self.scopes[-1], source or None, target))
        return self.scopes[-1]

    def _ends(self, head: _Head, word: str, owner: int) -> int | None:
        """`connect a to b`, `connect (a, b, …)`, `bind a = b`, `allocate a to b`, `from a to b`. owner: the scope, or what they are the ends of."""
        name = {"connect": "connects", "bind": "binds", "allocate": "allocates"}.get(word, "flows")
        head.at += head.word() == word
        scope = self.scopes[-1]
        if head.sign() == "(":
            head.at += 1
            many = [head.end() for _ in range(head.commas() + 1)]
            pairs = [(many[0], other) for other in many[1:]]
        else:
            first = head.end()
            if head.word() != "to" and head.sign() != "=":
                return None
            head.at += 1
            pairs = [(first, head.end())]
        pairs = [(a, b) for a, b in pairs if a and b]
        for a, b in pairs:
            text = f"{'.'.join(a)} to {'.'.join(b)}" if len(a) > 1 or len(b) > 1 else ""
            if owner == scope:
                self.model.relations.append(Relation(name, scope, a, b, text))
            else:  # it has a name of its own: that is joined to both
                self.model.relations += [Relation(name, scope, None, end, text, owner) for end in (a, b)]
        return owner if pairs else None

    def _element(self, head: _Head) -> int | None:
        """A definition or usage with all that may follow its name."""
        prefixes: list[str] = []
        while head.word() in _PREFIXES or head.sign() == "#":
            if head.sign() == "#":
                head.at += 1
                head.path()
            else:
                prefixes.append(head.word())
                head.at += 1
        mult = head.brackets() if prefixes and head.sign() == "[" else ""
        keyword = head.keyword()
        if keyword:
            head.at += 1 + (" " in keyword)
        elif head.word() in _SKIPPED or not (head.is_feature() or self._is_value(head) or (prefixes and head.kind() == "name")):
            return None
        is_def = head.word() == "def" and keyword in DEFINED
        head.at += is_def
        line = head.line
        short, name = head.names()
        element = Element(keyword or "ref", is_def, name, self.scopes[-1], line, short, mult)
        opened = self._add(element)
        self._clauses(head, element, opened)
        if not element.name and element.redefined + element.above:
            element.name = (element.redefined + element.above)[0][-1]  # it has the name of what it redefines
        return opened

    def _is_value(self, head: _Head) -> bool:
        owner = self.scopes[-1]
        return owner >= 0 and self.model.elements[owner].keyword == "enum" and head.kind() == "name"

    def _clauses(self, head: _Head, element: Element, place: int) -> None:
        while head.at < len(head.tokens):
            word, sign = head.word(), head.sign()
            if sign == "[":
                text = head.brackets()
                element.mult = element.mult or text
            elif sign == ":" or (word in ("defined", "typed") and head.word(1) == "by"):
                head.at += 1 if sign else 2
                element.types = [*element.types, *head.paths()]
            elif (field := _MORE.get(sign or word)) is not None:
                head.at += 1
                setattr(element, field, [*getattr(element, field), *head.paths()])
            elif word in ("ordered", "nonunique"):
                head.at += 1
            elif sign in ("=", ":=") or word == "default":
                head.at += 1 + (word == "default" and head.sign(1) in ("=", ":="))
                element.value = words(head.rest(), _TEXT_CHARS)
            elif word == "of":
                head.at += 1
                element.types = [*element.types, *head.paths()]
            elif word in ("connect", "bind", "allocate") or (word == "from" and element.keyword == "flow"):
                self._ends(head, word, place if element.name else self.scopes[-1])
                return
            elif word == "to" and element.keyword in ("flow", "interface"):  # `flow a to b`: what was read as its name is an end
                head.at -= 1
                while head.at > 0 and head.sign(-1) in (".", "::"):
                    head.at -= 2
                element.name = ""
                self._ends(head, "from" if element.keyword == "flow" else "connect", self.scopes[-1])
                return
            elif sign in (".", "::"):
                head.at += 2
            else:
                return


class _Head:
    """The tokens of one statement, and how far they are read."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 0

    def _ahead(self, count: int) -> Token | None:
        place = self.at + count
        return self.tokens[place] if 0 <= place < len(self.tokens) else None

    def word(self, count: int = 0) -> str:
        """Return the name ahead that may be a keyword, "" for anything else."""
        token = self._ahead(count)
        return token.text if token is not None and token.kind == "name" and not token.quoted else ""

    def sign(self, count: int = 0) -> str:
        token = self._ahead(count)
        return token.text if token is not None and token.kind == "sign" else ""

    def kind(self) -> str:
        token = self._ahead(0)
        return token.kind if token is not None else ""

    def keyword(self) -> str:
        """Return the keyword of an element ahead, "" for none."""
        word = self.word()
        if word == "use" and self.word(1) == "case":
            return "use case"
        return word if word in DEFINED or word in _REFS else ""

    def is_feature(self) -> bool:
        """Return whether what is ahead is a usage without a keyword: `x : T`, `:>> y`."""
        if self.sign() in (":>", ":>>", ":") or self.word() in ("redefines", "subsets"):
            return True
        return self.kind() == "name" and (self.sign(1) in (":", ":>", ":>>") or self.word(1) in ("redefines", "subsets"))

    def names(self) -> tuple[str, str]:
        """Read `<short> name`, either of which may be missing."""
        short = ""
        if self.sign() == "<" and self.sign(2) == ">":
            short = self.tokens[self.at + 1].text
            self.at += 3
        token = self._ahead(0)
        if token is None or token.kind != "name" or (token.text in _CLAUSES and not token.quoted):
            return short, ""
        self.at += 1
        return short, token.text

    def path(self) -> Path:
        """Read a name with `::` or `.` in it, () where none is ahead."""
        parts: list[str] = []
        if self.sign() == "~" or (self.sign() == "$" and self.sign(1) == "::"):
            self.at += 1 if self.sign() == "~" else 2
        while self.kind() == "name":
            parts.append(self.tokens[self.at].text)
            self.at += 1
            following = self._ahead(1)
            if self.sign() not in ("::", ".") or following is None or following.kind != "name":
                break
            self.at += 1
        return tuple(parts)

    def paths(self) -> list[Path]:
        """Read names with commas between them; a multiplicity behind one is passed over."""
        found: list[Path] = []
        while True:
            path = self.path()
            if path:
                found.append(path)
            if self.sign() == "[" and self._is_followed_by_comma():
                self.brackets()
            if self.sign() != ",":
                return found
            self.at += 1

    def _is_followed_by_comma(self) -> bool:
        before = self.at
        self.brackets()
        found = self.sign() == ","
        self.at = before
        return found

    def end(self) -> Path:
        """Read one end of a connector: `[1] name ::> a.b`, of which a.b counts, up to `to`, `=`, a comma or the end."""
        if self.sign() == "[":
            self.brackets()
        path = self.path()
        if self.sign() in ("::>", ":>>") or self.word() in ("references", "redefines"):
            self.at += 1
            path = self.path() or path
        if self.sign() == "[":
            self.brackets()
        if self.sign() == ",":
            self.at += 1
        return path

    def commas(self) -> int:
        return sum(1 for token in self.tokens[self.at :] if token.text == "," and token.kind == "sign")

    def brackets(self) -> str:
        """Read `[…]`; return what is in it."""
        start = self.at
        depth = 0
        while self.at < len(self.tokens):
            depth += (self.sign() == "[") - (self.sign() == "]")
            self.at += 1
            if depth == 0:
                break
        return _joined(self.tokens[start + 1 : self.at - 1])

    def rest(self) -> str:
        """Read all that is left, as text."""
        text = _joined(self.tokens[self.at :])
        self.at = len(self.tokens)
        return text

    def skip_to(self, word: str, *, past: bool = False) -> None:
        """Go to a word; with past, beyond it, or stay where it does not come."""
        for place in range(self.at, len(self.tokens)):
            if self.tokens[place].text == word and self.tokens[place].kind == "name" and not self.tokens[place].quoted:
                self.at = place + past
                return


def _is_body_of_expression(head: list[Token]) -> bool:
    """Return whether a brace opens no scope: `list->select {…}`, `x.{…}`, `x.?{…}`."""
    return len(head) > 1 and (head[-2].text == "->" or head[-1].text in (".", "?", "->"))


def _joined(tokens: list[Token]) -> str:
    """Return tokens as text, spaced as they were."""
    parts = []
    for token in tokens:
        text = f"'{token.text}'" if token.quoted and not token.text.isidentifier() else token.text
        parts.append(text if token.glued else f" {text}")
    return "".join(parts).strip()
