import asyncio
import json
import os
import subprocess
import sys
import time

import kernel
from kernel import KernelContext

print("loading")
app = kernel.App("trials")
second = kernel.App("second")


@app.action("echo")
def echo(context: KernelContext, payload):
    print("echoing")
    print("to the other", file=sys.stderr)
    return {"invocation": context.invocation_id, "payload": payload, "greeting": os.environ["GREETING"]}


@app.action("alone")
def alone(context: KernelContext):
    return sorted(name for name in os.environ if name.startswith("KERNEL_"))


@app.action("later")
async def later(context: KernelContext, payload):
    await asyncio.sleep(0)
    return [payload, "later"]


@app.action("nothing")
def nothing(context: KernelContext):
    return None


@app.action("raise")
def fail(context: KernelContext):
    raise ValueError("not today")


@app.action("leave")
def leave(context: KernelContext):
    os._exit(7)


@app.action("exit")
def leave_politely(context: KernelContext):
    sys.exit("enough")


@app.action("not-json")
def not_json(context: KernelContext):
    return {1, 2}


@app.action("not-a-number")
def not_a_number(context: KernelContext):
    return float("nan")


@app.action("much")
def much(context: KernelContext):
    return "x" * (100 << 20)


@app.action("lines")
def lines(context: KernelContext):
    block = ("a line that is quite ordinary\n" * 1000).encode()
    for _ in range(10_000):
        sys.stdout.buffer.write(block)
    return "written"


@app.action("long-line")
def long_line(context: KernelContext):
    print("y" * 1_000_000)
    print("after")


@app.action("wait")
def wait(context: KernelContext):
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waiting")
    while True:
        time.sleep(1)


@app.action("wait-for")
def wait_for(context: KernelContext, payload):
    print("begun")
    time.sleep(payload)
    print("ended")
    return "waited"


@app.action("hold")
def hold(context: KernelContext):
    held = bytearray(os.urandom(1 << 20)) * 300
    while True:
        time.sleep(1)


@app.action("fork")
def fork(context: KernelContext):
    children = 0
    try:
        while True:
            if os.fork() == 0:
                time.sleep(1000)
            children += 1
    except OSError as error:
        return {"children": children, "error": type(error).__name__}


@app.action("bomb")
def bomb(context: KernelContext):
    print("forking")
    while True:
        try:
            os.fork()
        except OSError:
            pass


@app.action("eat")
def eat(context: KernelContext):
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)))


@app.action("daemon")
def daemon(context: KernelContext):
    subprocess.Popen(["/bin/sh", "-c", "while :; do sleep 1; done"], start_new_session=True)
    return "left"


@app.action("look")
def look(context: KernelContext, payload):
    found = {}
    for path in payload:
        try:
            with open(path, "rb") as file:
                found[path] = len(file.read(100))
        except OSError as error:
            found[path] = type(error).__name__
    return found


@app.action("connect")
def connect(context: KernelContext, payload):
    import socket

    found = {}
    for host, port in payload:
        try:
            with socket.create_connection((host, port), timeout=60) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                found[f"{host}:{port}"] = connection.recv(100).decode()
        except OSError as error:
            found[f"{host}:{port}"] = type(error).__name__
    return found


@app.action("proxy")
def proxy(context: KernelContext, payload):
    """Returns the proxy's status for a CONNECT and for a plain request, for each target."""
    import socket

    def ask(request):
        with socket.create_connection(("127.0.0.1", 3128), timeout=60) as connection:
            connection.sendall(request.encode())
            return connection.recv(100).decode().split(" ")[1]

    found = {}
    for host, port in payload:
        place = f"{host}:{port}"
        head = f"Host: {place}\r\nConnection: close\r\n\r\n"
        requests = [f"CONNECT {place} HTTP/1.1\r\n{head}", f"GET http://{place}/ HTTP/1.1\r\n{head}"]
        found[place] = [ask(request) for request in requests]
    return found


def is_marked(mark):
    return "A_MARK" in os.environ if mark == "env:A_MARK" else os.path.exists(mark)


@app.action("mark")
def mark(context: KernelContext, payload):
    os.environ["A_MARK"] = "here"
    for path in payload:
        if path.startswith("/"):
            with open(path, "w") as file:
                file.write("here")
    return [is_marked(path) for path in payload]


@app.action("marked")
def marked(context: KernelContext, payload):
    return [is_marked(path) for path in payload]


@app.action("environments")
def environments(context: KernelContext):
    """Returns the readable command lines and environments of all processes."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read()
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found.append([file.read().decode(), text.decode()])
        except OSError:
            pass
    return found


@app.action("write")
def write(context: KernelContext, payload):
    found = {}
    for path in payload:
        try:
            with open(path, "a") as file:
                file.write("x")
            found[path] = "written"
        except OSError as error:
            found[path] = type(error).__name__
    return found


@app.action("fill")
def fill(context: KernelContext):
    try:
        with open("/tmp/full", "wb") as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError as error:
        return [type(error).__name__, os.path.getsize("/tmp/full")]


@second.action("other")
def other(context: KernelContext):
    return "of the second app"
