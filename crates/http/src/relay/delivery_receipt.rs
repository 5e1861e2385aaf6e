//! Whether what was sent to a client has arrived at its machine.
//!
//! A write that succeeds has only reached our own kernel. The kernel knows what the client's has acknowledged, and tells by the
//! socket-diagnosis protocol (`sock_diag(7)`). A client that hung up before the answer came acknowledges nothing: its machine resets the
//! connection. One that closes after it has read all of it has acknowledged it.

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

/// Of one connection: clones are of the same one. Made by its owner, asked by whoever sends an answer over it; the default is of a
/// connection whose owner says nothing, and there everything counts as arrived.
#[derive(Clone, Debug, Default)]
pub struct DeliveryReceipt(Rc<RefCell<Socket>>);

#[derive(Debug, Default)]
enum Socket {
    /// Its owner says nothing.
    #[default]
    Unknown,
    /// Nobody asks.
    Unasked,
    /// Somebody asks, and not all was handed to the kernel yet.
    Asked,
    /// The kernel has all, and not all of it has arrived; a descriptor of the connection to ask about.
    Known(TcpStream),
    /// It is known already.
    Over(DeliveryState),
}

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// Still ours, or on their way.
    Underway,
    /// The client's machine has all of them, or nobody can say that it has not.
    Arrived,
    /// The connection is no more, and the client's machine did not have all of them.
    Lost,
}

impl DeliveryReceipt {
    /// Of a connection whose owner calls [`flushed`](Self::flushed).
    pub(crate) fn of_connection() -> Self {
        Self(Rc::new(RefCell::new(Socket::Unasked)))
    }

    /// Asks about what is written from now on.
    pub(super) fn ask(&self) {
        self.turn(Socket::Asked);
    }

    fn turn(&self, next: Socket) {
        let mut socket = self.0.borrow_mut();
        if !matches!(*socket, Socket::Unknown) {
            *socket = next;
        }
    }

    /// Everything written until now was handed to the kernel. On the same machine it has arrived by now, if it ever does; asked later, a
    /// client that has read it and closes hard would look like one that has not.
    pub(crate) fn flushed(&self, connection: impl AsFd) {
        let mut socket = self.0.borrow_mut();
        if matches!(*socket, Socket::Asked) {
            // Without another descriptor nobody can say.
            let other = fcntl_dupfd_cloexec(connection, 0).map(|fd: OwnedFd| TcpStream::from(fd));
            *socket = other.map_or(Socket::Unasked, |stream| match arrival(&stream) {
                DeliveryState::Underway => Socket::Known(stream),
                known => Socket::Over(known),
            });
        }
    }

    pub(super) fn arrival(&self) -> DeliveryState {
        match &*self.0.borrow() {
            Socket::Unknown | Socket::Unasked => DeliveryState::Arrived,
            Socket::Asked => DeliveryState::Underway,
            Socket::Known(stream) => arrival(stream),
            Socket::Over(arrival) => *arrival,
        }
    }

    /// Nobody asks any more.
    pub(super) fn done(&self) {
        self.turn(Socket::Unasked);
    }
}

fn arrival(stream: &TcpStream) -> DeliveryState {
    // A connection that was reset has no peer.
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return DeliveryState::Lost };
    match unacknowledged(local, peer) {
        Ok(Some(0)) => DeliveryState::Arrived,
        Ok(Some(_)) => DeliveryState::Underway,
        Ok(None) => DeliveryState::Lost,
        Err(error) => {
            tracing::debug!(%error, "the kernel does not say what of an answer has arrived");
            DeliveryState::Arrived
        }
    }
}

/// `SOCK_DIAG_BY_FAMILY`, as a request for one socket.
const BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
/// Where an answer says how many bytes wait to be acknowledged (`idiag_wqueue`).
const UNACKNOWLEDGED: std::ops::Range<usize> = HEADER + 60..HEADER + 64;

