"""atopile: pins for a project's files, blocks, instances, pins and signals, and what they are wired to.

Names of blocks are those of the file and of what it imports; what is from the library or from a file that is not there
is an UNRESOLVED pin. A connection joins the items of its block, so that each instance keeps its own; `ends` has it as written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from pinfold.errors import Refused
from pinfold.ingest.ato_text import INST, PIN, SIGNAL, Block, Board, Item, read_ato
from pinfold.ingest.pins import PinKind, Wanted
from pinfold.ingest.source import Unread, words
from pinfold.ingest.sysml import UNRESOLVED

ATO = "ATO"
_BLOCK_FIELDS = ("ato", "line", "doc", "params", "asserts", "traits")
_ITEM_FIELDS = ("ato", "line", "mult", "params", "refdes", "doc")
_DESIGNATORS = ("designator=", "refdes=")
_BASES = 64
"""Blocks from each other that an item is looked for in."""
_LIST_CHARS = 400
_NAMED = 20


def source(languages: tuple[str, ...]) -> AtoSource:
    if languages:
        raise Refused("languages are for code", code="bad_argument", hint="ingest ato PATH")
    return AtoSource()


class AtoSource:
    kinds = (
        PinKind(ATO, ("path", "doc"), "path"),
        *(PinKind(kind, _BLOCK_FIELDS, "ato") for kind in ("MODULE", "COMPONENT", "INTERFACE")),
        *(PinKind(kind, _ITEM_FIELDS, "ato") for kind in (INST, PIN, SIGNAL)),
        UNRESOLVED,
    )
    relations = ("contains", "instance_of", "from", "connects", "imports")
    link_fields = ("ends",)

    def takes(self, name: str) -> bool:
        return name.endswith(".ato")

    def reads(self, name: str) -> bool:
        return True

    def read(self, name: str, data: bytes) -> Board:
        try:
            return read_ato(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Unread(f"not UTF-8 at byte {error.start}") from None

    def join(self, parts: Mapping[str, Board], known: Mapping[str, str], wanted: Wanted) -> dict[str, int | list[str]]:
        return _Join(parts, known, wanted).run()


class _Join:
    def __init__(self, parts: Mapping[str, Board], known: Mapping[str, str], wanted: Wanted) -> None:
        self.parts, self.known, self.wanted = parts, known, wanted
        self.blocks: dict[str, dict[str, Block]] = {path: {} for path in parts}
        for path, board in parts.items():
            for block in board.blocks:
                self.blocks[path].setdefault(block.name, block)
        self.imports = {path: dict(board.imports) for path, board in parts.items()}
        self.files = {*parts, *(locator.partition("::")[0] for locator in known)}
        self.ids: dict[tuple[str, str], str] = {}
        self.unresolved: set[str] = set()

    def run(self) -> dict[str, int | list[str]]:
        for path, board in self.parts.items():
            file = self.ids[path, ""] = self.wanted.add(ATO, {"path": path, "doc": board.doc})
            for name, block in self.blocks[path].items():
                self._pins(path, name, block, file)
        for path, board in self.parts.items():
            for name, _ in board.imports:
                self.wanted.link(self.ids[path, ""], "imports", self._block(path, name))
            for name, block in self.blocks[path].items():
                self._links(path, name, block)
        skipped: dict[str, int] = {}
        for board in self.parts.values():
            for word, count in board.skipped.items():
                skipped[word] = skipped.get(word, 0) + count
        return {
            "statements": sum(board.statements for board in self.parts.values()),
            "skipped": sum(skipped.values()),
            "skipped_by_word": [f"{count} {word}" for word, count in sorted(skipped.items(), key=lambda pair: (-pair[1], pair[0]))],
            "unresolved": len(self.unresolved),
            "unresolved_names": sorted(self.unresolved)[:_NAMED],
        }

    def _pins(self, path: str, name: str, block: Block, file: str) -> None:
        fields = {
            "ato": f"{path}::{name}",
            "line": str(block.line),
            "doc": block.doc,
            "params": _listed(block.params),
            "asserts": _listed(block.asserts),
            "traits": _listed(block.traits),
        }
        id = self.ids[path, name] = self.wanted.add(block.kind.upper(), fields)
        outer = name.rpartition(".")[0]
        self.wanted.link(self.ids.get((path, outer), file) if outer else file, "contains", id)
        for item_name, item in block.items.items():
            self._item(path, name, item_name, item)

    def _item(self, path: str, block: str, name: str, item: Item) -> str:
        refdes = next((param.partition("=")[2].strip("\"'") for param in item.params if param.startswith(_DESIGNATORS)), "")
        fields = {
            "ato": f"{path}::{block}.{name}",
            "line": str(item.line) if item.line else "",
            "mult": item.mult,
            "params": _listed(item.params),
            "refdes": refdes,
            "doc": item.doc,
        }
        id = self.ids[path, f"{block}.{name}"] = self.wanted.add(item.kind, fields)
        self.wanted.link(self.ids[path, block], "contains", id)
        return id

    def _links(self, path: str, name: str, block: Block) -> None:
        here = self.ids[path, name]
        if block.base:
            self.wanted.link(here, "from", self._block(path, block.base))
        for item_name, item in block.items.items():
            if item.type:
                self.wanted.link(self.ids[path, f"{name}.{item_name}"], "instance_of", self._block(path, item.type))
        for item_name, type in block.retyped:
            self.wanted.link(self._end(path, name, item_name), "instance_of", self._block(path, type))
        for a, b, written in block.connections:
            source, target = self._end(path, name, a), self._end(path, name, b)
            if source != target:
                self.wanted.link(source, "connects", target, ends=words(written) if "." in written or "[" in written else "")

    # --- names ------------------------------------------------------------------------------------------------------

    def _end(self, path: str, block: str, name: str) -> str:
        """Return the pin of an item by its name in a block: its own, else that of a block it is from, else one that is only used here."""
        at: tuple[str, str] | None = (path, block)
        seen: set[tuple[str, str]] = set()
        while at is not None and at not in seen and len(seen) < _BASES:
            seen.add(at)
            known = self.ids.get((at[0], f"{at[1]}.{name}")) or self.known.get(f"{at[0]}::{at[1]}.{name}")
            if known is not None:
                return known
            found = self.blocks.get(at[0], {}).get(at[1])
            at = self._place(at[0], found.base) if found is not None and found.base else None
        return self._item(path, block, name, Item(INST, 0))

    def _place(self, path: str, name: str) -> tuple[str, str] | None:
        """Return (file, block) of a block by its name in a file, None where it is none of those read."""
        if name in self.blocks.get(path, {}):
            return path, name
        file = self._file(path, self.imports.get(path, {}).get(name, ""))
        return (file, name) if file is not None else None

    def _file(self, path: str, given: str) -> str | None:
        """Return the file that an import names: beside the one that imports, from the root, or the one whose path ends so."""
        if not given:
            return None
        for candidate in (posixpath.normpath(posixpath.join(posixpath.dirname(path), given)), posixpath.normpath(given)):
            if candidate in self.files:
                return candidate
        ending = [file for file in self.files if file.endswith(f"/{given}")]
        return ending[0] if len(ending) == 1 else None

    def _block(self, path: str, name: str) -> str:
        """Return the pin of a block by its name in a file; what is not there is an UNRESOLVED one."""
        place = self._place(path, name)
        id = self.ids.get(place) or self.known.get("::".join(place)) if place is not None else None
        if id is not None:
            return id
        given = self.imports.get(path, {}).get(name, "")
        missing = words(f"{given}::{name}" if given else name)
        self.unresolved.add(missing)
        return self.wanted.add(UNRESOLVED.name, {"qname": missing})


def _listed(parts: list[str]) -> str:
    return words("; ".join(parts), _LIST_CHARS)
