//! Unit tests of the rules.

use proptest::prelude::*;

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn rules(allow: &[&str]) -> Rules {
    Rules::new(allow.iter().map(|text| Rules::parse(text).unwrap()).collect())
}

fn check(rules: &Rules, host: &str, ip: &str, port: u16) -> Verdict {
    rules.check(host, SocketAddr::new(ip.parse().unwrap(), port))
}

/// The first and last address of every IPv4 range that is not public.
const NOT_PUBLIC_V4: [(&str, &str); 17] = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.254"),
    ("255.255.255.255", "255.255.255.255"),
];

fn number(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().into()
}

fn is_listed(address: u32) -> bool {
    NOT_PUBLIC_V4.iter().any(|(first, last)| (number(first)..=number(last)).contains(&address))
}

/// The IPv6 addresses that wrap this IPv4 address.
fn wrapped(v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b] = [(u32::from(v4) >> 16) as u16, u32::from(v4) as u16];
    vec![
        v4.to_ipv6_mapped(),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, a, b),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, a, b),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, a, b),
        Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !a, !b),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, a, b),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x0200, 0x5efe, a, b),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x5efe, a, b),
    ]
}

#[test]
fn metadata_services_are_refused() {
    let none = Rules::default();
    for ip in [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
    ] {
        assert_eq!(check(&none, "some.example", ip, 80), Verdict::Refused, "{ip}");
    }
    for name in ["metadata.google.internal", "Metadata.Google.Internal.", "metadata.goog", "instance-data"] {
        assert_eq!(check(&none, name, "8.8.8.8", 80), Verdict::Refused, "{name}");
        assert!(!none.could_reach(name, 80), "{name} would be looked up");
    }
}

#[test]
fn special_ranges_are_refused_at_their_edges_and_in_every_wrapping() {
    let none = Rules::default();
    for (first, last) in NOT_PUBLIC_V4 {
        for edge in [number(first), number(last)] {
            let v4 = Ipv4Addr::from(edge);
            assert_eq!(check(&none, "a.example", &v4.to_string(), 443), Verdict::Refused, "{v4}");
            for v6 in wrapped(v4) {
                assert_eq!(check(&none, "a.example", &v6.to_string(), 443), Verdict::Refused, "{v6} holds {v4}");
            }
        }
        for outside in [number(first).checked_sub(1), number(last).checked_add(1)].into_iter().flatten() {
            if !is_listed(outside) {
                let v4 = Ipv4Addr::from(outside).to_string();
                assert_eq!(check(&none, "a.example", &v4, 443), Verdict::Public, "{v4}");
            }
        }
    }
}

#[test]
fn ipv6_outside_of_the_public_blocks_is_refused() {
    let none = Rules::default();
    for ip in [
        "::",
        "::1",
        "::2",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:1::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:1ff:ffff::1",
        "2001:db8::1",
        "2001:db8:ffff::1",
        "2002::1",
        "3ffe::1",
        "3fff::1",
        "3fff:fff::1",
        "4000::1",
        "5f00::1",
        "1fff::1",
        "fc00::1",
        "fdff::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "feff::1",
        "ff02::1",
        "ff0e::1",
        "64:ff9b:1::1",
        "64:ff9b::1:0:0",
        "::ffff:0:8.8.8.8",
        "::8.8.8.8",
    ] {
        assert_eq!(check(&none, "a.example", ip, 443), Verdict::Refused, "{ip}");
    }
}

#[test]
fn the_public_internet_is_reachable() {
    let none = Rules::default();
    for ip in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "93.184.215.14",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450:4001:81b::200e",
        "2400:cb00::1",
        "3ffd::1",
        "2606:4700::5efe:808:808",
    ] {
        assert_eq!(check(&none, "a.example", ip, 443), Verdict::Public, "{ip}");
    }
}

#[test]
fn an_allowed_network_is_reachable_by_any_name() {
    let some = rules(&["127.0.0.1/32", "10.1.0.0/16", "::1/128", "fd12::/48"]);
    for (host, ip) in [
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("x.example", "::ffff:127.0.0.1"),
        ("y", "10.1.255.1"),
        ("a.localhost.", "::1"),
        ("z.example", "fd12::9"),
    ] {
        assert_eq!(check(&some, host, ip, 8080), Verdict::Allowed, "{host} {ip}");
    }
    for (host, ip) in [("localhost", "127.0.0.2"), ("y", "10.2.0.1"), ("x", "::127.0.0.1"), ("z", "64:ff9b::7f00:1")] {
        assert_eq!(check(&some, host, ip, 8080), Verdict::Refused, "{host} {ip}");
    }
}

#[test]
fn an_allowed_name_is_reachable_at_any_address() {
    let some = rules(&["app.internal", "db.internal:5432", "*.svc.internal"]);
    for (host, port) in [("app.internal", 1), ("APP.internal.", 80), ("db.internal", 5432), ("a.b.svc.internal", 80)] {
        assert_eq!(check(&some, host, "10.0.0.1", port), Verdict::Allowed, "{host}:{port}");
    }
    for host in
        ["xapp.internal", "app.internal.example", "db.internal", "svc.internal", "xsvc.internal", ".svc.internal"]
    {
        assert_eq!(check(&some, host, "10.0.0.1", 80), Verdict::Refused, "{host}");
    }
    assert_eq!(check(&rules(&["localhost"]), "localhost", "127.0.0.1", 80), Verdict::Allowed);
    assert_eq!(check(&rules(&["127.0.0.1:8080"]), "x.example", "127.0.0.1", 8080), Verdict::Allowed);
    assert_eq!(check(&rules(&["127.0.0.1:8080"]), "127.0.0.1", "127.0.0.1", 8081), Verdict::Refused);
}

