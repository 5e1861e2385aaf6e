//! A network in which programs inside may listen on any port, and on one more address than loopback.
//!
//! bubblewrap leaves the user namespace in which it creates a network before the program inside starts, so nothing
//! inside can configure the network. If a sandbox needs more than loopback and high ports, both namespaces are created
//! beforehand: the program, called with [`Network::args`], prepares the network with [`prepare_network`] and executes
//! bubblewrap, which continues in a nested user namespace. The sandbox then has the prepared network and no additional
//! rights. This needs no right on the host, so it is the same for root and for ordinary users.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The program that creates the namespaces.
pub(crate) const UNSHARE: &str = "/usr/bin/unshare";

const PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// A network that the sandbox's program prepares before the sandbox starts.
#[derive(Clone, Debug)]
pub struct Network {
    /// The arguments with which the program prepares the network. They are followed by the address and a command, both
    /// for [`prepare_network`].
    pub args: Vec<String>,
    /// The address on which programs inside may listen.
    pub address: IpAddr,
}

impl Network {
    /// Returns the words that precede a command to run it in the network.
    pub(crate) fn words(&self, program: &Path) -> Vec<OsString> {
        let mut words = namespaces().map(OsString::from).to_vec();
        words.push(program.into());
        words.extend(self.args.iter().map(OsString::from));
        words.push(self.address.to_string().into());
        words
    }
}

/// Returns the command that creates a network namespace with all rights over it.
pub(crate) fn namespaces() -> [&'static str; 5] {
    [UNSHARE, "--user", "--map-root-user", "--net", "--"]
}

/// Prepares the network of this process, and executes the command in its place. Returns only if that fails.
pub fn prepare_network(address: IpAddr, command: &[OsString]) -> io::Error {
    if let Err(error) = prepare(address) {
        return io::Error::new(error.kind(), format!("the network cannot be made ready for {address}: {error}"));
    }
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    Command::new(program).args(command.iter().skip(1)).exec()
}

fn prepare(address: IpAddr) -> io::Result<()> {
    let kernel = Kernel(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?);
    kernel.ask(NEW_LINK, 0, &up())?;
    if !address.is_loopback() {
        kernel.ask(NEW_ADDRESS, CREATE | EXCLUSIVE, &own(address))?;
    }
    std::fs::write(PORTS, "0")
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
/// The flag of a device that is up.
const UP: u32 = 1;
/// The flag that skips duplicate address detection.
const NO_DUPLICATES_SOUGHT: u8 = 2;
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;
const HEAD: usize = 16;

/// Returns the message that brings loopback up.
fn up() -> Vec<u8> {
    let mut body = vec![0; 4];
    [LOOPBACK, UP, UP].iter().for_each(|word| body.extend(word.to_ne_bytes()));
    body
}

/// Returns the message that adds an address to loopback.
fn own(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let bits = octets.len() as u8 * 8;
    let mut body = vec![family.as_raw() as u8, bits, NO_DUPLICATES_SOUGHT, 0];
    body.extend(LOOPBACK.to_ne_bytes());
    for kind in [LOCAL, ADDRESS] {
        body.extend((octets.len() as u16 + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(&octets);
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
    let unclear = || io::Error::other("the kernel answers something else than was asked");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEAD..HEAD + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(Errno::from_raw_os_error(code.saturating_neg()).into()),
        _ => Err(unclear()),
    }
}
