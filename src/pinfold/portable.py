"""A graph for other programs: json (which reads back), dot, graphml, cypher. And whole files, written beside and renamed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from xml.sax.saxutils import escape, quoteattr

from pinfold.errors import ConfigurationError, Refused
from pinfold.state.graph import Graph
from pinfold.tree import check_path

FORMAT = "pinfold-graph"


def export_graph(graph: Graph, kind: str) -> str:
    """Return the graph's rows as text of this kind. Raises Refused `bad_argument`."""
    make = _KINDS.get(kind)
    if make is None:
        raise Refused(f"there is no export {kind!r}", code="bad_argument", hint=", ".join(_KINDS))
    return make(graph)


def _json(graph: Graph) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "version": 1,
            "laws": [{"id": row.id, "fields": row.fields} for row in graph.laws.values()],
            "nodes": [{"id": row.id, "kind": row.kind, "fields": row.fields} for row in graph.nodes.values()],
            "edges": [{"id": row.id, "source": row.src, "relation": row.rel, "target": row.dst, "fields": row.fields} for row in graph.edges.values()],
        },
        ensure_ascii=False,
        indent=1,
    )


def _dot(graph: Graph) -> str:
    lines = ["digraph pinfold {"]
    for node in graph.nodes.values():
        label = node.get("label") or next(iter(node.fields.values()), "")
        lines.append(f"  {_dot_text(node.id)} [label={_dot_text(f'{node.kind} {node.id}' + (chr(10) + label if label else ''))}];")
    for edge in graph.edges.values():
        lines.append(f"  {_dot_text(edge.src)} -> {_dot_text(edge.dst)} [label={_dot_text(edge.rel)}];")
    return "\n".join([*lines, "}"])


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"' + "".join(char for char in escaped if char.isprintable()) + '"'


def _graphml(graph: Graph) -> str:
    keys = dict.fromkeys(["kind", "relation", *(key for row in graph.rows() for key in row.keys)])
    numbered = {key: f"d{place}" for place, key in enumerate(keys)}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    lines += [f'  <key id="{number}" for="all" attr.name={quoteattr(key)} attr.type="string"/>' for key, number in numbered.items()]
    lines.append('  <graph id="pinfold" edgedefault="directed">')
    for node in graph.nodes.values():
        lines.append(f"    <node id={quoteattr(node.id)}>{_data(numbered, {'kind': node.kind, **node.fields})}</node>")
    for edge in graph.edges.values():
        data = _data(numbered, {"relation": edge.rel, **edge.fields})
        lines.append(f"    <edge id={quoteattr(edge.id)} source={quoteattr(edge.src)} target={quoteattr(edge.dst)}>{data}</edge>")
    return "\n".join([*lines, "  </graph>", "</graphml>"])


def _data(numbered: dict[str, str], fields: dict[str, str]) -> str:
    return "".join(f'<data key="{numbered[key]}">{escape(_xml(value))}</data>' for key, value in fields.items())


def _xml(text: str) -> str:
    """Return text without the characters XML 1.0 cannot hold, each shown as U+FFFD."""
    return "".join(char if (char >= " " and char not in "\ufffe\uffff") or char in "\t\n\r" else "\ufffd" for char in text)


def _cypher(graph: Graph) -> str:
    lines = [f"CREATE (:`{node.kind}` {_map({'id': node.id, **node.fields})});" for node in graph.nodes.values()]
    for edge in graph.edges.values():
        fields = _map({"id": edge.id, **edge.fields})
        lines.append(f"MATCH (a {_map({'id': edge.src})}), (b {_map({'id': edge.dst})}) CREATE (a)-[:`{edge.rel}` {fields}]->(b);")
    return "\n".join(lines)


def _map(fields: dict[str, str]) -> str:
    return "{" + ", ".join(f"`{key}`: {json.dumps(value)}" for key, value in fields.items()) + "}"


_KINDS: dict[str, Callable[[Graph], str]] = {"json": _json, "dot": _dot, "graphml": _graphml, "cypher": _cypher}


# --- files --------------------------------------------------------------------------------------------------------


def write_whole(path: str, lines: Iterable[str]) -> int:
    """Write lines to path, all or nothing: beside it first, then renamed. Return the bytes written. Raises ConfigurationError."""
    check_path(path)
    beside = f"{path}.{os.getpid()}-{threading.get_ident()}.tmp"
    size = 0
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                size += len(line.encode()) + 1
                file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", code="bad_path", hint="choose a writable folder") from error
    finally:
        if os.path.exists(beside):
            os.remove(beside)
    return size


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file, line ends as they are. Raises ConfigurationError, Refused `not_utf8`."""
    check_path(path)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", code="bad_path", hint="check the path") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 text: {error}", code="not_utf8", hint="save it as UTF-8") from error
