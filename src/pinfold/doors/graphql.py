"""GraphQL over a store: a document in, {data} or {errors} out. No other endpoint is ever called.

What a request may cost is known before it runs: its length, its words, its depth and the rows it could read at most.
Every error has `extensions.code`; what only we should see stays on stderr.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pinfold.errors import PinfoldError, Refused

if TYPE_CHECKING:
    from graphql import DocumentNode, OperationDefinitionNode, SelectionSetNode

    from pinfold.doors.graphql_schema import Request

QUERY_CHARS = 100_000
WORDS = 5_000
"""Lexical tokens of a document."""
DEPTH = 12
"""Fields inside fields; __schema and __type may go as deep as the usual introspection does."""
INTROSPECTION_DEPTH = 16
COST = 20_000
"""Fields that a request could resolve at most, lists counted with their `first`."""
INTROSPECTION_COST = 150_000
"""The same for what a request asks of the schema itself, whose fields cost less: twice what the usual introspection asks."""
ERRORS = 20
MUTATIONS = 100


def execute(request: Request, query: str, variables: dict[str, Any] | None = None, operation_name: str | None = None) -> dict[str, Any]:
    """Return {"data"} with or without {"errors"} of a query or mutation; {"errors"} alone where it was not run."""
    from graphql import ExecutionResult, execute_sync

    from pinfold.doors.graphql_schema import schema

    try:
        document, operation = prepare(query, variables, operation_name)
        if operation.operation.value == "subscription":
            hint = "POST it to /graphql with Accept: text/event-stream"
            raise Refused("a subscription is a stream, and this door answers once", code="subscription_over_http", hint=hint)
        built = schema()
        request.begin()
        found = execute_sync(built, document, context_value=request, variable_values=variables or {}, operation_name=operation_name, max_coercion_errors=ERRORS)
    except PreparedErrors as refused:
        return {"errors": refused.errors}
    except PinfoldError as error:
        return {"errors": [shape_of(error)]}
    except RecursionError:
        return {"errors": [too_much("the document is nested too deeply", "query_too_deep")]}
    assert isinstance(found, ExecutionResult)
    return result_shape(found)


class PreparedErrors(Exception):
    """The errors of a document that is not run."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__("errors")
        self.errors = errors


def prepare(query: str, variables: dict[str, Any] | None, operation_name: str | None) -> tuple[DocumentNode, OperationDefinitionNode]:
    """Return the parsed, valid and affordable document, and its operation. Raises PreparedErrors."""
    from graphql import GraphQLError, parse, validate
    from graphql.utilities import get_operation_ast

    from pinfold.doors.graphql_schema import schema

    if len(query) > QUERY_CHARS:
        raise PreparedErrors([too_much(f"the document has more than {QUERY_CHARS} characters", "query_too_large")])
    try:
        document = parse(query, max_lexical_tokens=WORDS)
    except GraphQLError as error:
        aborted = "Parsing aborted" in error.message
        code = "query_too_deep" if aborted and "deeply" in error.message else "query_too_large" if aborted else "bad_query"
        raise PreparedErrors([_formatted(error, code)]) from None
    except RecursionError:
        raise PreparedErrors([too_much("the document is nested too deeply", "query_too_deep")]) from None
    try:
        check_shape(document, operation_name)
        faults = validate(schema(), document, max_errors=ERRORS)
        if faults:
            raise PreparedErrors([_formatted(fault, "bad_query") for fault in faults[:ERRORS]])
        operation = get_operation_ast(document, operation_name)
        if operation is None:
            hint = "name one with operationName" if operation_name is None else "it is none of the document's operations"
            raise PreparedErrors([{"message": "which operation is meant?", "extensions": {"code": "bad_query", "hint": hint}}])
        costs = Cost(document, variables or {})
        cost = costs.of_operation(operation)
    except RecursionError:
        raise PreparedErrors([too_much("the document is nested too deeply", "query_too_deep")]) from None
    if cost > COST:
        hint = f"at most {COST}: smaller pages (first), fewer lists inside lists"
        raise PreparedErrors([too_much(f"the request could resolve {min(cost, 10**12)} fields", "query_too_costly", hint)])
    if costs.of_schema > INTROSPECTION_COST:
        hint = "ask for __schema once, without aliases"
        raise PreparedErrors([too_much(f"the request could resolve {min(costs.of_schema, 10**12)} fields of the schema", "query_too_costly", hint)])
    return document, operation


