//! Distinguishes public internet addresses from private and special ones.
//!
//! The IPv4 list contains the ranges that are *not* public, from the special-purpose registries. For IPv6 the test is
//! inverted: only the block allocated to networks (2000::/3) can be public, so an unknown form is refused. An IPv4
//! address wrapped in an IPv6 address is checked as the IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if the address belongs to the public internet, not to this machine, its networks, its cloud's services
/// or a special-purpose range.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // "This host on this network": Linux treats 0.0.0.0 as loopback.
        [0, ..] => true,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => true,
        // Carrier-grade NAT; one cloud serves its metadata here (100.100.100.200).
        [100, 64..=127, ..] => true,
        [127, ..] => true,
        [169, 254, ..] => true,
        // Protocol assignments; one cloud serves its metadata here (192.0.0.192).
        [192, 0, 0, _] => true,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // The 6to4 relay, which wraps and unwraps addresses.
        [192, 88, 99, _] => true,
        [198, 18..=19, ..] => true,
        // A public address by the registry, but the host agent of one cloud.
        [168, 63, 129, 16] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // The well-known NAT64 prefix is the only wrapped form that legitimate networks depend on (DNS64).
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(last_four_bytes(address));
    }
    // The last 32 bits of an ISATAP address are the IPv4 address of the exit.
    if matches!(segments[4], 0 | 0x0200) && segments[5] == 0x5efe && !is_public_v4(last_four_bytes(address)) {
        return false;
    }
    match segments {
        // Protocol assignments: Teredo, ORCHID, benchmarks.
        [0x2001, 0..=0x01ff, ..] => false,
        [0x2001, 0x0db8, ..] => false,
        // 6to4 wraps an IPv4 address, and no public relay is left.
        [0x2002, ..] => false,
        // The former 6bone; documentation.
        [0x3ffe, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

fn last_four_bytes(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}
