//! The browser engine: sandbox, agent, Chromium, chromedriver.
