//! Integration tests of the engine: real sandboxes, Chromium and chromedriver.

mod all {
    mod browser_states;
    mod cdp;
    mod endings;
    mod failed_starts;
    mod fake_egress;
    mod headful;
    mod headless;
    mod locations;
    mod login_pages;
    mod profiles;
    mod remote;
    mod restart;
    mod support;
}
