//! Tests of the rules of the domain, on mocks and fake clocks only, so that they take seconds.

mod access;
mod api_keys;
mod apps_work;
mod audit;
mod auth_connections;
mod computer;
mod extensions;
mod filler;
mod leases;
mod leases_ahead;
mod login_flows;
mod login_hosts;
mod permissions;
mod plan;
mod pools;
mod profiles;
mod replays;
mod sessions_create;
mod sessions_end;
mod sessions_node;
mod sessions_parameters;
mod sessions_use;
mod states;
mod states_apps;
mod states_login_page;
mod support;
