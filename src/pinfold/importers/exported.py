"""What `pinfold export json` wrote: a graph's rows, under their own ids."""

from __future__ import annotations

import json
from typing import Any

from pinfold.dialect.parse import is_id, is_key, is_kind, is_law_id, is_relation
from pinfold.importers.records import Read, Record, bad_import, read_whole
from pinfold.portable import FORMAT


def read(path: str, **_: Any) -> Read:
    """Return the rows of an exported graph. Raises Refused `bad_import` naming what does not fit, ConfigurationError `bad_path`."""
    try:
        data = json.loads(read_whole(path))
        if data.get("format") != FORMAT or data.get("version") != 1:
            raise bad_import(f"{path} is not a {FORMAT} file of version 1", "`export json` writes one")
        laws = [Record("law", _fit(is_law_id, row["id"]), _fields(row)) for row in data["laws"]]
        nodes = {row["id"]: Record("node", _fit(is_id, row["id"]), _fields(row), _fit(is_kind, row["kind"])) for row in data["nodes"]}
        edges = [
            Record("edge", _fit(is_id, row["id"]), _fields(row), "", _fit(is_id, row["source"]), _fit(is_relation, row["relation"]), _fit(is_id, row["target"]))
            for row in data["edges"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise bad_import(f"{path} does not fit: {error!r}", "`export json` writes one") from error
    return Read(nodes, edges, laws, own_ids=True)


def _fit(fits: Any, name: Any) -> str:
    if not isinstance(name, str) or fits(name) is None:
        raise ValueError(f"{name!r} is no name of a row")
    return name


def _fields(row: dict[str, Any]) -> dict[str, str]:
    fields = row["fields"]
    if not all(is_key(key) and isinstance(value, str) for key, value in fields.items()):
        raise TypeError("fields are text")
    return dict(fields)
