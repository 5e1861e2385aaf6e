"""kernel_newest.py PAGES_URL: the methods that only the newest public client has, and those of proxies and telemetry, with the
unmodified client, which checks each answer against its own types. Prints what it saw, and the refusals of methods that Casement
does not have."""

import json
import os
import sys

import kernel

pages = sys.argv[1]
client = kernel.Kernel(
    base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300, _strict_response_validation=True
)
saw = {}


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return error.body["code"]
    return "not refused"


def scripts(id):
    register = (
        "document.modelContext.registerTool({ name: 'double', description: 'doubles', "
        "inputSchema: { type: 'object' }, execute: async ({ n }) => n * 2 })"
    )
    code = f"await page.goto('{pages}/form'); await page.evaluate(() => {{ {register} }}); return page.title()"
    title = client.browsers.playwright.execute(id, code=code, executor="tools").result
    executors = [one.name for one in client.browsers.playwright.executors.list(id).executors]
    tool = client.browsers.webmcp.list_tools(id).tools[0]
    doubled = client.browsers.webmcp.invoke_tool(id, tool_ref=tool.tool_ref, input={"n": 21})
    client.browsers.repl(id, code="let six = 6")
    answer = client.browsers.repl(id, code="repl.write(six * 7)")
    client.browsers.playwright.executors.delete("tools", id_or_name=id)
    return [title, executors, tool.tool.name, doubled.output, answer.content[0].text]


WORD_TOOL = """[{
    kind: "page", match: { url_patterns: ["*://*/form"] },
    tool: { name: "word", description: "Returns its word", inputSchema: { type: "object" } },
    execute: ({ word }) => ({ word, title: document.title }),
}]"""


def custom_tools(id):
    of, webmcp = client.browsers.webmcp.custom_tools, client.browsers.webmcp
    client.browsers.playwright.execute(id, code=f"await page.goto('{pages}/form')")
    [added] = of.add(id, namespace="words", source=WORD_TOOL).tools
    again = refused(lambda: of.add(id, namespace="words", source=WORD_TOOL))
    [replaced] = of.add(id, namespace="words", source=WORD_TOOL, force_overwrite_namespace=True).tools
    listed = [one.id == replaced.id for one in of.list(id).tools]
    [tool] = [one for one in webmcp.list_tools(id).tools if one.source.custom]
    without = [one for one in webmcp.list_tools(id, exclude_custom=True).tools if one.source.custom]
    output = webmcp.invoke_tool(id, tool_ref=tool.tool_ref, input={"word": "tea"}).output
    of.remove(replaced.id, id_or_name=id)
    return [added.kind, again, listed, without, output, of.list(id).tools]


def events(id):
    client.browsers.update(id, telemetry={"enabled": True, "browser": {"console": {"enabled": True}}})
    with client.browsers.telemetry.stream(id) as stream:
        client.browsers.playwright.execute(id, code="await page.evaluate(() => console.log('told'))")
        told = next(one.event for one in stream if one.event.type == "console_log")
    read = client.browsers.telemetry.events(id, since="2020-01-01T00:00:00Z", type=["console_log"])
    return [told.type, {one.event.type for one in read} == {"console_log"}]


def proxies():
    config = {"host": "127.0.0.1", "port": 9}
    made = client.proxies.create(type="custom", name="nowhere", protocol="http", config=config)
    listed = [proxy.id == made.id for proxy in client.proxies.list(name="nowhere")]
    renamed = client.proxies.update(made.id, name="elsewhere").name
    read = client.proxies.retrieve("elsewhere").id == made.id
    checked = client.proxies.check(made.id).status
    client.proxies.delete(made.id)
    return [listed, renamed, read, checked]


def destinations():
    of = client.telemetry.destinations
    made = of.create(name="collector", endpoint=pages, headers={"x-token": "hunter2-of-a-collector"})
    listed = [one.id == made.id for one in of.list()]
    renamed = of.update("collector", name="other").name
    read = of.retrieve("other").endpoint
    of.delete(made.id)
    return [listed, renamed, read, refused(lambda: of.retrieve(made.id))]


def refusals():
    """The codes of methods that Casement does not have, by their area."""
    analyses, configs = client.config_registry.analyses, client.vault_provider_configs
    vaults, search = client.vaults, client.search
    item = {"key": "card", "id_or_name": "v"}
    card = {"type": "card", "spec": {"provider": "agentcard"}}
    config = {"name": "c", "provider": "link", "credentials": {"client_id": "a", "client_secret": "b"}}
    calls = {
        "config_registry": [
            lambda: client.config_registry.list(), lambda: client.config_registry.lookup(url="https://a.example"),
            lambda: client.config_registry.resolve(url="https://a.example"), lambda: analyses.list(),
            lambda: analyses.retrieve("x"), lambda: analyses.cancel("x"), lambda: analyses.wait_for_result("x"),
        ],
        "search": [
            lambda: search.create(query="a"), lambda: search.retrieve("x"), lambda: search.providers.list(),
            lambda: search.contents.fetch("x"),
        ],
        "vault_provider_configs": [
            lambda: configs.create(**config), lambda: configs.list(), lambda: configs.retrieve("x"),
            lambda: configs.update("x", name="d"), lambda: configs.delete("x"),
        ],
        "vaults": [
            lambda: vaults.upsert(name="v"), lambda: vaults.list(), lambda: vaults.retrieve("v"),
            lambda: vaults.retrieve_encryption_key("v"), lambda: vaults.delete("v"),
            lambda: vaults.items.upsert(**item, **card), lambda: vaults.items.update(**item, **card),
            lambda: vaults.items.list("v"), lambda: vaults.items.retrieve(**item), lambda: vaults.items.events(**item),
            lambda: vaults.items.perform_operation(**item, type="authorize"), lambda: vaults.items.delete(**item),
        ],
    }
    return {area: sorted({refused(one) for one in area_calls}) for area, area_calls in calls.items()}


session = client.browsers.create(headless=True, timeout_seconds=600)
try:
    saw["scripts"] = scripts(session.session_id)
    saw["custom_tools"] = custom_tools(session.session_id)
    saw["events"] = events(session.session_id)
finally:
    client.browsers.delete_by_id(session.session_id)
saw["proxies"] = proxies()
saw["destinations"] = destinations()
saw["entitlements"] = bool(client.organization.entitlements.retrieve().to_dict())
saw["context"] = bool(client.auth.context.retrieve().to_dict())
saw["refusals"] = refusals()
print(json.dumps(saw))
