"""The HTTP door with the fixture tools, prompts and resources that the official conformance suite calls.

They are added to the door's own server: what the suite exercises is pinfold's transport, guard, routing and protocol.
Run: python tests/conformance/server.py PORT
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import sys
import zlib
from typing import Any

import mcp_types as types
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

from pinfold import Memory
from pinfold.doors import http
from pinfold.errors import PinfoldError


def _png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    raw = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    )
    return base64.b64encode(raw).decode()


def _wav() -> str:
    return base64.b64encode(
        b"RIFF" + struct.pack("<I", 38) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", 2) + b"\x80\x80"
    ).decode()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


IMAGE = {"type": "image", "data": _png(), "mimeType": "image/png"}
PLAIN: dict[str, list[dict[str, Any]]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": _wav(), "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        {"type": "resource", "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content."}}
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        {"type": "resource", "resource": {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}},
    ],
    "json_schema_2020_12_tool": [text("ok")],
    "test_headers_mirrored": [text("ok")],
}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING = {"type": "string"}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ],
        },
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First Choice"},
                    {"const": "value2", "title": "Second Choice"},
                    {"const": "value3", "title": "Third Choice"},
                ]
            },
        },
    },
}


def elicit(message: str, **properties: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": object_of(**properties)}}


def sample(words: str, most: int = 100) -> dict[str, Any]:
    return {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": text(words)}], "maxTokens": most}}


ROOTS = {"method": "roots/list", "params": {}}
ASKS: dict[str, list[dict[str, Any]]] = {
    "test_input_required_result_elicitation": [{"user_name": elicit("What is your name?", name=STRING)}],
    "test_input_required_result_sampling": [{"capital_question": sample("What is the capital of France?")}],
    "test_input_required_result_list_roots": [{"client_roots": ROOTS}],
    "test_input_required_result_request_state": [{"confirm": elicit("Please confirm", ok={"type": "boolean"})}],
    "test_input_required_result_multiple_inputs": [
        {"user_name": elicit("What is your name?", name=STRING), "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS}
    ],
    "test_input_required_result_multi_round": [
        {"step1": elicit("Step 1: What is your name?", name=STRING)},
        {"step2": elicit("Step 2: What is your favorite color?", color=STRING)},
    ],
    "test_input_required_result_tampered_state": [{"confirm": elicit("Please confirm", ok={"type": "boolean"})}],
    "test_input_required_result_capabilities": [{"name": elicit("What is your name?", name=STRING), "say": sample("Say hello")}],
    "test_streaming_elicitation": [{"user_name": elicit("What is your name?", name=STRING)}],
}
STATEFUL = ("request_state", "multiple_inputs", "multi_round", "tampered_state")
OTHER = ("test_error_handling", "test_tool_with_progress", "test_tool_with_logging", "test_logging_tool", "test_sampling", "test_elicitation",
         "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums", "test_missing_capability", "test_trigger_tool_change",
         "test_trigger_prompt_change", "test_reconnection")  # fmt: skip


def schema_of(name: str) -> dict[str, Any]:
    if name == "json_schema_2020_12_tool":
        return SCHEMA_2020
    if name == "test_headers_mirrored":
        return {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    words = {"test_sampling": "prompt", "test_elicitation": "message"}.get(name)
    return {"type": "object", "properties": {words: STRING}, "required": [words]} if words else {"type": "object", "properties": {}}


def asks(name: str, params: Any, capabilities: Any) -> dict[str, Any]:
    """Answer a tool or prompt that asks its client before it can go on."""
    rounds = ASKS[name]
    state = json.loads(params.request_state) if params.request_state else {"round": 0}
    given = params.input_responses or {}
    place = int(state["round"])
    if place > 0 or given:
        wanted = rounds[max(0, place - 1)] if any(word in name for word in STATEFUL) else rounds[0]
        place = rounds.index(wanted) + 1 if set(wanted) <= set(given) and all(isinstance(_plain(given[key]), dict) for key in wanted) else rounds.index(wanted)
    if place == len(rounds):
        return {"content": [text(f"state-ok: {json.dumps({key: _plain(value) for key, value in given.items()})}")]}
    requests = rounds[place]
    if name == "test_input_required_result_capabilities" and capabilities is not None:
        requests = {
            key: ask
            for key, ask in requests.items()
            if (ask["method"].startswith("sampling") and capabilities.sampling) or (ask["method"].startswith("elicit") and capabilities.elicitation)
        }
    shape: dict[str, Any] = {"resultType": "input_required", "inputRequests": requests}
    return {**shape, "requestState": json.dumps({"round": place + 1})} if any(word in name for word in STATEFUL) else shape


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else value


class Fixtures:
    def __init__(self, door: http.HttpDoor) -> None:
        self.door = door

    def __call__(self, server: Any) -> None:
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="pinfold"))
        own = {method: server.get_request_handler(method).handler for method in METHODS}
        for method, kind in METHODS.items():
            handler = getattr(self, method.replace("/", "_"))
            server.add_request_handler(method, kind, lambda ctx, params, handler=handler, own=own[method]: handler(ctx, params, own))
        server.get_tool_input_schema = lambda name: schema_of(name) if name in PLAIN else None  # one of them wants a header
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self.set_level)

    async def set_level(self, ctx: Any, params: Any) -> Any:
        return types.EmptyResult()

    async def tools_list(self, ctx: Any, params: Any, own: Any) -> Any:
        listed = await own(ctx, params)
        more = [types.Tool(name=name, description=f"fixture {name}", input_schema=schema_of(name)) for name in (*PLAIN, *ASKS, *OTHER)]
        return types.ListToolsResult(tools=[*listed.tools, *more])

    async def tools_call(self, ctx: Any, params: Any, own: Any) -> Any:
        name, arguments = params.name, params.arguments or {}
        if name in PLAIN:
            return {"resultType": "complete", "content": PLAIN[name]}
        if name in ASKS:
            return {"resultType": "complete", **asks(name, params, ctx.session.client_capabilities)}
        run = getattr(self, name, None) if name in OTHER else None
        return await own(ctx, params) if run is None else {"resultType": "complete", **await run(ctx, arguments)}

    async def test_error_handling(self, ctx: Any, arguments: Any) -> Any:
        return {"isError": True, "content": [text("This tool intentionally returns an error for testing")]}

    async def test_tool_with_progress(self, ctx: Any, arguments: Any) -> Any:
        for share in (0, 50, 100):
            await ctx.session.report_progress(share, 100, f"{share} of 100")
            await asyncio.sleep(0.05)
        return {"content": [text("done")]}

    async def test_tool_with_logging(self, ctx: Any, arguments: Any) -> Any:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
            await asyncio.sleep(0.05)
        return {"content": [text("done")]}

    test_logging_tool = test_tool_with_logging

    async def test_sampling(self, ctx: Any, arguments: Any) -> Any:
        message = types.SamplingMessage(role="user", content=types.TextContent(text=arguments.get("prompt", "")))
        found = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        return {"content": [text(f"LLM response: {getattr(found.content, 'text', found.content)}")]}

    async def _elicit(self, ctx: Any, message: str, schema: dict[str, Any], told: str) -> Any:
        found = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
        return {"content": [text(f"{told}: action={found.action}, content={json.dumps(found.content)}")]}

    async def test_elicitation(self, ctx: Any, arguments: Any) -> Any:
        return await self._elicit(ctx, arguments.get("message", ""), object_of(username=STRING, email=STRING), "User response")

    async def test_elicitation_sep1034_defaults(self, ctx: Any, arguments: Any) -> Any:
        return await self._elicit(ctx, "Defaults", DEFAULTS, "Elicitation completed")

    async def test_elicitation_sep1330_enums(self, ctx: Any, arguments: Any) -> Any:
        return await self._elicit(ctx, "Enums", ENUMS, "Elicitation completed")

    async def test_missing_capability(self, ctx: Any, arguments: Any) -> Any:
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            raise MCPError(code=types.MISSING_REQUIRED_CLIENT_CAPABILITY, message="sampling is needed", data={"requiredCapabilities": {"sampling": {}}})
        return {"content": [text("ok")]}

    async def test_trigger_tool_change(self, ctx: Any, arguments: Any) -> Any:
        await self.door.publish(ToolsListChanged())
        return {"content": [text("changed")]}

    async def test_trigger_prompt_change(self, ctx: Any, arguments: Any) -> Any:
        await self.door.publish(PromptsListChanged())
        return {"content": [text("changed")]}

    async def test_reconnection(self, ctx: Any, arguments: Any) -> Any:
        await asyncio.sleep(0.1)
        return {"content": [text("Reconnection test completed")]}

    # --- prompts and resources ------------------------------------------------------------------------------------

    async def prompts_list(self, ctx: Any, params: Any, own: Any) -> Any:
        listed = await own(ctx, params)
        arguments = {"test_prompt_with_arguments": ["arg1", "arg2"], "test_prompt_with_embedded_resource": ["resourceUri"]}
        more = [
            {"name": name, "description": f"fixture {name}", "arguments": [{"name": word, "required": True} for word in arguments.get(name, ())]}
            for name in ("test_simple_prompt", *arguments, "test_prompt_with_image", "test_input_required_result_prompt")
        ]
        return types.ListPromptsResult.model_validate({"prompts": [*(p.model_dump(by_alias=True, exclude_none=True) for p in listed.prompts), *more]})

    async def prompts_get(self, ctx: Any, params: Any, own: Any) -> Any:
        name, given = params.name, params.arguments or {}
        if name == "test_input_required_result_prompt":
            if not (params.input_responses or {}).get("user_context"):
                return {"resultType": "input_required", "inputRequests": {"user_context": elicit("What context should the prompt use?", context=STRING)}}
            contents = [text("with context")]
        elif name == "test_simple_prompt":
            contents = [text("This is a simple prompt for testing.")]
        elif name == "test_prompt_with_arguments":
            contents = [text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]
        elif name == "test_prompt_with_embedded_resource":
            found = {"uri": given.get("resourceUri", ""), "mimeType": "text/plain", "text": "Embedded resource content for testing."}
            contents = [{"type": "resource", "resource": found}, text("Please process the embedded resource above.")]
        elif name == "test_prompt_with_image":
            contents = [IMAGE, text("Please analyze the image above.")]
        else:
            return await own(ctx, params)
        return {"resultType": "complete", "messages": [{"role": "user", "content": content} for content in contents]}

    async def resources_list(self, ctx: Any, params: Any, own: Any) -> Any:
        listed = await own(ctx, params)
        more = [
            {"uri": "test://static-text", "name": "text", "description": "fixture", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "binary", "description": "fixture", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "watched", "description": "fixture", "mimeType": "text/plain"},
        ]
        return types.ListResourcesResult.model_validate({"resources": [*(r.model_dump(by_alias=True, exclude_none=True) for r in listed.resources), *more]})

    async def resources_templates_list(self, ctx: Any, params: Any, own: Any) -> Any:
        listed = await own(ctx, params)
        more = [{"uriTemplate": "test://template/{id}/data", "name": "template", "description": "fixture", "mimeType": "application/json"}]
        shown = [t.model_dump(by_alias=True, exclude_none=True) for t in listed.resource_templates]
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [*shown, *more]})

    async def resources_read(self, ctx: Any, params: Any, own: Any) -> Any:
        uri = str(params.uri)
        if uri == "test://static-text":
            found = {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}
        elif uri == "test://static-binary":
            found = {"uri": uri, "mimeType": "image/png", "blob": _png()}
        elif uri.startswith("test://template/") and uri.endswith("/data"):
            id = uri.split("/")[3]
            found = {"uri": uri, "mimeType": "application/json", "text": json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})}
        else:
            return await own(ctx, params)
        return types.ReadResourceResult.model_validate({"contents": [found]})

    async def resources_subscribe(self, ctx: Any, params: Any, own: Any) -> Any:
        return types.EmptyResult() if str(params.uri).startswith("test://") else await own(ctx, params)

    async def resources_unsubscribe(self, ctx: Any, params: Any, own: Any) -> Any:
        return types.EmptyResult() if str(params.uri).startswith("test://") else await own(ctx, params)


METHODS: dict[str, Any] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
}


async def main(port: int) -> None:
    import uvicorn

    memory = Memory("memory://")
    door = http.HttpDoor(memory, default_session=lambda: "conformance", toolset="all")
    guard, manager = http.build_app(door, also=Fixtures(door))
    listening = http.bind("127.0.0.1", port)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    async with manager.run():
        await uvicorn.Server(uvicorn.Config(guard, lifespan="off", log_level="error")).serve(sockets=[listening])


if __name__ == "__main__":
    try:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    except PinfoldError as error:
        sys.exit(str(error))
