"""SysML v2: a pin for each element that has a name, under its qualified name, and what relates them.

A name is looked up as the language says: in its own scope and what that inherits, outward, then by imports. What it then
does not mean is an UNRESOLVED pin, so that what is missing can be seen and asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinfold.errors import Refused
from pinfold.ingest.pins import PinKind, Wanted
from pinfold.ingest.source import Unread, words
from pinfold.ingest.sysml_text import Element, Import, Model, Path, Relation, read_sysml

UNRESOLVED = PinKind("UNRESOLVED", ("qname",))
_FIELDS = ("qname", "path", "line", "what", "short", "mult", "value", "doc")
_STEMS = {
    "attribute": "ATTR", "enum": "ENUM", "occurrence": "OCC", "item": "ITEM", "part": "PART", "connection": "CONN", "interface": "CONN",
    "allocation": "ALLOC", "port": "PORT", "action": "ACTION", "calc": "CALC", "state": "STATE", "constraint": "CONSTRAINT", "requirement": "REQ",
    "concern": "CONCERN", "case": "CASE", "analysis": "ANALYSIS", "verification": "VERIFICATION", "use case": "USECASE", "view": "VIEW",
    "viewpoint": "VIEWPOINT", "rendering": "RENDERING", "flow": "FLOW", "metadata": "METADATA",
}  # fmt: skip
"""Keyword -> kind of a usage; a definition's has DEF behind it. Usages without a keyword, and subjects and actors, are REF."""
_TOLD = frozenset({"interface", "subject", "actor", "stakeholder", "objective"})
"""Keywords that the kind does not say."""
_RELATIONS = ("contains", "typed_by", "specializes", "redefines", "connects", "binds", "flows", "satisfies", "verifies", "allocates", "depends_on", "imports")
_CHAINED = frozenset({"connects", "binds", "flows", "allocates"})
"""Relations of features that a chain leads to."""
_DEPTH = 64
"""Elements whose supertypes wait for each other: more is nobody's model, and would be deep recursion."""
_LINEAGE = 500
"""Elements above one that are looked through for a name."""
_NAMED = 20
"""Unresolved names a report tells."""


def source(languages: tuple[str, ...]) -> SysmlSource:
    if languages:
        raise Refused("languages are for code", code="bad_argument", hint="ingest sysml PATH")
    return SysmlSource()


def _kind_of(element: Element) -> str:
    if element.keyword == "package":
        return "PACKAGE"
    return _STEMS.get(element.keyword, "REF") + ("DEF" if element.is_def else "")


