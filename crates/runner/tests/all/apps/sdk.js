// The part of the client's framework that a program needs to be built without a registry.
'use strict';
const apps = [];

class App {
  constructor(name) {
    this.name = name;
    this.actions = [];
  }

  action(name, handler) {
    this.actions.push({ name, handler });
  }

  getActions() {
    return this.actions;
  }
}

module.exports = class Kernel {
  app(name) {
    apps.push(new App(name));
    return apps[apps.length - 1];
  }
};
module.exports.appRegistry = { getApps: () => apps };
