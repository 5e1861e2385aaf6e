//! The system call filter of a sandbox. It refuses sockets of families that no network namespace contains, such as
//! the sockets from a virtual machine to its host, and sockets whose closing may take arbitrarily long. Every process
//! inside inherits the filter.

use std::sync::OnceLock;

use rustix::net::AddressFamily;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The socket families that stay within the namespaces.
const FAMILIES: [AddressFamily; 4] =
    [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6, AddressFamily::NETLINK];

/// The bit that marks system calls of x86-64's other ABI, whose numbers are otherwise the same.
#[cfg(target_arch = "x86_64")]
const OTHER_ABI: &[i64] = &[0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const OTHER_ABI: &[i64] = &[0];

/// The numbers of this call: the common one, and the one of the other ABI, which older kernels accept without the bit
/// too. Both are refused with and without the bit, because the filter sees the number before the kernel checks that
/// the call exists.
#[cfg(target_arch = "x86_64")]
const SETSOCKOPT: &[i64] = &[libc::SYS_setsockopt, 541];
#[cfg(not(target_arch = "x86_64"))]
const SETSOCKOPT: &[i64] = &[libc::SYS_setsockopt];

/// Returns the filter in the form that bubblewrap reads. A call of another architecture ends its process.
///
/// # Errors
/// If there is no filter for this processor.
pub(crate) fn filter() -> std::io::Result<&'static [u8]> {
    static FILTER: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(filter) = FILTER.get() {
        return Ok(filter);
    }
    let program = program().map_err(std::io::Error::other)?;
    let bytes = program.iter().flat_map(|step| {
        let [code, k] = [step.code.to_ne_bytes().to_vec(), step.k.to_ne_bytes().to_vec()];
        [code, vec![step.jt, step.jf], k].concat()
    });
    Ok(FILTER.get_or_init(|| bytes.collect()))
}

fn program() -> Result<BpfProgram, Error> {
    let mut rules = std::collections::BTreeMap::new();
    for abi in OTHER_ABI {
        rules.insert(abi | libc::SYS_socket, vec![strange_family()?]);
        rules.insert(abi | libc::SYS_socketpair, vec![strange_family()?]);
        // `io_uring` creates sockets without either call.
        rules.insert(abi | libc::SYS_io_uring_setup, Vec::new());
        for number in SETSOCKOPT {
            rules.insert(abi | number, vec![lingering()?]);
        }
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let processor = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refused, processor)?.try_into()?)
}

/// Returns the rule against lingering sockets. Such a socket blocks the thread that closes its last descriptor: a
/// thread of the server, if the socket was sent to the server.
fn lingering() -> Result<SeccompRule, Error> {
    let is = |argument: u8, value: i32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value.unsigned_abs()))
    };
    Ok(SeccompRule::new(vec![is(1, libc::SOL_SOCKET)?, is(2, libc::SO_LINGER)?])?)
}

fn strange_family() -> Result<SeccompRule, Error> {
    let is_not = |family: AddressFamily| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.as_raw()))
    };
    Ok(SeccompRule::new(FAMILIES.map(is_not).into_iter().collect::<Result<_, _>>()?)?)
}
