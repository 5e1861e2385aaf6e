"""kernel_record.py SCRIPT ARGUMENT…: runs a script and writes down what became of each method of the public client that it
called, as one JSON file in the folder CASEMENT_TEST_METHODS. The client itself does what it always does."""

import contextlib
import functools
import inspect
import json
import os
import runpy
import sys
import uuid

import kernel

outcomes = {}


def resources(owner, path=()):
    """Every resource of a client, as its path and its class."""
    for name, member in inspect.getmembers_static(type(owner)):
        if isinstance(member, functools.cached_property) and not name.startswith(("_", "with_")):
            resource = getattr(owner, name)
            yield (*path, name), type(resource)
            yield from resources(resource, (*path, name))


@contextlib.contextmanager
def noted(method):
    try:
        yield
    except kernel.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        outcomes[method].add(body.get("code", str(error.status_code)))
        raise
    outcomes[method].add("ok")


@contextlib.contextmanager
def entered(method, context):
    """The context of a method that calls the server only when it is entered."""
    with contextlib.ExitStack() as stack:
        with noted(method):
            value = stack.enter_context(context)
        yield value


def watch(kind, name, method, function):
    @functools.wraps(function)
    def watched(*args, **kwargs):
        if inspect.isgeneratorfunction(inspect.unwrap(function)):
            return entered(method, function(*args, **kwargs))
        with noted(method):
            return function(*args, **kwargs)

    setattr(kind, name, watched)


def write():
    name = f"python {kernel.__version__}"
    found = {method: sorted(codes) for method, codes in outcomes.items()}
    with open(os.path.join(os.environ["CASEMENT_TEST_METHODS"], f"{uuid.uuid4()}.json"), "w") as file:
        json.dump({"client": name, "methods": found}, file)


for path, kind in resources(kernel.Kernel(api_key="x", base_url="http://localhost")):
    for name, function in list(vars(kind).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            method = ".".join((*path, name))
            outcomes[method] = set()
            watch(kind, name, method, function)
try:
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    write()