#[test]
fn smtp_needs_an_exception_of_its_own() {
    assert_eq!(check(&Rules::default(), "mx.example", "8.8.8.8", 25), Verdict::Refused);
    assert_eq!(check(&rules(&["0.0.0.0/0", "mx.example"]), "mx.example", "8.8.8.8", 25), Verdict::Refused);
    assert_eq!(check(&rules(&["mx.example:25"]), "mx.example", "8.8.8.8", 25), Verdict::Allowed);
    assert_eq!(check(&rules(&["8.8.8.8:25"]), "mx.example", "8.8.8.8", 25), Verdict::Allowed);
    assert_eq!(check(&rules(&["mx.example:25"]), "other.example", "8.8.8.8", 25), Verdict::Refused);
    assert_eq!(check(&Rules::default(), "mx.example", "8.8.8.8", 587), Verdict::Public);
}

#[test]
fn an_exception_round_trips_through_its_text() {
    for text in [
        "10.1.0.0/16",
        "fd12::/48",
        "app.internal",
        "app.internal:8080",
        "*.app.internal",
        "*.app.internal:1",
        "127.0.0.1:8080",
        "[::1]:8080",
    ] {
        let allow = Rules::parse(text).unwrap();
        assert_eq!(allow.to_string(), text);
        assert_eq!(Rules::parse(&allow.to_string()), Ok(allow));
    }
    for (text, same) in [
        (" 10.1.2.3/16 ", "10.1.0.0/16"),
        ("::1", "::1/128"),
        ("[::1]", "::1/128"),
        ("127.1", "127.0.0.1/32"),
        ("App.Internal.", "app.internal"),
        (".app.internal", "*.app.internal"),
        ("::ffff:127.0.0.1", "127.0.0.1/32"),
    ] {
        assert_eq!(Rules::parse(text).unwrap().to_string(), same, "{text}");
    }
}

#[test]
fn an_invalid_exception_names_the_mistake() {
    for (text, error) in [
        ("", ParseAllowError::Empty),
        ("  ", ParseAllowError::Empty),
        ("10.0.0.0/33", ParseAllowError::Network("10.0.0.0/33".into())),
        ("http://app.internal/", ParseAllowError::Network("http://app.internal/".into())),
        ("app.internal:0", ParseAllowError::Port("app.internal:0".into())),
        ("app.internal:", ParseAllowError::Port("app.internal:".into())),
        ("app.internal:http", ParseAllowError::Port("app.internal:http".into())),
        ("*", ParseAllowError::Host("*".into())),
        ("*.", ParseAllowError::Host("*.".into())),
        ("*.10.0.0.1", ParseAllowError::Host("*.10.0.0.1".into())),
        ("a b", ParseAllowError::Host("a b".into())),
        ("a.*.b", ParseAllowError::Host("a.*.b".into())),
    ] {
        assert_eq!(Rules::parse(text), Err(error), "{text:?}");
    }
}

proptest! {
    #[test]
    fn an_ipv4_address_has_one_verdict_in_every_wrapping(address: u32) {
        let none = Rules::default();
        let v4 = Ipv4Addr::from(address);
        let expected = if is_listed(address) { Verdict::Refused } else { Verdict::Public };
        prop_assert_eq!(check(&none, "a.example", &v4.to_string(), 443), expected);
        prop_assert_eq!(check(&none, "a.example", &v4.to_ipv6_mapped().to_string(), 443), expected);
        for v6 in wrapped(v4) {
            let verdict = check(&none, "a.example", &v6.to_string(), 443);
            prop_assert!(verdict == Verdict::Refused || expected == Verdict::Public, "{} holds {}", v6, v4);
        }
    }

    #[test]
    fn an_address_outside_of_the_unicast_block_is_never_public(address: u128) {
        let v6 = Ipv6Addr::from(address);
        let verdict = check(&Rules::default(), "a.example", &v6.to_string(), 443);
        let may_be_public = (0x2000..0x4000).contains(&v6.segments()[0])
            || v6.to_ipv4_mapped().is_some()
            || v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
        prop_assert!(may_be_public || verdict == Verdict::Refused, "{}", v6);
    }

    #[test]
    fn reading_an_exception_never_panics(text in ".{0,40}") {
        if let Ok(allow) = Rules::parse(&text) {
            prop_assert_eq!(Rules::parse(&allow.to_string()), Ok(allow));
        }
    }
}

#[test]
fn closed_rules_allow_only_the_named_destinations() {
    let allow = |text: &str| Rules::parse(text).expect("an exception");
    let rules = Rules::only(vec![allow("registry.example:443"), allow("10.0.0.7")]);
    let check = |host, address: &str| rules.check(host, address.parse().expect("an address"));
    // An exception by name applies to every address.
    assert_eq!(check("registry.example", "93.184.216.34:443"), Verdict::Allowed);
    assert_eq!(check("registry.example", "10.1.1.1:443"), Verdict::Allowed);
    assert_eq!(check("registry.example", "93.184.216.34:80"), Verdict::Refused);
    assert_eq!(check("elsewhere.example", "93.184.216.34:443"), Verdict::Refused);
    assert_eq!(check("10.0.0.7", "10.0.0.7:80"), Verdict::Allowed);
    assert!(rules.proxy_may_connect("registry.example", 443) && !rules.proxy_may_connect("elsewhere.example", 443));
    assert!(!Rules::only(vec![allow("registry.example:443")]).could_reach("elsewhere.example", 443));
    let more = rules.with_exceptions([allow("elsewhere.example")]);
    assert_eq!(more.check("elsewhere.example", "93.184.216.34:443".parse().expect("an address")), Verdict::Allowed);
}
