"""The row of GraphQL: a query over this store, for those who know it from elsewhere."""

from __future__ import annotations

from typing import Any

from pinfold.errors import ConfigurationError, Refused
from pinfold.operations.table import Call, Operation, Param


def _graphql(
    call: Call,
    query: str,
    variables: dict[str, Any] | None,
    operationName: str | None,  # GraphQL's own name
    endpoint: Any,
    headers: Any,
    cache_key: Any,
) -> dict[str, Any]:
    for name, given in (("endpoint", endpoint), ("headers", headers), ("cache_key", cache_key)):
        if given is not None:
            hint = "leave it out: the query runs over this store; no other endpoint is ever called"
            raise Refused(f"graphql takes no {name} here", code="bad_arguments", hint=hint)
    try:
        from pinfold.doors.graphql import execute
        from pinfold.doors.graphql_schema import Request

        return execute(Request(call), query, variables, operationName)
    except ModuleNotFoundError as error:
        raise without_package(error) from error


def without_package(error: ModuleNotFoundError) -> ConfigurationError:
    """Return what a missing graphql-core means to whoever asked; a module of ours that is missing is raised as it is."""
    if (error.name or "").partition(".")[0] != "graphql":
        raise error
    return ConfigurationError("graphql needs the package graphql-core", code="extra_missing", hint="pip install 'pinfold[graphql]'")


def _text(result: dict[str, Any]) -> str:
    import json

    return json.dumps(result, indent=2, ensure_ascii=False)


_FOREIGN = "not taken: no other endpoint is called"

ROWS = (
    Operation(
        name="graphql",
        access="read",
        doc="Query or change this store in GraphQL; introspection tells the schema.",
        params=(
            Param("query", "str", "the document", positional=True, file=True, told=False),
            Param("variables", "object", "", None, told=False),
            Param("operationName", "str", "", None, cli="operation-name", told=False),
            Param("endpoint", "any", _FOREIGN, None, cli="", mcp=False),
            Param("headers", "any", _FOREIGN, None, cli="", mcp=False),
            Param("cache_key", "any", _FOREIGN, None, cli="", mcp=False),
        ),
        handler=_graphql,
        python="",
        toolsets="SP",
        mcp="graphql",
        cli=("graphql",),
        text=_text,
        is_empty=lambda result: result.get("data") is None,
        summary="query or change the store in GraphQL",
        result="{data} | {errors}",
        writes=lambda arguments: False,
        slow=True,
        needs="graphql",
    ),
)
