"""Runs programs inside a session, talks to one of them, and reads a log, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python process.py
"""
import base64
import os

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
process, logs = client.browsers.process, client.browsers.logs

session = client.browsers.create(headless=True)
id = session.session_id
try:
    done = process.exec(id, command="whoami; pwd", timeout_sec=10)  # a line for a shell; with args= a program
    print(done.exit_code, base64.b64decode(done.stdout_b64).decode().split())

    # The log has each line before it is said.
    echo = process.spawn(id, command='while read -r line; do echo "$line" >> /tmp/heard.log; echo "$line"; done')
    process.stdin(echo.process_id, id=id, data_b64=base64.b64encode(b"hello\n").decode())
    for event in process.stdout_stream(echo.process_id, id=id):
        if event.event == "exit":
            print("exit", event.exit_code)  # 128 and the number of the signal
            break
        print(event.stream, base64.b64decode(event.data_b64))
        process.kill(echo.process_id, id=id, signal="TERM")

    for line in logs.stream(id, source="path", path="/tmp/heard.log", follow=False):
        print(line.message)
finally:
    client.browsers.delete_by_id(id)
