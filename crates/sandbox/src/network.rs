//! A network with more than loopback and high ports: one in which programs inside may listen on any port, and on one more
//! address than loopback, or one with a device that leads nowhere.
//!
//! bubblewrap leaves the user namespace in which it creates a network before the program inside starts, so nothing
//! inside can configure the network. If a sandbox needs more than loopback and high ports, both namespaces are created
//! beforehand: the program, called with [`Network::args`], prepares the network with [`prepare_network`] and executes
//! bubblewrap, which continues in a nested user namespace. The sandbox then has the prepared network and no additional
//! rights. This needs no right on the host, so it is the same for root and for ordinary users.

use std::ffi::{OsStr, OsString};
use std::net::{AddrParseError, IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::{fmt, io};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The program that creates the namespaces.
pub(crate) const UNSHARE: &str = "/usr/bin/unshare";

const PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// A network that the sandbox's program prepares before the sandbox starts.
#[derive(Clone, Debug)]
pub struct Network {
    /// The arguments with which the program prepares the network. They are followed by the setup and a command, both for
    /// [`prepare_network`].
    pub args: Vec<String>,
    /// What the network has in addition.
    pub setup: NetworkSetup,
}

/// What a prepared network has in addition to loopback and high ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkSetup {
    /// Programs inside may listen on any port, and on this address.
    Listen(IpAddr),
    /// A device that is up, has an address and leads nowhere. Programs such as a browser find themselves online by it:
    /// they do not count loopback. If the kernel cannot create the device, the sandbox starts without it.
    Device,
}

/// The word for [`NetworkSetup::Device`] on a command line.
const DEVICE_WORD: &str = "device";

impl fmt::Display for NetworkSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address) => address.fmt(f),
            Self::Device => DEVICE_WORD.fmt(f),
        }
    }
}

impl FromStr for NetworkSetup {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == DEVICE_WORD { Ok(Self::Device) } else { text.parse().map(Self::Listen) }
    }
}

impl Network {
    /// Returns the words that precede a command to run it in the network.
    pub(crate) fn words(&self, program: &Path) -> Vec<OsString> {
        let mut words = namespaces().map(OsString::from).to_vec();
        words.push(program.into());
        words.extend(self.args.iter().map(OsString::from));
        words.push(self.setup.to_string().into());
        words
    }
}

/// Returns the command that creates a network namespace with all rights over it.
pub(crate) fn namespaces() -> [&'static str; 5] {
    [UNSHARE, "--user", "--map-root-user", "--net", "--"]
}

/// Prepares the network of this process, and executes the command in its place. Returns only if that fails.
pub fn prepare_network(setup: NetworkSetup, command: &[OsString]) -> io::Error {
    if let Err(error) = prepare(setup) {
        return io::Error::new(error.kind(), format!("the network cannot be made ready for {setup}: {error}"));
    }
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    Command::new(program).args(command.iter().skip(1)).exec()
}

fn prepare(setup: NetworkSetup) -> io::Result<()> {
    let kernel = Kernel(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?);
    kernel.ask(NEW_LINK, 0, &up(LOOPBACK))?;
    match setup {
        NetworkSetup::Listen(address) => {
            if !address.is_loopback() {
                kernel.ask(NEW_ADDRESS, CREATE | EXCLUSIVE, &own(LOOPBACK, address))?;
            }
            std::fs::write(PORTS, "0")
        }
        NetworkSetup::Device => {
            if let Err(error) = add_device(&kernel) {
                tracing::warn!(%error, "this kernel makes no network device: pages find themselves offline");
            }
            Ok(())
        }
    }
}

/// Adds a pair of connected devices. What is sent into the one comes out of the other, in the same network, where nothing
/// receives it. The address is that of the one device alone, so there is no route: programs inside get the same error for
/// every other address as without the device.
fn add_device(kernel: &Kernel) -> io::Result<()> {
    kernel.ask(NEW_LINK, CREATE | EXCLUSIVE, &pair())?;
    for (index, _) in DEVICES {
        match kernel.ask(NEW_LINK, 0, &without_own_addresses(index)) {
            // A kernel without IPv6 gives the device no address of it either.
            Err(error) if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {}
            other => other?,
        }
        kernel.ask(NEW_LINK, 0, &up(index))?;
    }
    kernel.ask(NEW_ADDRESS, CREATE | EXCLUSIVE, &own(DEVICES[0].0, DEVICE_ADDRESS))
}

