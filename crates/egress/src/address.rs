//! Which addresses the public internet can answer for.
//!
//! The list is one of what is *not* public, taken from the special-purpose registries, and for IPv6 it is turned round:
//! only the block that is handed out to networks at all (2000::/3) can be public, so a form that nobody thought of is
//! refused. Old ways to wrap an IPv4 address into an IPv6 one are judged by the address inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if the address belongs to the public internet, not to this machine, its networks, its cloud's services or a
/// range with a meaning of its own.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // "This host on this network": Linux takes 0.0.0.0 for loopback.
        [0, ..] => true,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => true,
        // Shared space of carriers; one cloud keeps its metadata service there (100.100.100.200).
        [100, 64..=127, ..] => true,
        [127, ..] => true,
        [169, 254, ..] => true,
        // Protocol assignments; one cloud keeps its metadata service there (192.0.0.192).
        [192, 0, 0, _] => true,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // The relay of 6to4, which wraps and unwraps addresses.
        [192, 88, 99, _] => true,
        [198, 18..=19, ..] => true,
        // A public address by the registry, but the host's own agent on one cloud.
        [168, 63, 129, 16] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // The well-known prefix of NAT64 is the one wrapped form that honest networks depend on (DNS64).
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(last_four_bytes(address));
    }
    // An ISATAP interface says in its last 32 bits where the packet comes out.
    if matches!(segments[4], 0 | 0x0200) && segments[5] == 0x5efe && !is_public_v4(last_four_bytes(address)) {
        return false;
    }
    match segments {
        // Protocol assignments: Teredo, ORCHID, benchmarks.
        [0x2001, 0..=0x01ff, ..] => false,
        [0x2001, 0x0db8, ..] => false,
        // 6to4 has an IPv4 address inside and no relay left that would carry an honest one.
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
