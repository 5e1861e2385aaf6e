"""kernel_calls.py PAGES_URL: the public Python client, unmodified, on every call that Casement answers.

The client checks each answer against its own types (`_strict_response_validation`), except where an answer has no body.
"""
import asyncio
import json
import os
import struct
import sys

import kernel
from kernel import AsyncKernel, Kernel

pages = sys.argv[1]
where = {"base_url": os.environ["CASEMENT_URL"], "api_key": os.environ["CASEMENT_KEY"], "timeout": 300}
strict = Kernel(**where, max_retries=0, _strict_response_validation=True)
plain = Kernel(**where)
NAME = f"python-{os.getpid()}"
# The newest client sends more calls directly to the address of a session, and has another value for an empty answer.
NEWEST = hasattr(kernel.Kernel, "search")


def size(png):
    return struct.unpack(">II", png[16:24])


def shown(session):
    """Returns the URL of the page once it has loaded, which may be after the response."""
    code = "await page.waitForURL(url => url.href !== 'about:blank'); return page.url()"
    return strict.browsers.playwright.execute(session.session_id, code=code, timeout_sec=100).result


def refused(call):
    """Status and code of the error that the client raises; the detail's code where there is one."""
    try:
        call()
    except kernel.APIStatusError as error:
        details = [detail.get("code") for detail in error.body.get("details") or []]
        return [type(error).__name__, error.body["code"], *details]
    return "not refused"


def pools():
    pool = strict.browser_pools.create(
        size=1,
        name=NAME,
        headless=True,
        timeout_seconds=600,
        viewport={"width": 800, "height": 600},
        chrome_policy={"BookmarkBarEnabled": False},
    )
    assert pool.name == NAME and pool.browser_pool_config.size == 1, pool
    assert strict.browser_pools.retrieve(pool.id) == strict.browser_pools.retrieve(NAME)
    # Pools of other tests that are deleted meanwhile shift the pages: then once more.
    listed = any(pool.id in [found.id for found in strict.browser_pools.list(limit=1)] for _ in range(10))
    assert listed, "its pager goes through all pages"
    assert [found.id for found in strict.browser_pools.list(query=NAME)] == [pool.id]

    session = strict.browser_pools.acquire(
        NAME, name=NAME, tags={"from": "python"}, start_url=pages + "/green", acquire_timeout_seconds=240
    )
    assert session.pool.id == pool.id and session.name == NAME and session.tags == {"from": "python"}, session
    assert session.timeout_seconds == 600 and (session.viewport.width, session.viewport.height) == (800, 600), session
    empty = plain.browser_pools.acquire(pool.id, acquire_timeout_seconds=0)
    assert empty == (None if NEWEST else ""), "204, when nobody gave a browser back in time"

    assert shown(session) == pages + "/green"
    assert strict.browsers.retrieve(NAME).session_id == session.session_id
    assert [found.session_id for found in strict.browsers.list(tags={"from": "python"})] == [session.session_id]
    shot = strict.browsers.computer.capture_screenshot(session.session_id).read()
    part = strict.browsers.computer.capture_screenshot(
        session.session_id, region={"x": 10, "y": 20, "width": 300, "height": 200}
    ).read()

    in_use = refused(lambda: strict.browser_pools.delete(NAME))
    strict.browser_pools.release(NAME, session_id=session.session_id, reuse=True)
    gone = refused(lambda: strict.browsers.retrieve(session.session_id))
    strict.browser_pools.flush(NAME)
    grown = strict.browser_pools.update(NAME, timeout_seconds=300, start_url=pages + "/form", discard_all_idle=True)
    assert grown.browser_pool_config.timeout_seconds == 300, grown

    async def again():
        async with AsyncKernel(**where) as client:
            session = await client.browser_pools.acquire(NAME, acquire_timeout_seconds=240)
            await client.browser_pools.release(NAME, session_id=session.session_id)
            return session.timeout_seconds

    later = asyncio.run(again())
    strict.browser_pools.delete(NAME, force=True)
    return {
        "screenshot": size(shot),
        "region": size(part),
        "in use": in_use,
        "released": gone,
        "async": later,
        "deleted": refused(lambda: strict.browser_pools.retrieve(NAME)),
    }


def browsers():
    made = strict.browsers.create(
        headless=True,
        name=NAME,
        tags={"of": NAME},
        timeout_seconds=900,
        viewport={"width": 1024, "height": 768},
        start_url=pages + "/form",
    )
    assert made.headless and not made.stealth and made.name == NAME and made.timeout_seconds == 900, made
    assert made.session_id in made.base_url and "jwt=" in made.cdp_ws_url and "jwt=" in made.webdriver_ws_url, made
    assert shown(made) == pages + "/form"
    got = strict.browsers.retrieve(made.session_id)
    assert got.cdp_ws_url == made.cdp_ws_url, "an address stays the same"
    assert [found.session_id for found in strict.browsers.list(query=NAME)] == [made.session_id]
    changed = strict.browsers.update(made.session_id, name=NAME + "-b", tags={"of": "python"})
    assert changed.name == NAME + "-b" and changed.tags == {"of": "python"}, changed
    sized = strict.browsers.update(made.session_id, viewport={"width": 640, "height": 480})
    raw = strict.browsers.computer.with_raw_response.capture_screenshot(made.session_id)
    place = "vm" if NEWEST else "browsers"
    assert raw.http_request.url.path == f"/{place}/{made.session_id}/computer/screenshot", raw.http_request.url
    shot = size(raw.read())
    # With this setting the client sends these calls directly to the address of the session.
    os.environ["KERNEL_BROWSER_ROUTING_SUBRESOURCES"] = "computer"
    direct = Kernel(**where, max_retries=0, _strict_response_validation=True)
    assert direct.browsers.retrieve(made.session_id).session_id == made.session_id, "it learns the route from an answer"
    raw = direct.browsers.computer.with_raw_response.capture_screenshot(made.session_id)
    assert raw.http_request.url.path == f"/vm/{made.session_id}/computer/screenshot", raw.http_request.url
    assert "authorization" not in raw.http_request.headers, "the session's own token opens it"
    strict.browsers.delete_by_id(NAME + "-b")
    old = strict.browsers.retrieve(made.session_id, include_deleted=True)
    assert old.deleted_at is not None, old
    assert made.session_id in [found.session_id for found in strict.browsers.list(status="deleted", limit=100)]
    return {
        "viewport": [sized.viewport.width, sized.viewport.height],
        "screenshot": shot,
        "direct": size(raw.read()),
        "deleted": refused(lambda: strict.browsers.retrieve(made.session_id)),
    }


def refusals():
    stranger = Kernel(base_url=where["base_url"], api_key="csk_unknown", max_retries=0)
    return {
        "key": refused(lambda: stranger.browsers.list().items),
        "unknown": refused(lambda: strict.browsers.retrieve("01k9zk0000000000000000000a")),
        "gpu": refused(lambda: strict.browsers.create(gpu=True)),
        "profile": refused(lambda: strict.browsers.create(headless=True, profile={"name": "nobody"})),
        "viewport": refused(lambda: strict.browsers.create(headless=True, viewport={"width": 0, "height": 600})),
        "policy": refused(lambda: strict.browsers.create(headless=True, extra_body={"browser_policy": {"ProxyMode": "direct"}})),
        "route": refused(lambda: strict.get("/nothing", cast_to=object)),
    }


print(json.dumps({"pools": pools(), "browsers": browsers(), "refusals": refusals()}))
