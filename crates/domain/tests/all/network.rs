//! The rules of network configurations: the pattern language of hosts, the decisions about requests, and the revisions
//! of the allowlist.

use std::sync::Arc;

use casement_domain::ProxyId;
use casement_domain::browser::{Shape, StartUrl};
use casement_domain::field::{FieldCode, InvalidInput, InvalidValue};
use casement_domain::network::{
    Allowlist, AllowlistChange, AllowlistError, Condition, DeniedRequest, Destination, LentHost, LentHosts,
    MAX_ALLOWED_HOSTS, Network, NetworkRequest, PrivateHost, PrivateHosts, ProxyRoute, ProxyRouteRequest, StaleNetwork,
    Verdict,
};
use casement_domain::proxy::{MockProxyRepository, NoRoutes, Proxy, ProxyRouting, Route};
use casement_domain::reference::Reference;
use casement_domain::testing::{self, PlainSealer, own_proxy, project_id};
use pretty_assertions::assert_eq;
use ulid::Ulid;
use url::Host;

fn allowed(text: &str) -> Destination {
    Destination::parse_allowed(text).expect(text)
}

fn private(text: &str) -> PrivateHost {
    PrivateHost::parse(text).expect(text)
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn with_host<T>(text: &str, test: impl FnOnce(&Host<&str>) -> T) -> T {
    match Host::parse(text).expect(text) {
        Host::Domain(name) => test(&Host::Domain(&name)),
        Host::Ipv4(address) => test(&Host::Ipv4(address)),
        Host::Ipv6(address) => test(&Host::Ipv6(address)),
    }
}

fn matches(pattern: &str, host: &str) -> bool {
    with_host(host, |host| allowed(pattern).matches(host))
}

fn decide(network: &Network, host: &str, port: u16) -> Verdict {
    with_host(host, |host| network.decide(host, port))
}

fn proxy(n: u128) -> ProxyId {
    ProxyId::from_ulid(Ulid(n))
}

fn network(hosts: &[&str]) -> Network {
    let hosts = hosts.iter().map(|text| allowed(text)).collect();
    Network { allowlist: Some(Allowlist::new(hosts)), ..Network::default() }
}

fn refused(bad: InvalidValue) -> Vec<(String, FieldCode)> {
    InvalidInput::of("network", bad).fields().iter().map(|error| (error.field.clone(), error.code)).collect()
}

#[test]
fn allowed_hosts_are_names_wildcards_public_addresses_and_networks() {
    for (text, canonical) in [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("*.Example.com", "*.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("8.8.8.8", "8.8.8.8"),
        ("[2001:4860:4860::8888]", "[2001:4860:4860::8888]"),
        ("8.8.4.0/24", "8.8.4.0/24"),
        ("2001:4860::/32", "2001:4860::/32"),
        ("*.a.github.io", "*.a.github.io"),
    ] {
        assert_eq!(allowed(text).to_string(), canonical);
    }
}

#[test]
fn what_is_no_host_is_no_allowed_host() {
    for text in [
        "",
        "*",
        "*.",
        "*.*.a.example",
        "a.*.example",
        "a*.example",
        "**.a.example",
        "http://a.example",
        "a.example:443",
        "a.example/path",
        "user@a.example",
        " a.example",
        "a b.example",
        "a..example",
        "-/8",
        "0x08.8.8.8",
        "134744072",
        "8.8.8",
        "*.8.8.8.8",
        "2001:4860:4860::8888",
        "[8.8.8.8]",
        "8.8.4.1/24",
        "8.8.4.0/33",
        "2001:4860::1/32",
        "<local>",
    ] {
        let bad = Destination::parse_allowed(text).expect_err(text);
        assert_eq!(bad.code, FieldCode::InvalidFormat, "{text:?}");
    }
    let long = Destination::parse_allowed(&"a".repeat(256)).expect_err("long");
    assert_eq!(long.code, FieldCode::TooLong);
}

#[test]
fn addresses_that_are_not_public_are_no_allowed_hosts() {
    for text in [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.0.0/16",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "0.0.0.0/0",
        "8.0.0.0/5",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[fe80::1]",
        "[64:ff9b::a00:1]",
        "fc00::/7",
        "::/0",
        "2000::/3",
        "[2001:db8::1]",
    ] {
        assert_eq!(Destination::parse_allowed(text).expect_err(text).code, FieldCode::Blocked, "{text}");
    }
}

#[test]
fn a_wildcard_over_a_public_suffix_is_refused() {
    for text in ["*.com", "*.co.uk", "*.github.io", "*.internal", "*.localhost"] {
        assert_eq!(Destination::parse_allowed(text).expect_err(text).code, FieldCode::Blocked, "{text}");
    }
}

#[test]
fn a_stored_host_is_checked_for_its_form_only() {
    for text in ["*.com", "127.0.0.1", "10.0.0.0/8", "[fd00::1]", "*.a.example"] {
        assert_eq!(Destination::parse_stored(text).expect(text).to_string(), text);
    }
    for text in ["*.internal:443", "8.8.8.8:80", "wiki.internal"] {
        assert_eq!(PrivateHost::parse_stored(text).expect(text).to_string(), text);
    }
    for text in ["", "*", "a b.example", "8.8.4.1/24", "*.8.8.8.8", "wiki.internal:0"] {
        assert_eq!(Destination::parse_stored(text).expect_err(text).code, FieldCode::InvalidFormat, "{text:?}");
        assert_eq!(PrivateHost::parse_stored(text).expect_err(text).code, FieldCode::InvalidFormat, "{text:?}");
    }
}

#[test]
fn an_exact_name_matches_only_itself_in_any_spelling() {
    for host in ["example.com", "EXAMPLE.com", "example.com.", "ex%61mple.com"] {
        assert!(matches("example.com", host), "{host}");
    }
    for host in ["www.example.com", "example.com.evil.test", "notexample.com", "example.org", "8.8.8.8"] {
        assert!(!matches("example.com", host), "{host}");
    }
}

#[test]
fn a_wildcard_matches_subdomains_of_any_depth_but_not_the_name_itself() {
    for host in ["a.example.com", "a.b.c.Example.com.", "_x.example.com"] {
        assert!(matches("*.example.com", host), "{host}");
    }
    for host in ["example.com", "notexample.com", ".example.com.evil.test", "a.example.com.evil.test", "[::1]"] {
        let parsed = Host::parse(host).is_ok();
        assert!(!parsed || !matches("*.example.com", host), "{host}");
    }
}

#[test]
fn an_address_or_network_matches_literal_addresses_only() {
    for host in ["8.8.4.4", "0x08.8.4.4", "[::ffff:8.8.4.4]"] {
        assert!(matches("8.8.4.0/24", host) && matches("8.8.4.4", host), "{host}");
    }
    assert!(matches("2001:4860::/32", "[2001:4860::1]") && matches("[2001:4860::1]", "[2001:4860:0::1]"));
    for host in ["8.8.5.4", "8-8-4-4.example.com", "dns.google", "[2001:4861::1]"] {
        assert!(!matches("8.8.4.0/24", host) && !matches("2001:4860::/32", host), "{host}");
    }
}

#[test]
fn private_hosts_are_names_and_addresses_of_private_networks() {
    for (text, canonical) in [
        ("Wiki.internal", "wiki.internal"),
        ("wiki.internal:8080", "wiki.internal:8080"),
        ("*.corp.internal:443", "*.corp.internal:443"),
        ("10.1.30.63", "10.1.30.63"),
        ("10.1.30.63:80", "10.1.30.63:80"),
        ("100.64.0.0/10", "100.64.0.0/10"),
        ("[fd00::1]", "[fd00::1]"),
        ("[fd00::1]:80", "[fd00::1]:80"),
        ("fd00::/8", "fd00::/8"),
    ] {
        assert_eq!(private(text).to_string(), canonical);
    }
    for (text, code) in [
        ("8.8.8.8", FieldCode::Blocked),
        ("127.0.0.1", FieldCode::Blocked),
        ("169.254.169.254", FieldCode::Blocked),
        ("0.0.0.0/0", FieldCode::Blocked),
        ("[::1]", FieldCode::Blocked),
        ("*.internal", FieldCode::Blocked),
        ("fd00::1", FieldCode::InvalidFormat),
        ("10.0.0.0/8:80", FieldCode::InvalidFormat),
        ("10.0.0.1/8", FieldCode::InvalidFormat),
        ("wiki.internal:0", FieldCode::InvalidFormat),
        ("wiki.internal:+80", FieldCode::InvalidFormat),
        ("wiki.internal:", FieldCode::InvalidFormat),
        ("http://wiki.internal", FieldCode::InvalidFormat),
    ] {
        assert_eq!(PrivateHost::parse(text).expect_err(text).code, code, "{text}");
    }
}

#[test]
fn a_request_is_refused_with_every_field_that_breaks_a_rule() {
    let route = |hosts: &[&str], name: &str| ProxyRouteRequest {
        hosts: texts(hosts),
        proxy: Reference { name: Some(name.to_owned()), ..Reference::default() },
    };
    let request = NetworkRequest {
        allowed_hosts: Some(texts(&["good.example", "bad host", "127.0.0.1"])),
        private_hosts: Some(texts(&["8.8.8.8"])),
        proxy_routes: Some(vec![
            route(&["a.example", "8.8.8.8"], "one"),
            route(&["A.example."], "two"),
            ProxyRouteRequest { hosts: Vec::new(), ..route(&[], "x") },
            ProxyRouteRequest { proxy: Reference::default(), ..route(&["b.example"], "x") },
        ]),
    };
    let expected = [
        ("network.allowed_hosts.1", FieldCode::InvalidFormat),
        ("network.allowed_hosts.2", FieldCode::Blocked),
        ("network.private_hosts.0", FieldCode::Blocked),
        ("network.proxy_routes.0.hosts.1", FieldCode::InvalidFormat),
        ("network.proxy_routes.1.hosts.0", FieldCode::MutuallyExclusive),
        ("network.proxy_routes.2.hosts", FieldCode::TooShort),
        ("network.proxy_routes.3.proxy", FieldCode::Required),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(field, code)| (field.to_owned(), code)).collect();
    assert_eq!(refused(request.parse().expect_err("refused")), expected);
}

#[test]
fn an_empty_or_too_long_allowlist_is_refused() {
    let parse = |hosts: Vec<String>| NetworkRequest { allowed_hosts: Some(hosts), ..NetworkRequest::default() }.parse();
    let code = |hosts| refused(parse(hosts).expect_err("refused"))[0].clone();
    let field = "network.allowed_hosts".to_owned();
    assert_eq!(code(Vec::new()), (field.clone(), FieldCode::TooShort));
    let hosts = |count: usize| (0..count).map(|n| format!("{n}.example")).collect::<Vec<_>>();
    assert_eq!(code(hosts(MAX_ALLOWED_HOSTS + 1)), (field, FieldCode::TooMany));
    assert!(parse(hosts(MAX_ALLOWED_HOSTS)).is_ok());
    let twice = parse(texts(&["a.example", "A.example."])).expect("good").allowed_hosts;
    assert_eq!(twice, Some(vec![allowed("a.example")]), "a repeated host is stored once");
}

#[test]
fn a_host_is_either_allowed_or_private() {
    let request = NetworkRequest {
        allowed_hosts: Some(texts(&["a.corp.example", "*.example.com", "other.example"])),
        private_hosts: Some(texts(&["*.corp.example", "db.example.com:5432"])),
        proxy_routes: None,
    };
    let expected = [0, 1].map(|n| (format!("network.allowed_hosts.{n}"), FieldCode::MutuallyExclusive));
    assert_eq!(refused(request.parse().expect_err("refused")), expected);
}

#[test]
fn only_hosts_of_the_list_are_reached_and_private_hosts_beside_them() {
    let hosts = vec![private("wiki.internal:8080")];
    let network = Network {
        private_hosts: Some(PrivateHosts { project: project_id(), hosts }),
        ..network(&["example.com", "*.example.org"])
    };
    assert_eq!(decide(&network, "example.com", 443), Verdict::Default);
    assert_eq!(decide(&network, "a.example.org", 22), Verdict::Default, "every port of an allowed host");
    assert_eq!(decide(&network, "wiki.internal", 8080), Verdict::Private);
    for (host, port) in [("wiki.internal", 80), ("example.org", 443), ("evil.test", 443), ("8.8.8.8", 53)] {
        assert_eq!(decide(&network, host, port), Verdict::Denied, "{host}:{port}");
    }
    assert_eq!(decide(&Network::default(), "anything.example", 1), Verdict::Default);
}

#[test]
fn the_most_exact_pattern_selects_the_proxy_of_a_host() {
    let route = |hosts: &[&str], n| ProxyRoute {
        hosts: hosts.iter().map(|text| Destination::parse_routed(text).expect(text)).collect(),
        proxy: proxy(n),
    };
    let network = Network {
        proxy_routes: Some(vec![
            route(&["*.example.com"], 1),
            route(&["a.b.example.com", "example.com"], 2),
            route(&["*.b.example.com"], 3),
        ]),
        ..Network::default()
    };
    for (host, expected) in [
        ("a.b.example.com", Verdict::Routed(1)),
        ("c.b.example.com", Verdict::Routed(2)),
        ("b.example.com", Verdict::Routed(0)),
        ("example.com", Verdict::Routed(1)),
        ("example.org", Verdict::Default),
        ("8.8.8.8", Verdict::Default),
    ] {
        assert_eq!(decide(&network, host, 443), expected, "{host}");
    }
}

#[tokio::test]
async fn each_proxy_of_a_browser_is_opened_once() {
    let mut proxies = MockProxyRepository::new();
    proxies.expect_find_any().times(2).returning(|id| {
        let host = if id == proxy(1) { "one.test" } else { "two.test" };
        Ok(Some(Proxy { config: own_proxy(host, None), ..testing::proxy(id, "proxy") }))
    });
    let routing = ProxyRouting::new(Arc::new(proxies), Arc::new(PlainSealer), Arc::new(NoRoutes), Arc::default());
    let route = |host: &str, n| ProxyRoute { hosts: vec![allowed(host)], proxy: proxy(n) };
    let routes = vec![route("a.example", 2), route("b.example", 1), route("c.example", 2)];
    let network = Network { proxy_routes: Some(routes), ..Network::default() };
    let shape = Shape { proxy: Some(proxy(1)), network: Some(network), ..Shape::default() };
    let policy = routing.prepare(&shape).await.expect("prepared");
    let host = |route: &Route| match route {
        Route::Through(proxy) => proxy.host.clone(),
        Route::Direct | Route::Nowhere => format!("{route:?}"),
    };
    assert_eq!(host(&policy.route), "one.test");
    assert_eq!(policy.proxy_routes.iter().map(host).collect::<Vec<_>>(), ["two.test", "one.test", "two.test"]);
}

#[test]
fn a_start_url_must_be_allowed() {
    let network = network(&["example.com", "8.8.8.8"]);
    let check = |url: &str| network.check_start_url(&StartUrl::parse(url).expect(url));
    for url in ["https://example.com/a?b", "http://EXAMPLE.com:81/", "http://0x08.8.8.8/", "about:blank", "data:,x"] {
        assert_eq!(check(url), Ok(()), "{url}");
    }
    for url in [
        "https://www.example.com/",
        "http://example.com@evil.test/",
        "view-source:https://evil.test/",
        "unknown://evil.test/",
        "unknown://0x08.8.8.8/",
    ] {
        assert_eq!(check(url).expect_err(url).code, FieldCode::NotAllowed, "{url}");
    }
}

#[test]
fn a_long_method_of_a_refused_request_is_cut() {
    let method = |text: &str| DeniedRequest::new("a.example".to_owned(), 80, text.to_owned()).method;
    assert_eq!(method("GET"), "GET");
    assert_eq!(method(&"X".repeat(33)), "X".repeat(32));
    assert_eq!(method(&"é".repeat(17)), "é".repeat(16), "at the boundary of a character");
    assert_eq!(method(&format!("X{}", "é".repeat(16))), format!("X{}", "é".repeat(15)));
}

#[test]
fn the_operator_lends_a_host_to_one_project_and_what_lies_within_it() {
    let project = project_id();
    let lent = |text: &str| format!("{project}={text}").parse::<LentHost>().expect(text);
    let settings = ["*.corp.internal", "10.1.0.0/16", "db.internal:5432", "mail.internal:25"];
    let all: LentHosts = settings.map(lent).into_iter().collect();
    for host in
        ["a.corp.internal", "*.b.corp.internal:80", "*.corp.internal", "10.1.2.3:22", "10.1.2.0/24", "mail.internal:25"]
    {
        assert!(all.lends(project, &private(host)), "{host}");
    }
    for host in [
        "corp.internal",
        "db.internal",
        "db.internal:5433",
        "10.0.0.0/8",
        "10.2.0.1",
        "other.internal",
        "10.1.2.3:25",
        "a.corp.internal:25",
    ] {
        assert!(!all.lends(project, &private(host)), "{host}");
    }
    let other = casement_domain::ProjectId::from_ulid(Ulid(77));
    assert!(!all.lends(other, &private("a.corp.internal")));
    for text in ["a.internal".to_owned(), "x=a.internal".to_owned(), format!("{project}=8.8.8.8")] {
        assert!(text.parse::<LentHost>().is_err(), "{text}");
    }
}

#[test]
fn hosts_that_the_operator_lends_no_more_are_closed() {
    let hosts = vec![private("a.internal"), private("b.internal")];
    let network =
        Network { private_hosts: Some(PrivateHosts { project: project_id(), hosts }), ..network(&["example.com"]) };
    let lent: LentHosts = [format!("{}=b.internal", project_id()).parse().expect("good")].into_iter().collect();
    let network = network.with_lent_hosts_only(&lent);
    assert_eq!(decide(&network, "a.internal", 80), Verdict::Denied);
    assert_eq!(decide(&network, "b.internal", 80), Verdict::Private);
}

fn change(hosts: Option<&[&str]>, condition: Option<(&str, &str)>) -> AllowlistChange {
    let condition =
        condition.map(|(revision, id)| Condition { revision: revision.to_owned(), mutation_id: id.to_owned() });
    AllowlistChange { hosts: hosts.map(|hosts| hosts.iter().map(|text| allowed(text)).collect()), condition }
}

#[test]
fn each_change_of_the_allowlist_makes_a_new_revision() {
    let first = network(&["a.example"]);
    let second = first.changed(&change(Some(&["b.example"]), None)).expect("changed");
    let third = second.changed(&change(Some(&["c.example"]), Some(("2", "m1")))).expect("changed");
    let state = |network: &Network| {
        let list = network.allowlist.clone().expect("a list");
        (list.revision, list.base_revision, list.mutation_id)
    };
    assert_eq!(state(&first), (1, None, None));
    assert_eq!(state(&second), (2, None, None));
    assert_eq!(state(&third), (3, Some(2), Some("m1".to_owned())));
    assert_eq!(decide(&third, "b.example", 80), Verdict::Denied);
    assert_eq!(decide(&third, "c.example", 80), Verdict::Default);
}

#[test]
fn a_repeated_change_has_no_further_effect() {
    let first = network(&["a.example"]);
    let repeated = change(Some(&["b.example"]), Some(("1", "m1")));
    let second = first.changed(&repeated).expect("changed");
    assert_eq!(second.changed(&repeated), Ok(second.clone()));
    let removing = change(None, Some(("2", "m2")));
    let removed = second.changed(&removing).expect("removed");
    assert_eq!(removed.changed(&removing), Ok(removed.clone()));
}

#[test]
fn a_change_for_another_revision_or_with_other_hosts_is_stale() {
    let second = network(&["a.example"]).changed(&change(Some(&["b.example"]), Some(("1", "m1")))).expect("changed");
    for stale in [
        change(Some(&["c.example"]), Some(("1", "m2"))),
        change(Some(&["c.example"]), Some(("1", "m1"))),
        change(Some(&["b.example"]), Some(("2", "m1"))),
        change(Some(&["c.example"]), Some(("x", "m3"))),
    ] {
        assert_eq!(second.changed(&stale), Err(AllowlistError::Stale(StaleNetwork)), "{stale:?}");
    }
}

#[test]
fn a_removed_or_absent_allowlist_is_not_added_again() {
    let removed = network(&["a.example"]).changed(&change(None, None)).expect("removed");
    assert_eq!(decide(&removed, "anything.example", 80), Verdict::Default);
    let adding = change(Some(&["a.example"]), None);
    assert_eq!(removed.changed(&adding), Err(AllowlistError::NoAllowlist));
    assert_eq!(Network::default().changed(&adding), Err(AllowlistError::NoAllowlist));
}
