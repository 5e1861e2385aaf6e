//! Public and private networks.

use core::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6(first: u16, second: u16, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), length))
}

/// The networks of organizations: RFC 1918, RFC 6598 and unique local addresses.
const PRIVATE: [IpNet; 5] =
    [v4(10, 0, 0, 0, 8), v4(172, 16, 0, 0, 12), v4(192, 168, 0, 0, 16), v4(100, 64, 0, 0, 10), v6(0xfc00, 0, 7)];

/// The special networks outside of [`PRIVATE`], from the registries of IANA.
const SPECIAL: [IpNet; 16] = [
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    // The host agent of one cloud.
    v4(168, 63, 129, 16, 32),
    v4(224, 0, 0, 0, 3),
    v6(0x2001, 0, 23),
    v6(0x2001, 0x0db8, 32),
    v6(0x2002, 0, 16),
    v6(0x3ffe, 0, 16),
    v6(0x3fff, 0, 20),
];

/// The only block of IPv6 that is allocated to networks.
const GLOBAL_V6: IpNet = v6(0x2000, 0, 3);

/// Returns whether every address of the network is public.
pub(super) fn is_public(net: &IpNet) -> bool {
    let overlaps = |other: &IpNet| other.contains(net) || net.contains(other);
    let is_allocated = matches!(net, IpNet::V4(_)) || GLOBAL_V6.contains(net);
    is_allocated && !PRIVATE.iter().chain(&SPECIAL).any(overlaps)
}

/// Returns whether every address of the network is that of an organization.
pub(super) fn is_private(net: &IpNet) -> bool {
    PRIVATE.iter().any(|private| private.contains(net))
}
