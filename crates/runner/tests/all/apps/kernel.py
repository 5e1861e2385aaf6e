"""The part of the client's framework that a program needs to be built without a registry."""

import sys


class Action:
    def __init__(self, name, handler):
        self.name, self.handler = name, handler


class Registry:
    apps = []

    def get_apps(self):
        return self.apps


app_registry = Registry()


class App:
    def __init__(self, name):
        self.name, self.actions = name, []
        app_registry.apps.append(self)

    def action(self, name):
        return lambda handler: self.actions.append(Action(name, handler)) or handler

    def get_actions(self):
        return self.actions


class KernelContext:
    def __init__(self, invocation_id):
        self.invocation_id = invocation_id


# The framework is a package; this file is registered as its module too.
sys.modules["kernel.app_framework"] = sys.modules[__name__]
