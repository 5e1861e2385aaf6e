"""Loads the entrypoint of an app, reports the registered apps, waits for one call, runs it and ends.

Sends and receives lines of JSON over descriptor 3.
"""

import asyncio
import importlib.util
import inspect
import json
import os
import re
import socket
import sys
import traceback

APP = os.getcwd()


def main(entrypoint):
    channel = socket.socket(fileno=3)
    channel.set_inheritable(False)
    ear = channel.makefile("r", encoding="utf-8", newline="\n")

    def say(**words):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        channel.sendall(utf8(json.dumps(words, ensure_ascii=False)) + b"\n")

    try:
        registry = load(entrypoint)
        apps = [
            {"name": str(app.name), "actions": [str(action.name) for action in app.get_actions()]}
            for app in registry.get_apps()
        ]
    except BaseException as error:
        complain(error)
        say(**{"is": "raised", "reason": named(error)})
        return
    say(**{"is": "loaded", "apps": apps})
    line = ear.readline()
    if line:
        say(**perform(registry, json.loads(line)))


def load(entrypoint):
    path = os.path.join(APP, entrypoint)
    # The folder of the entrypoint, like for a script, and the root of the package, for absolute imports.
    sys.path[0:1] = list(dict.fromkeys([os.path.dirname(path), APP]))
    sys.argv = [path]
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    kernel = sys.modules.get("kernel")
    if kernel is None:
        raise LookupError(f"{entrypoint} does not import kernel, so it registers no app")
    return kernel.app_registry


def perform(registry, call):
    app = next((app for app in registry.get_apps() if app.name == call["app"]), None)
    action = app and next((action for action in app.get_actions() if action.name == call["action"]), None)
    if action is None:
        return {"is": "raised", "reason": f"the program registers no action {call['action']} of an app {call['app']}"}
    from kernel.app_framework import KernelContext

    arguments = [KernelContext(invocation_id=call["invocation"])]
    if call["payload"] is not None:
        arguments.append(json.loads(call["payload"]))
    try:
        value = action.handler(*arguments)
        if inspect.isawaitable(value):
            value = asyncio.run(awaited(value))
    except BaseException as error:
        complain(error)
        return {"is": "raised", "reason": named(error)}
    try:
        output = utf8(json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))).decode()
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(value).__name__
        return {"is": "unfit", "reason": f"the action returned a value of the type {kind} that is not JSON: {error}"}
    if len(output.encode()) > call["output_bytes"]:
        return {"is": "unfit", "reason": f"the action returned more than {call['output_bytes']} bytes of JSON"}
    return {"is": "returned", "output": output}


def utf8(text):
    """Encodes JSON text. A surrogate without its pair has no form in UTF-8 and is escaped."""
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


async def awaited(value):
    return await value


def named(error):
    try:
        text = str(error)
    except Exception:
        text = "an error that cannot be shown"
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind)[:1000]


def complain(error):
    """Prints the traceback from the first frame of the app on."""
    try:
        frame = error.__traceback__
        while frame is not None and (frame.tb_frame.f_code.co_filename == __file__ or "importlib" in frame.tb_frame.f_code.co_filename):
            frame = frame.tb_next
        traceback.print_exception(type(error), error, frame or error.__traceback__)
    except Exception:
        pass


if __name__ == "__main__":
    main(sys.argv[1])
    # Skips the app's exit handlers, which could block.
    os._exit(0)