/// Message types and flags of `rtnetlink(7)`.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const ERROR: u16 = 2;
/// The index of the loopback device, which is the first device of every network.
const LOOPBACK: u32 = 1;
/// The index and the name of each device of the pair. Some kernels create devices of their own in every network; those
/// have low indexes.
const DEVICES: [(u32, &str); 2] = [(1000, "eth0"), (1001, "eth0-end")];
/// The address of the device: of a block that is reserved for documentation, so that it belongs to no host.
const DEVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The flag of a device that is up.
const UP: u32 = 1;
/// The flag that skips duplicate address detection.
const NO_DUPLICATES_SOUGHT: u8 = 2;
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;
const HEAD: usize = 16;
/// Attributes of `NEW_LINK`, and of the attributes in them.
const LINK_NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const LINK_KIND: u16 = 1;
const LINK_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const LINK_FAMILIES: u16 = 26;
const ADDRESS_GENERATION: u16 = 8;
/// The mode in which a device gets no IPv6 address by itself.
const NO_GENERATION: u8 = 1;

/// Returns the beginning of a message about a device.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    [index, flags, flags].iter().for_each(|word| body.extend(word.to_ne_bytes()));
    body
}

/// Returns an attribute of a message.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = (content.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the message that brings a device up.
fn up(index: u32) -> Vec<u8> {
    link(index, UP)
}

/// Returns the message that creates the pair of devices.
fn pair() -> Vec<u8> {
    let named =
        |(index, name): (u32, &str)| [link(index, 0), attribute(LINK_NAME, format!("{name}\0").as_bytes())].concat();
    let peer = attribute(LINK_DATA, &attribute(VETH_PEER, &named(DEVICES[1])));
    let info = attribute(LINK_INFO, &[attribute(LINK_KIND, b"veth"), peer].concat());
    [named(DEVICES[0]), info].concat()
}

/// Returns the message after which a device gets no IPv6 address by itself.
fn without_own_addresses(index: u32) -> Vec<u8> {
    let mode = attribute(ADDRESS_GENERATION, &[NO_GENERATION]);
    let families = attribute(LINK_FAMILIES, &attribute(AddressFamily::INET6.as_raw(), &mode));
    [link(index, 0), families].concat()
}

/// Returns the message that adds an address to a device, without a network around it.
fn own(index: u32, address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let bits = octets.len() as u8 * 8;
    let mut body = vec![family.as_raw() as u8, bits, NO_DUPLICATES_SOUGHT, 0];
    body.extend(index.to_ne_bytes());
    for kind in [LOCAL, ADDRESS] {
        body.extend(attribute(kind, &octets));
    }
    body
}

struct Kernel(OwnedFd);

