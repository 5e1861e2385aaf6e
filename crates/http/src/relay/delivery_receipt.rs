//! Detects whether a response has arrived at the client's machine.
//!
//! A successful write has only reached the local kernel. The kernel reports how many bytes the client's kernel has
//! acknowledged through the socket diagnosis protocol (`sock_diag(7)`). If the client disconnected before the response
//! arrived, its machine acknowledges nothing and resets the connection. If the client closes after it has read
//! everything, the response is acknowledged.

use std::{
    cell::RefCell,
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with},
};

/// The delivery state of one connection; clones share it. The owner of the connection creates it; the sender of a
/// response queries it. The default has no owner, and every response counts as arrived.
#[derive(Clone, Debug, Default)]
pub struct DeliveryReceipt(Rc<RefCell<Tracking>>);

#[derive(Debug, Default)]
enum Tracking {
    /// The connection has no owner that reports flushes.
    #[default]
    Unavailable,
    /// No response is tracked.
    Idle,
    /// A response is tracked, and was not passed to the kernel completely yet.
    Unflushed,
    /// The kernel has the whole response, which has not arrived yet. Holds a descriptor of the connection for queries.
    Flushed(TcpStream),
    /// The result is known.
    Done(DeliveryState),
}

/// The delivery of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// The response was not passed to the kernel, or is not acknowledged.
    InFlight,
    /// The client's machine has the whole response, or the state cannot be determined.
    Arrived,
    /// The connection ended before the client's machine had the whole response.
    Lost,
}

impl DeliveryReceipt {
    /// Creates the receipt of a connection whose owner calls [`flushed`](Self::flushed).
    pub(crate) fn of_connection() -> Self {
        Self(Rc::new(RefCell::new(Tracking::Idle)))
    }

    /// Tracks the bytes that are written from now on.
    pub(super) fn track(&self) {
        self.set(Tracking::Unflushed);
    }

    fn set(&self, next: Tracking) {
        let mut socket = self.0.borrow_mut();
        if !matches!(*socket, Tracking::Unavailable) {
            *socket = next;
        }
    }

    /// Notes that all written bytes were passed to the kernel. A response to the same machine has arrived by then, if
    /// it ever does. A later query could not distinguish a client that read the response and then reset the connection
    /// from one that did not read it.
    pub(crate) fn flushed(&self, connection: impl AsFd) {
        let mut socket = self.0.borrow_mut();
        if matches!(*socket, Tracking::Unflushed) {
            // Without a second descriptor the state cannot be determined.
            let duplicate = fcntl_dupfd_cloexec(connection, 0).map(|fd: OwnedFd| TcpStream::from(fd));
            *socket = duplicate.map_or(Tracking::Idle, |stream| match delivery_state(&stream) {
                DeliveryState::InFlight => Tracking::Flushed(stream),
                state => Tracking::Done(state),
            });
        }
    }

    /// Notes that all written bytes were passed to an HTTP/2 connection, which does not report their arrival: they count
    /// as arrived.
    pub(crate) fn handed_over(&self) {
        let mut socket = self.0.borrow_mut();
        if matches!(*socket, Tracking::Unflushed) {
            *socket = Tracking::Done(DeliveryState::Arrived);
        }
    }

    /// Returns true if a tracked response is known to have arrived.
    pub(super) fn is_known_to_have_arrived(&self) -> bool {
        matches!(*self.0.borrow(), Tracking::Done(DeliveryState::Arrived))
    }

    pub(super) fn state(&self) -> DeliveryState {
        match &*self.0.borrow() {
            Tracking::Unavailable | Tracking::Idle => DeliveryState::Arrived,
            Tracking::Unflushed => DeliveryState::InFlight,
            Tracking::Flushed(stream) => delivery_state(stream),
            Tracking::Done(state) => *state,
        }
    }

    /// Stops tracking.
    pub(super) fn done(&self) {
        self.set(Tracking::Idle);
    }
}

fn delivery_state(stream: &TcpStream) -> DeliveryState {
    // A connection that was reset has no peer.
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return DeliveryState::Lost };
    match unacknowledged(local, peer) {
        Ok(Some(0)) => DeliveryState::Arrived,
        Ok(Some(_)) => DeliveryState::InFlight,
        Ok(None) => DeliveryState::Lost,
        Err(error) => {
            tracing::debug!(%error, "the kernel does not report the delivery of a response");
            DeliveryState::Arrived
        }
    }
}

/// `SOCK_DIAG_BY_FAMILY`, as a request for one socket.
const BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// The position of the number of unacknowledged bytes in a response (`idiag_wqueue`).
const UNACKNOWLEDGED_RANGE: std::ops::Range<usize> = HEADER_BYTES + 60..HEADER_BYTES + 64;

