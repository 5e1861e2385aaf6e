//! End-to-end tests of the built program: started like by an operator, used by public clients, and with sandboxes
//! inspected from the host. `casement_test_support::program` is the harness; read its documentation first.

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
    mod archives;
    mod audit_export;
    mod audit_whole;
    mod backup;
    mod bad_database;
    mod blobs;
    mod browser_crashes;
    mod capabilities;
    mod clocks;
    mod command_line;
    mod computer;
    mod configuration;
    mod conformance;
    mod connect;
    mod connect_server;
    mod contexts;
    mod costs;
    mod credential_providers;
    mod credentials;
    mod database_outages;
    mod deletions;
    mod docs_guides;
    mod events;
    mod examples;
    mod extensions;
    mod file_attacks;
    mod files;
    mod floods;
    mod floods_of_telemetry;
    mod grid;
    mod grid_faults;
    mod half_open;
    mod host;
    mod hosted_login;
    mod hostile;
    mod https;
    mod internet;
    mod invalid_requests;
    mod isolation;
    mod large_files;
    mod limits;
    mod live_view;
    mod login_attacks;
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
    mod network;
    mod node_client;
    mod nodes;
    #[cfg(feature = "faults")]
    mod nodes_faults;
    #[cfg(feature = "faults")]
    mod nodes_set_up;
    #[cfg(feature = "faults")]
    mod nodes_versions;
    mod openapi;
    mod operation;
    mod organization;
    mod playwright;
    mod policies;
    mod pools;
    mod port_scans;
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
    mod server_crashes;
    mod session_parameters;
    mod shared_keys;
    mod site;
    mod slow_reader;
    mod storage;
    mod strangers;
    mod taken_over;
    mod telemetry;
    mod telemetry_export;
    mod traces;
    mod ui;
}
