"""script.py PAGES_URL: the public Python client, unmodified, on browsers.playwright.execute. It prints what it saw."""
import json
import os
import sys
import threading

import kernel
from kernel import Kernel

pages = sys.argv[1]
client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
saw = {}


def refused(call):
    try:
        call()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


session = client.browsers.create(headless=True, timeout_seconds=900)
id = session.session_id


def execute(code, **more):
    return client.browsers.playwright.execute(id, code=code, **more)


try:
    done = execute(f"await page.goto('{pages}/form'); console.log('there'); return await page.title();")
    saw["title"] = [done.success, done.result, done.stdout, done.error]
    saw["types"] = execute("enum A { B = 2 }\nconst x: A = A.B;\nreturn { x }").result
    failed = execute("const a = 1;\nthrow new Error('no')")
    saw["error"] = [failed.success, failed.error, failed.result]
    saw["syntax"] = execute("const a = 1;\nconst b: = 2;").error.splitlines()[-1].strip()
    late = execute("console.log('so far'); while (true) {}", timeout_sec=30)
    saw["late"] = [late.success, late.error, late.stdout]
    saw["after"] = execute("return 2").result
    saw["bounds"] = refused(lambda: execute("1", timeout_sec=601))
    saw["empty"] = refused(lambda: execute(""))
    fetched = execute(f"const answer = await fetch('{pages}/form'); return answer.status")
    saw["fetch"] = fetched.result

    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(execute(f"console.log({n}); return {n}"))) for n in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    saw["together"] = sorted([r.result for r in results if r.stdout == f"{r.result}\n"])
finally:
    client.browsers.delete_by_id(id)
saw["deleted"] = refused(lambda: execute("return 1"))
print(json.dumps(saw))