impl Kernel {
    fn ask(&self, what: u16, how: u16, body: &[u8]) -> io::Result<()> {
        let mut message = ((HEAD + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(what.to_ne_bytes());
        message.extend((REQUEST | ACKNOWLEDGE | how).to_ne_bytes());
        // The sequence number and the port id are 0: there is one request at a time, and the kernel sets the port id.
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        answered(answer.get(..length).unwrap_or_default())
    }
}

/// Parses the kernel's acknowledgement: success or an error.
fn answered(answer: &[u8]) -> io::Result<()> {
    let unclear = || io::Error::other("the kernel sent an unexpected answer");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEAD..HEAD + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(Errno::from_raw_os_error(code.saturating_neg()).into()),
        _ => Err(unclear()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

    use super::*;

    const IN_NETWORK: &str = "CASEMENT_TEST_IN_NETWORK";

    /// Addresses outside and of neighbours.
    const OUTSIDE: [&str; 6] =
        ["192.0.2.2:80", "1.1.1.1:53", "169.254.169.254:80", "10.0.0.1:80", "[2001:db8::1]:80", "[fe80::1%1000]:80"];

    /// Runs a test of this program again in a new network.
    fn run_in_network(test: &str) {
        let [program, arguments @ ..] = namespaces();
        let own = std::env::current_exe().expect("the program of this test");
        let mut command = Command::new(program);
        command.args(arguments).arg(own).args(["--exact", test, "--nocapture"]).env(IN_NETWORK, "1");
        let output = command.output().expect("unshare runs");
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }

    fn is_in_network() -> bool {
        std::env::var_os(IN_NETWORK).is_some()
    }

    #[test]
    fn the_device_is_up_and_leads_nowhere() {
        if !is_in_network() {
            return run_in_network("network::tests::the_device_is_up_and_leads_nowhere");
        }
        prepare(NetworkSetup::Device).expect("the network can be made ready");
        let read = |path: &str| std::fs::read_to_string(path).expect("a file of the kernel");
        let devices = read("/proc/self/net/dev");
        let names: Vec<&str> = devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
        for (_, name) in DEVICES {
            assert!(names.contains(&name), "{devices}");
        }
        assert_eq!(read("/proc/self/net/route").lines().count(), 1, "no route, only the heading");
        let addresses = read("/proc/self/net/if_inet6");
        assert!(addresses.lines().all(|line| line.ends_with(" lo")), "{addresses}");
        assert!(UdpSocket::bind((DEVICE_ADDRESS, 0)).is_ok(), "the device has no address");
        for address in OUTSIDE {
            let Ok(to) = address.replace("%1000", "").parse::<SocketAddr>() else { panic!("{address}") };
            let to = match to {
                SocketAddr::V6(mut v6) if address.contains('%') => {
                    v6.set_scope_id(DEVICES[0].0);
                    SocketAddr::V6(v6)
                }
                other => other,
            };
            let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            for from in [any, DEVICE_ADDRESS] {
                if from.is_ipv4() == to.is_ipv4() {
                    let sent = UdpSocket::bind((from, 0)).and_then(|socket| socket.send_to(b"x", to));
                    assert!(sent.is_err(), "{from} reaches {to}");
                }
            }
            assert!(TcpStream::connect_timeout(&to, std::time::Duration::from_secs(5)).is_err(), "{to} answers");
        }
    }

    /// Returns a column of the kernel's table of devices.
    fn count(name: &str, column: usize) -> u64 {
        let devices = std::fs::read_to_string("/proc/self/net/dev").expect("a file of the kernel");
        let line = devices.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        let columns: Vec<&str> = line.expect("the device").split_whitespace().collect();
        columns.get(column).and_then(|text| text.parse().ok()).expect("a number")
    }

    /// A program that names the device can send to groups of hosts.
    #[test]
    fn what_is_sent_to_all_hosts_stays_in_the_network() {
        if !is_in_network() {
            return run_in_network("network::tests::what_is_sent_to_all_hosts_stays_in_the_network");
        }
        prepare(NetworkSetup::Device).expect("the network can be made ready");
        let socket = UdpSocket::bind((DEVICE_ADDRESS, 0)).expect("the device has an address");
        socket.set_broadcast(true).expect("a socket of datagrams");
        let groups = [[224, 0, 0, 251], [255, 255, 255, 255]];
        for group in groups {
            socket.send_to(b"x", (Ipv4Addr::from(group), 5353)).expect("the device takes it");
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            // The kernel passes packets on, and sends some of its own, at any time.
            let (received, sent) = (count("eth0-end", 1), count("eth0", 9));
            if sent >= groups.len() as u64 && sent == received {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{sent} sent, {received} at the other end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn a_network_without_the_device_is_ready_too() {
        if !is_in_network() {
            return run_in_network("network::tests::a_network_without_the_device_is_ready_too");
        }
        prepare(NetworkSetup::Device).expect("the network can be made ready");
        // The devices exist already: they cannot be made again.
        prepare(NetworkSetup::Device).expect("the network can be made ready");
    }

    #[test]
    fn a_setup_is_read_as_it_is_written() {
        for setup in [NetworkSetup::Device, NetworkSetup::Listen(DEVICE_ADDRESS)] {
            assert_eq!(setup.to_string().parse(), Ok(setup));
        }
    }
}
