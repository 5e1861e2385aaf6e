//! The built program, end to end: started as a person starts it, driven by its public clients, its sandboxes looked at
//! from the host. `all::support` is the harness; read its page first.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod all {
    mod app_examples;
    mod apps;
    mod apps_addresses;
    mod apps_commands;
    mod apps_egress;
    mod apps_git;
    mod apps_killed;
    mod apps_uploads;
    mod audit_whole;
    mod bad_database;
    mod clocks;
    mod computer;
    mod configuration;
    mod conformance;
    mod connect_server;
    mod crashes;
    mod credential_providers;
    mod credentials;
    mod events;
    mod examples;
    mod extensions;
    mod files;
    mod floods;
    mod half_open;
    mod host;
    mod hosted_login;
    mod hostile;
    mod internet;
    mod isolation;
    mod limits;
    mod live_view;
    mod login_attacks;
    #[path = "../../../chromium/tests/all/login_site.rs"]
    mod login_files;
    mod login_pages;
    mod login_profiles;
    mod login_providers;
    mod login_secrets;
    mod login_sessions;
    mod login_site;
    mod login_steps;
    mod login_ways;
    mod logins;
    mod memories;
    mod organization;
    mod playwright;
    mod policies;
    mod pools;
    mod processes;
    mod profiles;
    mod programs;
    mod proxies;
    mod puppeteer;
    mod python_client;
    mod rebinding;
    mod replays;
    mod script;
    mod selenium;
    mod server;
    mod site;
    mod slow_reader;
    mod storage;
    mod strangers;
    mod support;
    mod telemetry;
    mod telemetry_export;
    mod telemetry_floods;
    #[path = "../../../agent/tests/all/telemetry_site.rs"]
    mod telemetry_site;
    mod ui;
}
