//! The machines next to this one: gateways, and hosts in the same IPv6 network.
//!
//! With IPv6 these machines usually have global addresses, but their services are often meant for the local network: a
//! router's pages, a machine that trusts its /64. Hosts of a public IPv4 network are not neighbours, because unrelated
//! customers of a cloud share such a network.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, ErrorKind, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::Ipv6Net;
use parking_lot::Mutex;

/// The time for which routes are cached, because one page requests hundreds of resources.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// The maximum number of bytes read of each table: about a hundred thousand routes.
const MAX_TABLE_BYTES: u64 = 16 * 1024 * 1024;
/// The shortest prefix of a neighbouring network. Larger on-link networks belong to tunnels, which may lead to the
/// internet.
const MIN_PREFIX: u8 = 48;

static CACHE: Mutex<Option<(Instant, Arc<Neighbours>)>> = Mutex::new(None);

/// The neighbours, taken from the routes of this machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbours {
    gateways: HashSet<IpAddr>,
    links: HashSet<Ipv6Net>,
}

/// Returns the current neighbours of this machine.
pub(crate) fn neighbours() -> Arc<Neighbours> {
    let mut last = CACHE.lock();
    if let Some((at, known)) = &*last
        && at.elapsed() < CACHE_TTL
    {
        return Arc::clone(known);
    }
    match Neighbours::of_system() {
        Ok(found) => Arc::clone(&last.insert((Instant::now(), Arc::new(found))).1),
        // Outdated routes are better than no routes, which would allow every neighbour.
        Err(error) => {
            tracing::warn!(%error, "cannot read the routes of this machine");
            last.as_ref().map(|(_, known)| Arc::clone(known)).unwrap_or_default()
        }
    }
}

impl Neighbours {
    /// Parses the tables in the format of `/proc/net/route` and `/proc/net/ipv6_route`. Ignores lines that do not
    /// parse.
    pub(crate) fn parse(v4: &str, v6: &str) -> Self {
        let mut found = Self::default();
        found.gateways.extend(v4.lines().filter_map(gateway_v4).map(IpAddr::V4));
        for (network, next_hop) in v6.lines().filter_map(route_v6) {
            if !next_hop.is_unspecified() {
                found.gateways.insert(IpAddr::V6(next_hop).to_canonical());
            } else if network.prefix_len() >= MIN_PREFIX && is_global(network.addr()) {
                found.links.insert(network);
            }
        }
        found
    }

    /// Returns true if a neighbour has the address.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.gateways.contains(&ip)
            || matches!(ip, IpAddr::V6(v6) if self.links.iter().any(|network| network.contains(&v6)))
    }

    fn of_system() -> io::Result<Self> {
        Ok(Self::parse(&table("/proc/net/route")?, &table("/proc/net/ipv6_route")?))
    }
}

/// Reads a table. Returns an empty one if the kernel has none, because it was built or started without that protocol.
fn table(path: &str) -> io::Result<String> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_TABLE_BYTES).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Parses `INTERFACE DESTINATION GATEWAY …` and returns the gateway, if there is one.
fn gateway_v4(line: &str) -> Option<Ipv4Addr> {
    let number = u32::from_str_radix(line.split_ascii_whitespace().nth(2)?, 16).ok()?;
    // The kernel writes the bytes of an address as a number in native byte order.
    Some(Ipv4Addr::from(number.to_ne_bytes())).filter(|gateway| !gateway.is_unspecified())
}

/// Parses `DESTINATION LENGTH SOURCE LENGTH NEXT-HOP …` and returns the destination and the next hop, which is
/// unspecified for an on-link network.
fn route_v6(line: &str) -> Option<(Ipv6Net, Ipv6Addr)> {
    let mut fields = line.split_ascii_whitespace();
    let destination = address_v6(fields.next()?)?;
    let length = u8::from_str_radix(fields.next()?, 16).ok()?;
    let next_hop = address_v6(fields.nth(2)?)?;
    Some((Ipv6Net::new(destination, length).ok()?, next_hop))
}

