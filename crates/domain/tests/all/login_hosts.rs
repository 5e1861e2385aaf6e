//! Tests of the hosts that a login may visit, and of the wildcards `*` and `**`.

use casement_domain::login_page::{AllowedHosts, BadPattern, HostPattern};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

fn matches(pattern: &str, host: &str) -> bool {
    HostPattern::parse(pattern).expect(pattern).matches(host)
}

#[test]
fn one_star_is_one_label_and_two_are_one_or_more() {
    for (pattern, host, fits) in [
        ("a.example", "a.example", true),
        ("A.Example", "a.example", true),
        ("a.example", "b.a.example", false),
        ("a.example", "aa.example", false),
        ("*.example", "a.example", true),
        ("*.example", "example", false),
        ("*.example", "b.a.example", false),
        ("*.*.example", "b.a.example", true),
        ("a.*.example", "a.b.example", true),
        ("a.*.example", "c.b.example", false),
        ("**.example", "a.example", true),
        ("**.example", "c.b.a.example", true),
        ("**.example", "example", false),
        ("**.example", "a.example.evil", false),
        ("**.example", "aexample", false),
        ("**.**.example", "a.example", false),
        ("**.**.example", "b.a.example", true),
        ("**.**.example", "c.b.a.example", true),
        ("a.**.z.example", "a.b.c.z.example", true),
        ("a.**.z.example", "a.z.example", false),
        ("a.**.z.example", "a.z.z.example", true),
        ("*.**.example", "b.a.example", true),
        ("*.**.example", "a.example", false),
    ] {
        assert_eq!(matches(pattern, host), fits, "{pattern} and {host}");
    }
}

#[test]
fn a_pattern_ends_with_a_name_and_is_no_longer_than_a_host() {
    let label = "a".repeat(63);
    let longest = [&*label, &*label, &*label, &"a".repeat(61)].join(".");
    assert_eq!(longest.len(), 253);
    assert!(matches(&longest, &longest));
    for good in ["localhost", "127.0.0.1", "*.example", "**.a_b.example", "xn--bcher-kva.example"] {
        assert_eq!(HostPattern::parse(good).map(|pattern| pattern.to_string()), Ok(good.to_owned()));
    }
    let (long, longer) = (format!("{label}a.example"), format!("{longest}a"));
    for bad in
        ["", ".", "*", "**", "a.*", "a.**", "a..b", ".a", "a.", "***.a", "a*.b", "-a.b", "a-.b", "a b", &long, &longer]
    {
        assert_eq!(HostPattern::parse(bad), Err(BadPattern), "{bad}");
    }
}

#[test]
fn a_hostile_pattern_or_host_costs_no_more_than_another() {
    // A backtracking match of these labels would take practically forever.
    let pattern = format!("x.{}y.example", "**.a.".repeat(40));
    let host = format!("x.{}example", "a.".repeat(120));
    assert!(!matches(&pattern, &host));
    assert!(matches(&pattern, &format!("x.{}y.example", "a.".repeat(110))));
    let hosts = AllowedHosts::new("shop.example", vec![HostPattern::parse(&pattern).expect("a pattern"); 50]);
    assert!(!hosts.allow(&host));
    assert!(!hosts.allow(&"a.".repeat(100_000)), "no host is so long");
}

/// Matches by backtracking, as a reference.
fn by_trying(pattern: &[&str], host: &[&str]) -> bool {
    match (pattern.split_first(), host.split_first()) {
        (None, None) => true,
        (Some((wanted, others)), Some((label, rest))) => match *wanted {
            "**" => by_trying(others, rest) || by_trying(pattern, rest),
            "*" => by_trying(others, rest),
            name => name == *label && by_trying(others, rest),
        },
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_pattern_means_what_trying_every_way_says(
        pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "**"]), 0..6),
        host in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 0..8),
    ) {
        let (pattern, host) = ([&pattern[..], &["z"]].concat(), [&host[..], &["z"]].concat());
        prop_assert_eq!(matches(&pattern.join("."), &host.join(".")), by_trying(&pattern, &host));
    }
}
