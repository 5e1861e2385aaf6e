//! A network in which the inside may listen at any port, and at an address beside the loopback's.
//!
//! The user namespace that bubblewrap makes a network in is left before the inside begins, so nobody inside has a say over it. Where the
//! inside needs more than the loopback at high ports, both namespaces are made beforehand: the program, called as [`Network::args`] say,
//! prepares the network with [`prepare_network`] and becomes bubblewrap, which goes on to a user namespace below. The inside then has what
//! was prepared, and no more rights than ever. This needs no right on the host, so that it is the same for root and anybody else.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Makes the namespaces.
pub(crate) const UNSHARE: &str = "/usr/bin/unshare";

const PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// A network that the program prepares before the inside begins.
#[derive(Clone, Debug)]
pub struct Network {
    /// What the program is called with to do so; behind that come the address and a command, both for [`prepare_network`].
    pub args: Vec<String>,
    /// Where the inside is to listen.
    pub address: IpAddr,
}

impl Network {
    /// What stands before a command that is to run in it.
    pub(crate) fn words(&self, program: &Path) -> Vec<OsString> {
        let mut words = namespaces().map(OsString::from).to_vec();
        words.push(program.into());
        words.extend(self.args.iter().map(OsString::from));
        words.push(self.address.to_string().into());
        words
    }
}

/// What gives a command a network of its own with all rights over it.
pub(crate) fn namespaces() -> [&'static str; 5] {
    [UNSHARE, "--user", "--map-root-user", "--net", "--"]
}

/// Prepares the network that this process has been given, and becomes the command. Returns only if that fails.
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

/// What is said to the kernel about networks: see `rtnetlink(7)`.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const ERROR: u16 = 2;
/// The number of the loopback, which is the first device of every network.
const LOOPBACK: u32 = 1;
/// The flag of a device that is up.
const UP: u32 = 1;
/// An address that nobody asks the network about.
const NO_DUPLICATES_SOUGHT: u8 = 2;
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;
const HEAD: usize = 16;

/// The loopback, up.
fn up() -> Vec<u8> {
    let mut body = vec![0; 4];
    [LOOPBACK, UP, UP].iter().for_each(|word| body.extend(word.to_ne_bytes()));
    body
}

/// An address of the loopback's.
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
        // A number to know the answer by, and whose it is: there is one question at a time, and the kernel fills in the rest.
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        answered(answer.get(..length).unwrap_or_default())
    }
}

/// What the kernel says to a question: nothing, or why not.
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