# --- limits -------------------------------------------------------------------------------------------------------


def check_shape(document: DocumentNode, operation_name: str | None) -> None:
    """Refuse what is too deep before the validator walks it. Raises PreparedErrors."""
    from graphql import FragmentDefinitionNode, OperationDefinitionNode

    fragments = {node.name.value: node.selection_set for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    depths: dict[str, int] = {}

    def depth(selections: SelectionSetNode | None, inside: frozenset[str], most: int) -> int:
        deepest = 0
        for node in selections.selections if selections is not None else ():
            if node.kind == "field":
                name = node.name.value  # type: ignore[attr-defined]
                own = INTROSPECTION_DEPTH if name in ("__schema", "__type") else most
                found = 1 + depth(node.selection_set, inside, own)  # type: ignore[attr-defined]
                if found > own:
                    raise PreparedErrors([too_much(f"fields are nested {found} deep or more, the most is {own}", "query_too_deep")])
                deepest = max(deepest, found if own == most else 1)
            elif node.kind == "inline_fragment":
                deepest = max(deepest, depth(node.selection_set, inside, most))  # type: ignore[attr-defined]
            else:
                name = node.name.value  # type: ignore[attr-defined]
                if name in inside or name not in fragments:
                    continue  # a circle or an unknown name: the validator tells of it
                if name not in depths:
                    depths[name] = depth(fragments[name], inside | {name}, INTROSPECTION_DEPTH)
                deepest = max(deepest, depths[name])
        return deepest

    for node in document.definitions:
        if isinstance(node, OperationDefinitionNode):
            found = depth(node.selection_set, frozenset(), DEPTH)
            inside = [n.name.value for n in node.selection_set.selections if n.kind == "field"]  # type: ignore[attr-defined]
            if found > DEPTH and not any(name.startswith("__") for name in inside):
                raise PreparedErrors([too_much(f"fields are nested {found} deep, the most is {DEPTH}", "query_too_deep")])


class Cost:
    """The fields a valid document could resolve at most."""

    def __init__(self, document: DocumentNode, variables: dict[str, Any]) -> None:
        from graphql import FragmentDefinitionNode

        self._fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
        self._known: dict[tuple[str, bool], int] = {}
        self._known_of_schema: dict[str, int] = {}
        self._variables = variables
        self.of_schema = 0
        """The fields of the schema itself, counted apart."""

    def of_operation(self, operation: OperationDefinitionNode) -> int:
        defaults = {node.variable.name.value: getattr(node.default_value, "value", None) for node in operation.variable_definitions or ()}
        self._variables = {**{name: value for name, value in defaults.items() if value is not None}, **self._variables}
        if operation.operation.value == "mutation":
            asked = sum(1 for node in operation.selection_set.selections if node.kind == "field")
            if asked > MUTATIONS:
                raise PreparedErrors([too_much(f"{asked} changes in one request, the most is {MUTATIONS}", "query_too_costly")])
        return self._of(operation.selection_set)

    def _of(self, selections: SelectionSetNode | None, in_page: bool = False) -> int:
        """Return the fields of a selection. in_page: it is that of a connection, whose `edges` are as many as its page."""
        total = 0
        for node in selections.selections if selections is not None else ():
            if node.kind == "fragment_spread":
                name = node.name.value  # type: ignore[attr-defined]
                if (name, in_page) not in self._known:
                    self._known[name, in_page] = self._of(self._fragments[name].selection_set, in_page)
                total += self._known[name, in_page]
            elif node.kind == "inline_fragment":
                total += self._of(node.selection_set, in_page)  # type: ignore[attr-defined]
            else:
                name = node.name.value  # type: ignore[attr-defined]
                if name in ("__schema", "__type"):
                    self.of_schema += self._of_schema(node.selection_set)  # type: ignore[attr-defined]
                    continue
                pages = name in _PAGED and not (in_page and name == "edges")
                total += 1 + (self._times(node) if pages else 1) * self._of(node.selection_set, pages)  # type: ignore[attr-defined]
        return total

    def _of_schema(self, selections: SelectionSetNode | None) -> int:
        total = 0
        for node in selections.selections if selections is not None else ():
            if node.kind == "fragment_spread":
                name = node.name.value  # type: ignore[attr-defined]
                if name not in self._known_of_schema:
                    self._known_of_schema[name] = self._of_schema(self._fragments[name].selection_set)
                total += self._known_of_schema[name]
            elif node.kind == "inline_fragment":
                total += self._of_schema(node.selection_set)  # type: ignore[attr-defined]
            else:
                total += 1 + _OF_SCHEMA.get(node.name.value, 1) * self._of_schema(node.selection_set)  # type: ignore[attr-defined]
        return total

    def _times(self, node: Any) -> int:
        from pinfold.doors.graphql_schema import PAGE, PAGE_MAX

        for argument in node.arguments or ():
            if argument.name.value == "first":
                value = argument.value
                given = self._variables.get(value.name.value) if value.kind == "variable" else getattr(value, "value", PAGE)
                try:
                    return max(1, min(int(given if given is not None else PAGE), PAGE_MAX))
                except (TypeError, ValueError):
                    return PAGE_MAX
        return PAGE


_PAGED = frozenset(("sessions", "slots", "promises", "nodes", "laws", "log", "edges"))
"""Fields that take `first`."""
_OF_SCHEMA = {"types": 50, "fields": 8, "args": 3, "directives": 6, "inputFields": 3, "enumValues": 3, "interfaces": 2, "possibleTypes": 2}
"""Lists of the schema itself, with about what is in them."""


# --- errors -------------------------------------------------------------------------------------------------------


def shape_of(error: PinfoldError) -> dict[str, Any]:
    """Return a refusal as a GraphQL error; of many problems the first, its message says how many there are."""
    shape = error.shape()
    extensions = {"code": shape["code"], "hint": shape["hint"], **({"errors": shape["errors"][:ERRORS]} if shape.get("errors") else {})}
    return {"message": shape["message"], "extensions": extensions}


def too_much(message: str, code: str, hint: str = "split the request") -> dict[str, Any]:
    return {"message": message, "extensions": {"code": code, "hint": hint}}


def _formatted(error: Any, code: str) -> dict[str, Any]:
    """Return a GraphQLError with a code: that of the refusal it came of, else the one given."""
    shape: dict[str, Any] = {"message": str(error.message)[:1000]}
    if error.locations:
        shape["locations"] = [{"line": place.line, "column": place.column} for place in error.locations[:5]]
    if error.path:
        shape["path"] = list(error.path)
    shape["extensions"] = {"code": code}
    cause = error.original_error
    if isinstance(cause, PinfoldError):
        shape.update(shape_of(cause))
    elif cause is not None and type(cause).__name__ != "GraphQLError" and (error.path or not isinstance(cause, (TypeError, ValueError))):
        shape |= _internal(cause)
    return shape


def _internal(cause: BaseException) -> dict[str, Any]:
    import traceback

    traceback.print_exception(cause, file=sys.stderr)
    return {"message": "the field could not be resolved", "extensions": {"code": "internal", "hint": "a bug in pinfold: the server's stderr has the traceback"}}


def result_shape(found: Any) -> dict[str, Any]:
    """Return an execution's result as JSON."""
    result: dict[str, Any] = {}
    if found.errors:
        result["errors"] = [_formatted(error, "bad_query" if found.data is None and not error.path else "failed") for error in found.errors[:ERRORS]]
    if found.data is not None or not found.errors:
        result["data"] = found.data
    return result