/// How many bytes of a connection of this machine its peer has not acknowledged; `None` if there is no such connection.
fn unacknowledged(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &request(local, peer), SendFlags::DONTWAIT)?;
    let mut answer = [0_u8; 512];
    // The kernel has answered when it has taken the request.
    let (_, length) = recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
    let answer = &answer[..length.min(answer.len())];
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let number = |range: std::ops::Range<usize>| {
        answer
            .get(range)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_ne_bytes)
            .ok_or(io::ErrorKind::InvalidData)
    };
    match kind {
        Some(BY_FAMILY) => Ok(Some(number(UNACKNOWLEDGED)?)),
        Some(NLMSG_ERROR) => match number(HEADER..HEADER + 4)?.wrapping_neg() {
            code if code == Errno::NOENT.raw_os_error().unsigned_abs() => Ok(None),
            code => Err(io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(i32::MAX))),
        },
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn request(local: SocketAddr, peer: SocketAddr) -> [u8; REQUEST] {
    let mut bytes = Vec::with_capacity(REQUEST);
    bytes.extend_from_slice(&(REQUEST as u32).to_ne_bytes());
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence and port: one question, one answer.
    bytes.extend_from_slice(&[0; 8]);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend_from_slice(&[family.as_raw().to_le_bytes()[0], IPPROTO_TCP, 0, 0]);
    // In whatever state it is.
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&local.port().to_be_bytes());
    bytes.extend_from_slice(&peer.port().to_be_bytes());
    for address in [local.ip(), peer.ip()] {
        let mut place = [0; 16];
        match address {
            IpAddr::V4(v4) => place[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => place = v6.octets(),
        }
        bytes.extend_from_slice(&place);
    }
    // Any interface, and no cookie.
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&[0xff; 8]);
    bytes.try_into().unwrap_or([0; REQUEST])
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use super::*;

    /// Our side and the client's.
    fn connection(place: &str) -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(place)?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok((listener.accept()?.0, client))
    }

    #[test]
    fn an_answer_has_arrived_when_the_clients_machine_has_it_though_nobody_read_it_yet() {
        for place in ["127.0.0.1:0", "[::1]:0"] {
            let Ok((mut ours, client)) = connection(place) else { continue };
            ours.write_all(&[b'x'; 1000]).expect("sent");
            assert_eq!(arrival(&ours), DeliveryState::Arrived, "{place}");
            drop(client);
        }
    }

    #[test]
    fn an_answer_to_a_client_that_read_it_and_closed_has_arrived() {
        let (mut ours, mut client) = connection("127.0.0.1:0").expect("a connection");
        ours.write_all(&[b'x'; 1000]).expect("sent");
        client.read_exact(&mut [0; 1000]).expect("read");
        drop(client);
        assert_eq!(arrival(&ours), DeliveryState::Arrived);
    }

    #[test]
    fn an_answer_to_a_client_that_hung_up_before_or_without_reading_it_is_lost() {
        let (mut ours, client) = connection("127.0.0.1:0").expect("a connection");
        drop(client);
        ours.write_all(&[b'x'; 1000]).expect("taken by our kernel");
        assert_eq!(arrival(&ours), DeliveryState::Lost, "it closed before");
        let (mut ours, client) = connection("127.0.0.1:0").expect("a connection");
        ours.write_all(&[b'x'; 1000]).expect("sent");
        drop(client);
        assert_eq!(arrival(&ours), DeliveryState::Lost, "it closed with something unread");
    }

    #[test]
    fn an_answer_that_the_clients_machine_has_no_room_for_is_under_way() {
        let (mut ours, mut client) = connection("127.0.0.1:0").expect("a connection");
        ours.set_nonblocking(true).expect("set");
        let mut sent = 0;
        while let Ok(count) = ours.write(&[b'x'; 1 << 16]) {
            sent += count;
        }
        assert_eq!(arrival(&ours), DeliveryState::Underway);
        client.read_exact(&mut vec![0; sent]).expect("read");
        assert_eq!(arrival(&ours), DeliveryState::Arrived);
    }

    #[test]
    fn nothing_is_known_before_all_was_handed_to_the_kernel() {
        let (ours, client) = connection("127.0.0.1:0").expect("a connection");
        let receipt = DeliveryReceipt::of_connection();
        receipt.ask();
        assert_eq!(receipt.arrival(), DeliveryState::Underway);
        receipt.flushed(&ours);
        assert_eq!(receipt.arrival(), DeliveryState::Arrived);
        drop((ours, client));
        assert_eq!(receipt.arrival(), DeliveryState::Arrived, "what has arrived stays so");
    }
}