fn address_v6(digits: &str) -> Option<Ipv6Addr> {
    let number = u128::from_str_radix(digits, 16).ok()?;
    (digits.len() == 32).then(|| number.into())
}

/// Returns true in 2000::/3, the allocated block. Returns false for the NAT64 prefix, which may be on a link but leads
/// to all of IPv4.
fn is_global(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xe000 == 0x2000
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An IPv4 route table with two gateways and an on-link network, in the native byte order of the kernel.
    pub(crate) fn v4() -> String {
        let number = |ip: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(ip));
        let route =
            |to, by, flags| format!("eth0\t{}\t{}\t{flags}\t0\t0\t0\t00000000\t0\t0\t0\n", number(to), number(by));
        [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n".to_owned(),
            route([0; 4], [51, 38, 64, 254], "0003"),
            route([10, 9, 0, 0], [51, 38, 64, 253], "0003"),
            route([51, 38, 64, 0], [0; 4], "0001"),
        ]
        .concat()
    }

    /// An IPv6 route table: on links a /64, a /47 and NAT64; a default route by a global gateway and another /64 by a
    /// link-local one; and the routes of every machine.
    pub(crate) const V6: &str = "\
2a010db8000000010000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
2a020db8000000000000000000000000 2f 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     tun0
0064ff9b000000000000000000000000 60 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     nat64
00000000000000000000000000000000 00 00000000000000000000000000000000 00 2a030db8000000000000000000000001 00000400 00000003 00000000 00000003     eth0
2a040db8000000000000000000000000 40 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000003 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000003 00000000 00000001     ppp0
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth0
ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000003 00000000 00000001     eth0
00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    fn near(neighbours: &Neighbours, ip: &str) -> bool {
        neighbours.has(ip.parse().unwrap())
    }

    #[test]
    fn gateways_and_on_link_ipv6_networks_are_neighbours() {
        let neighbours = Neighbours::parse(&v4(), V6);
        for ip in ["51.38.64.254", "51.38.64.253", "2a03:db8::1", "2a01:db8:0:1::1", "2a01:db8:0:1:9::9", "fe80::1"] {
            assert!(near(&neighbours, ip), "{ip}");
        }
    }

    #[test]
    fn the_internet_and_on_link_ipv4_networks_are_no_neighbours() {
        let neighbours = Neighbours::parse(&v4(), V6);
        let elsewhere =
            ["51.38.64.1", "93.184.215.14", "2a01:db8:0:2::1", "2a03:db8::2", "2a04:db8::1", "2606:4700::1"];
        for ip in elsewhere {
            assert!(!near(&neighbours, ip), "{ip}");
        }
        for ip in ["2a02:db8::1", "64:ff9b::5db8:d70e"] {
            assert!(!near(&neighbours, ip), "{ip} is behind a tunnel");
        }
    }

    #[test]
    fn an_invalid_route_line_is_skipped() {
        let (gateway, v4, zeros) = ("2a030db8000000000000000000000001", v4(), "0".repeat(32));
        let odd_v4 = format!("\n \neth0\neth0 0 \u{fffd}\neth0 0 100000000\n{v4}");
        let odd_v6 = [
            String::new(),
            "2a05".to_owned(),
            format!("2a050db8000000000000000000000000 81 {zeros} 00 {zeros}"),
            format!("2a050db8000000000000000000000000 zz {zeros} 00 {zeros}"),
            format!("2a050db800000000000000000000000000 40 {zeros} 00 {zeros}"),
            format!("2a05 40 {zeros} 00 {zeros}"),
            format!("{zeros} 00 {zeros} 00 {gateway}0"),
            V6.to_owned(),
        ]
        .join("\n");
        assert_eq!(Neighbours::parse(&odd_v4, &odd_v6), Neighbours::parse(&v4, V6));
        assert_eq!(Neighbours::parse("", ""), Neighbours::default());
    }

    #[test]
    fn a_missing_route_table_is_empty() {
        assert_eq!(table("/proc/net/no_such_table").unwrap(), "");
        assert!(table("/proc/net").is_err());
    }
}