/// Returns the number of bytes of a local connection that its peer has not acknowledged; `None` if the connection does
/// not exist.
fn unacknowledged(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &request(local, peer), SendFlags::DONTWAIT)?;
    let mut response = [0_u8; 512];
    // The kernel responds before `send` returns.
    let (_, length) = recv(&kernel, &mut response[..], RecvFlags::DONTWAIT)?;
    let response = &response[..length.min(response.len())];
    let kind = response.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let number = |range: std::ops::Range<usize>| {
        response
            .get(range)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_ne_bytes)
            .ok_or(io::ErrorKind::InvalidData)
    };
    match kind {
        Some(BY_FAMILY) => Ok(Some(number(UNACKNOWLEDGED_RANGE)?)),
        Some(NLMSG_ERROR) => match number(HEADER_BYTES..HEADER_BYTES + 4)?.wrapping_neg() {
            code if code == Errno::NOENT.raw_os_error().unsigned_abs() => Ok(None),
            code => Err(io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(i32::MAX))),
        },
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn request(local: SocketAddr, peer: SocketAddr) -> [u8; REQUEST_BYTES] {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    bytes.extend_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence and port are unused: there is one request and one response.
    bytes.extend_from_slice(&[0; 8]);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend_from_slice(&[family.as_raw().to_le_bytes()[0], IPPROTO_TCP, 0, 0]);
    // Matches any state of the connection.
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&local.port().to_be_bytes());
    bytes.extend_from_slice(&peer.port().to_be_bytes());
    for address in [local.ip(), peer.ip()] {
        let mut octets = [0; 16];
        match address {
            IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => octets = v6.octets(),
        }
        bytes.extend_from_slice(&octets);
    }
    // Matches any interface, without a cookie.
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&[0xff; 8]);
    bytes.try_into().unwrap_or([0; REQUEST_BYTES])
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use super::*;

    /// Returns the server's side and the client's side.
    fn connection(address: &str) -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address)?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok((listener.accept()?.0, client))
    }

    #[test]
    fn a_response_has_arrived_when_the_clients_machine_has_it_even_unread() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok((mut ours, client)) = connection(address) else { continue };
            ours.write_all(&[b'x'; 1000]).expect("sent");
            assert_eq!(delivery_state(&ours), DeliveryState::Arrived, "{address}");
            drop(client);
        }
    }

    #[test]
    fn a_response_to_a_client_that_read_it_and_closed_has_arrived() {
        let (mut ours, mut client) = connection("127.0.0.1:0").expect("a connection");
        ours.write_all(&[b'x'; 1000]).expect("sent");
        client.read_exact(&mut [0; 1000]).expect("read");
        drop(client);
        assert_eq!(delivery_state(&ours), DeliveryState::Arrived);
    }

    #[test]
    fn a_response_to_a_client_that_disconnected_without_reading_it_is_lost() {
        let (mut ours, client) = connection("127.0.0.1:0").expect("a connection");
        drop(client);
        ours.write_all(&[b'x'; 1000]).expect("accepted by the local kernel");
        assert_eq!(delivery_state(&ours), DeliveryState::Lost, "it closed before");
        let (mut ours, client) = connection("127.0.0.1:0").expect("a connection");
        ours.write_all(&[b'x'; 1000]).expect("sent");
        drop(client);
        assert_eq!(delivery_state(&ours), DeliveryState::Lost, "it closed with something unread");
    }

    #[test]
    fn a_response_that_exceeds_the_clients_buffer_is_in_flight() {
        let (mut ours, mut client) = connection("127.0.0.1:0").expect("a connection");
        ours.set_nonblocking(true).expect("set");
        let mut sent = 0;
        while let Ok(count) = ours.write(&[b'x'; 1 << 16]) {
            sent += count;
        }
        assert_eq!(delivery_state(&ours), DeliveryState::InFlight);
        client.read_exact(&mut vec![0; sent]).expect("read");
        assert_eq!(delivery_state(&ours), DeliveryState::Arrived);
    }

    #[test]
    fn a_response_is_in_flight_until_it_was_flushed_to_the_kernel() {
        let (ours, client) = connection("127.0.0.1:0").expect("a connection");
        let receipt = DeliveryReceipt::of_connection();
        receipt.track();
        assert_eq!(receipt.state(), DeliveryState::InFlight);
        receipt.flushed(&ours);
        assert_eq!(receipt.state(), DeliveryState::Arrived);
        drop((ours, client));
        assert_eq!(receipt.state(), DeliveryState::Arrived, "the state is final");
    }
}
