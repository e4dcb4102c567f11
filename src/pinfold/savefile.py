"""A session as a text file: `state/saved.py` for its rows, and here what is no row: settings, slots, where the journal stands."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pinfold.errors import Refused
from pinfold.state.saved import format_saved, parse_saved, whole
from pinfold.state.session import SessionState, Settings
from pinfold.state.silo import Silo, Slot
from pinfold.state.value import Blob, Json, Stored, unpack_raw


def save_lines(name: str, state: SessionState, fetch: Callable[[Blob], bytes]) -> Iterator[str]:
    """Yield the lines of a session's file. fetch: returns the bytes of a large value."""
    more = {
        "at_ms": str(state.at_ms),
        "next_index": str(state.silo.next_index),
        "last_token": str(state.promises.last_token),
        "settings": json.dumps(msgspec.to_builtins(state.settings), ensure_ascii=False),
    }
    slots = (_slot_fields(key, slot, fetch) for key, slot in state.silo.slots.items())
    yield from format_saved(state.graph, state.schema, session=name, seq=state.seq, more=more, slots=slots)


def _slot_fields(key: str, slot: Slot, fetch: Callable[[Blob], bytes]) -> dict[str, str]:
    """Return a slot's fields. An empty field is an absent one in the dialect, so no value is `empty=true`, not `text=`."""
    value: Any = slot.value
    if isinstance(value, Blob):
        raw = fetch(value)
        value = Json(raw) if value.kind == "j" else unpack_raw(raw, value.kind)
    fields = {"key": key} if key else {"nokey": "true"}
    fields |= {"index": str(slot.index), "stored": str(slot.stored_at_ms)}
    if slot.expires_at_ms is not None:
        fields["expires"] = str(slot.expires_at_ms)
    if slot.actor is not None:
        fields["by"] = slot.actor
    if slot.extra:
        fields["extra"] = json.dumps(slot.extra)
    if isinstance(value, Json):
        return {**fields, "json": value.text.decode()}
    if isinstance(value, bytes):
        return {**fields, "base64": base64.b64encode(value).decode()} if value else {**fields, "empty": "bytes"}
    return {**fields, "value": value} if value else {**fields, "empty": "text"}


def load_text(text: str, pack: Callable[[Any], Stored]) -> tuple[str, SessionState]:
    """Return (the name a file was saved under, the state it holds). pack: keeps a value, the large ones beside the state.

    Raises DocumentRefused with every line that does not parse, Refused `bad_snapshot`; nothing is half-loaded.
    """
    saved = parse_saved(text)
    try:
        state = SessionState()
        state.seq, state.at_ms = saved.seq, whole(saved.head["at_ms"])
        state.settings = msgspec.convert(json.loads(saved.head["settings"]), Settings)
        for size in (state.settings.silo_size, state.settings.ttl_ms, state.settings.promote_after):
            if size is not None and not 0 < size < 1 << 53:
                raise ValueError(f"{size} is not possible")
        state.graph, state.schema = saved.graph, saved.schema
        state.promises.last_token = whole(saved.head["last_token"])
        state.silo = Silo()
        state.silo.silo_size = state.settings.silo_size
        for fields in saved.slots:
            _load_slot(state.silo, fields, pack)
        state.silo.next_index = whole(saved.head["next_index"])
        state.index_inputs()
    except (KeyError, ValueError, msgspec.ValidationError) as error:
        raise Refused(f"the file is damaged: {error!r}", code="bad_snapshot", hint="`session load` reads what `session save` wrote") from error
    if state.silo.silo_size is not None:
        state.recency.order.update(dict.fromkeys(state.silo.slots))
    return saved.session, state


_EMPTY: dict[str, Stored] = {"bytes": b"", "text": ""}


def _load_slot(silo: Silo, fields: dict[str, str], pack: Callable[[Any], Stored]) -> None:
    value: Stored
    if "json" in fields:
        value = pack(json.loads(fields["json"]))
    elif "base64" in fields:
        value = pack(base64.b64decode(fields["base64"], validate=True))
    else:
        value = pack(fields["value"]) if "value" in fields else _EMPTY[fields["empty"]]
    expires = fields.get("expires")
    extra = json.loads(fields["extra"]) if "extra" in fields else None
    slot = Slot(whole(fields["index"]), value, whole(expires) if expires else None, whole(fields["stored"]), fields.get("by"), extra)
    silo._put(fields.get("key", ""), slot)