class SysmlSource:
    kinds = (
        PinKind("PACKAGE", _FIELDS, "path"),
        *(PinKind(name, _FIELDS, "path") for stem in [*dict.fromkeys(_STEMS.values()), "REF"] for name in (f"{stem}DEF", stem) if name != "REFDEF"),
        UNRESOLVED,
    )
    relations = _RELATIONS
    link_fields = ("ends",)

    def takes(self, name: str) -> bool:
        return name.endswith(".sysml")

    def reads(self, name: str) -> bool:
        return True

    def read(self, name: str, data: bytes) -> Model:
        try:
            return read_sysml(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise Unread(f"not UTF-8 at byte {error.start}") from None

    def join(self, parts: Mapping[str, Model], known: Mapping[str, str], wanted: Wanted) -> dict[str, int | list[str]]:
        return _Join(parts, known, wanted).run()


class _At:
    """An element in the whole: of which file it is, and what it holds by name."""

    __slots__ = ("element", "file", "id", "imports", "inner", "owner", "qname", "twin")

    def __init__(self, element: Element | None, file: str, owner: _At | None) -> None:
        self.element, self.file, self.owner = element, file, owner
        self.inner: dict[str, _At] = {}
        self.imports: list[Import] = []
        self.qname = ""
        self.id = ""
        self.twin = self
        """The element that this is a part of: a package may stand in several files."""


class _Join:
    def __init__(self, parts: Mapping[str, Model], known: Mapping[str, str], wanted: Wanted) -> None:
        self.parts, self.known, self.wanted = parts, known, wanted
        self.root = _At(None, "", None)
        self.all: list[_At] = []
        self.relations: list[tuple[_At, _At | None, Relation]] = []
        self.unresolved: dict[str, int] = {}
        self.looked: dict[tuple[int, Path], _At | str | None] = {}
        self.supers: dict[int, list[_At]] = {}
        self.imported: dict[int, list[tuple[Import, _At | str | None]]] = {}
        self.depth = 0

    def run(self) -> dict[str, int | list[str]]:
        for file, model in self.parts.items():
            self._place(file, model)
        for at in self.all:
            self._pin(at)
        for at in self.all:
            self._link(at)
        for at, by, relation in self.relations:
            self._relate(at, by or at, relation)
        return self._said()

    def _said(self) -> dict[str, int | list[str]]:
        skipped: dict[str, int] = {}
        for model in self.parts.values():
            for word, count in model.skipped.items():
                skipped[word] = skipped.get(word, 0) + count
        return {
            "statements": sum(model.statements for model in self.parts.values()),
            "skipped": sum(skipped.values()),
            "skipped_by_word": [f"{count} {word}" for word, count in sorted(skipped.items(), key=lambda pair: (-pair[1], pair[0]))],
            "unresolved": len(self.unresolved),
            "unresolved_names": sorted(self.unresolved)[:_NAMED],
        }

    # --- pins -------------------------------------------------------------------------------------------------------

    def _place(self, file: str, model: Model) -> None:
        places = [_At(element, file, None) for element in model.elements]
        for at, element in zip(places, model.elements, strict=True):
            at.owner = places[element.owner].twin if element.owner >= 0 else self.root
            if element.name:
                at.twin = at.owner.inner.setdefault(element.name, at)
                if element.short:
                    at.owner.inner.setdefault(element.short, at.twin)
        self.all += places
        for given in model.imports:
            self._scope(places, given.owner).imports.append(given)
        for relation in model.relations:
            self.relations.append((self._scope(places, relation.owner), places[relation.by].twin if relation.by >= 0 else None, relation))

    def _scope(self, places: list[_At], owner: int) -> _At:
        return places[owner].twin if owner >= 0 else self.root

    def _pin(self, at: _At) -> None:
        """Give a named element its pin; what has no name is seen through."""
        element, owner = at.element, at.owner
        assert element is not None and owner is not None
        at.qname, at.id = owner.qname, owner.id
        if not element.name:
            return
        if at.twin is not at:
            at.qname, at.id = at.twin.qname, at.twin.id
            return
        name = words(element.name).replace("::", ":\\:") if "::" in element.name else words(element.name)
        at.qname = f"{owner.qname}::{name}" if owner.qname else name
        fields = {
            "qname": at.qname,
            "path": at.file,
            "line": str(element.line),
            "what": element.keyword if element.keyword in _TOLD else "",
            "short": words(element.short),
            "mult": words(element.mult),
            "value": element.value,
            "doc": element.doc,
        }
        at.id = self.wanted.add(_kind_of(element), fields)
        if owner.id:
            self.wanted.link(owner.id, "contains", at.id)

    def _link(self, at: _At) -> None:
        element, owner = at.element, at.owner
        assert element is not None and owner is not None
        if not element.name:
            return
        for given, target in self._targets(at) if at.twin is at else ():
            if given.reach or not given.alias or given.alias == given.path[-1]:
                self._to(at, "imports", target, given.path)
        for path in element.types:
            self._to(at, "typed_by", self._look(owner, path), path)
        for path in element.above:
            self._to(at, "specializes", self._look(owner, path) if element.is_def else self._feature(at, path), path)
        for path in element.redefined:
            self._to(at, "redefines", self._feature(at, path), path)

    def _to(self, at: _At, relation: str, target: _At | str | None, path: Path) -> None:
        id = self._id(target, path)
        if at.id and id != at.id:
            self.wanted.link(at.id, relation, id)

    def _id(self, target: _At | str | None, path: Path) -> str:
        if isinstance(target, str):
            return target
        if target is not None and target.id:
            return target.id
        name = words("::".join(path))
        self.unresolved[name] = self.unresolved.get(name, 0) + 1
        return self.wanted.add(UNRESOLVED.name, {"qname": name})

    def _relate(self, at: _At, by: _At, relation: Relation) -> None:
        look = self._deepest if relation.name in _CHAINED else self._look
        source = self._id(look(at, relation.source), relation.source) if relation.source is not None else by.id
        target = self._id(look(at, relation.target), relation.target)
        if source == target:  # of a whole to a part that it inherits
            target = self._id(self._look(at, relation.target), relation.target)
        if source and source != target:
            self.wanted.link(source, relation.name, target, ends=words(relation.text))

    # --- names ------------------------------------------------------------------------------------------------------

    def _look(self, scope: _At, path: Path) -> _At | str | None:
        """Return what a path means in a scope: an element, the id of a pin that is known from elsewhere, or None."""
        key = (id(scope), path)
        if key not in self.looked:
            self.looked[key] = None  # a name that rests on itself means nothing
            self.looked[key] = self._search(scope, path)
        return self.looked[key]

    def _search(self, scope: _At, path: Path, but: _At | None = None) -> _At | str | None:
        """Look a path up from a scope outward. but: an element that is not meant: the one whose own clause this is."""
        at: _At | None = scope
        while at is not None:
            first = self._member(at, path[0], but) or self._imported(at, path[0])
            if isinstance(first, str) and len(path) == 1:
                return first
            if isinstance(first, _At) and (found := self._within(first, path[1:])) is not None:
                return found
            at = at.owner
        return self._elsewhere(scope, path)

    def _within(self, at: _At, path: Path, *, exported: bool = True) -> _At | None:
        """Return what a path means within an element. exported: also what it imports for others to see."""
        for name in path:
            found = self._member(at, name) or (self._imported(at, name, public=True) if exported else None)
            if not isinstance(found, _At):
                return None
            at = found
        return at

    def _member(self, at: _At, name: str, but: _At | None = None) -> _At | None:
        """Return what an element holds under a name, or inherits."""
        own = at.inner.get(name)
        return own if own is not None and own is not but else self._above(at, name)

    def _above(self, at: _At, name: str) -> _At | None:
        """Return what an element inherits under a name, from the nearest that has it."""
        seen = {id(at)}
        level = [at]
        while level and len(seen) < _LINEAGE:
            level = [above for below in level for above in self._supers(below) if id(above) not in seen]
            for above in level:
                if name in above.inner:
                    return above.inner[name]
            seen.update(map(id, level))
        return None

    def _supers(self, at: _At) -> list[_At]:
        """Return what an element is typed by, specializes, subsets and redefines, as far as that is known by now."""
        element, owner = at.element, at.owner
        found = self.supers.get(id(at))
        if found is None and element is not None and owner is not None:
            self.supers[id(at)] = []
            if self.depth < _DEPTH:
                self.depth += 1
                looked = [self._look(owner, path) for path in (*element.types, *(element.above if element.is_def else ()))]
                looked += [self._feature(at, path) for path in (*element.redefined, *(() if element.is_def else element.above))]
                self.depth -= 1
                self.supers[id(at)] = [above for above in looked if isinstance(above, _At) and above is not at]
        return self.supers.get(id(at), [])

    def _feature(self, at: _At, path: Path) -> _At | str | None:
        """Return what a feature redefines or subsets: one that its owner inherits, else one in sight that it is not itself."""
        assert at.owner is not None
        first = self._above(at.owner, path[0])
        return (self._within(first, path[1:]) if first is not None else None) or self._search(at.owner, path, at)

    def _imported(self, at: _At, name: str, *, public: bool = False) -> _At | str | None:
        """Return what a scope's imports let it see under a name, or what those let others see."""
        queue = [(at, public)]
        seen = {id(at)}
        for here, others in queue:
            for given, target in self._targets(here):
                if others and not given.public:
                    continue
                if not given.reach:
                    if given.alias == name:
                        return target or self._id(None, given.path)
                elif target is None:
                    continue
                elif isinstance(target, str):
                    if (known := self.known.get("::".join((*given.path, name)))) is not None:
                        return known
                else:
                    found = self._member(target, name)
                    if found is None and given.reach == "**":
                        found = next((inner.inner[name] for inner in _below(target) if name in inner.inner), None)
                    if found is not None:
                        return found
                    if id(target) not in seen:
                        seen.add(id(target))
                        queue.append((target, True))
        return None

    def _targets(self, at: _At) -> list[tuple[Import, _At | str | None]]:
        """Return the imports of a scope, aliases last, with what they mean: by scopes, or by the members of what is imported before."""
        found = self.imported.get(id(at))
        if found is None:
            found = self.imported[id(at)] = []
            for given in sorted(at.imports, key=lambda given: not given.reach):
                target = self._by_scopes(at, given.path)
                for _, before in found if target is None else ():
                    if isinstance(before, _At) and (first := self._member(before, given.path[0])) is not None:
                        target = target or self._within(first, given.path[1:], exported=False)
                found.append((given, target or self._elsewhere(at, given.path)))
        return found

    def _by_scopes(self, scope: _At, path: Path) -> _At | None:
        """Look a path up from a scope outward, by members alone."""
        at: _At | None = scope
        while at is not None:
            first = self._member(at, path[0])
            if first is not None and (found := self._within(first, path[1:], exported=False)) is not None:
                return found
            at = at.owner
        return None

    def _elsewhere(self, scope: _At, path: Path) -> str | None:
        """Return the pin of a qualified name that is in files that were not read."""
        name = "::".join(path)
        around: _At | None = scope
        while self.known and around is not None:
            found = self.known.get(f"{around.qname}::{name}" if around.qname else name)
            if found is not None:
                return found
            around = around.owner
        return None

    def _deepest(self, scope: _At, path: Path) -> _At | str | None:
        """Return the last feature of a chain that stands in the model where the chain says, so that its instance is not lost.

        Beyond it the chain goes on into definitions, which all instances share; `ends` tells the rest.
        """
        first = self._look(scope, path[:1])
        if not isinstance(first, _At):
            return first if len(path) == 1 else self._elsewhere(scope, path)
        for name in path[1:]:
            inner = first.inner.get(name)
            if inner is None:
                break
            first = inner
        return first


def _below(at: _At) -> Iterator[_At]:
    """Yield an element's own, and what is in them, at any depth."""
    stack = list(at.inner.values())
    seen: set[int] = set()
    while stack:
        inner = stack.pop()
        if id(inner) not in seen:
            seen.add(id(inner))
            yield inner
            stack.extend(inner.inner.values())
