//! Integration tests of the egress, between a unix socket and real servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod all {
    mod browser;
    mod corpus;
    mod exits;
    mod forwarding;
    mod limits;
    mod own_requests;
    mod policies;
    mod proxies;
    mod real_proxies;
    mod refusals;
    mod support;
    mod tls_proxies;
    mod tunnels;
}
