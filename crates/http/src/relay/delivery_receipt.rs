//! Detects whether a response has arrived at the client's machine.
//!
//! A successful write has only reached the local kernel. The kernel counts how many bytes the client's kernel has
//! acknowledged (`TCP_INFO` of tcp(7)), and the count stays after the connection has ended. If the client disconnected
//! before the response arrived, its machine acknowledges nothing and resets the connection. If the client closes or
//! resets the connection after the response has arrived, as a load balancer does, the response is acknowledged.

use std::{
    cell::RefCell,
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use nix::sys::socket::{getsockopt, sockopt::GetStruct};
use rustix::io::fcntl_dupfd_cloexec;

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
    /// The kernel has the whole response, which had not arrived at the last query.
    Flushed(Flight),
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

/// A response on its way.
#[derive(Debug)]
struct Flight {
    /// A descriptor of the connection, for queries.
    connection: TcpStream,
    /// Whether the client had closed its side of the connection at the last query.
    had_client_closed: bool,
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
    /// it ever does.
    pub(crate) fn flushed(&self, connection: impl AsFd) {
        let mut socket = self.0.borrow_mut();
        if matches!(*socket, Tracking::Unflushed) {
            // Without a second descriptor the state cannot be determined.
            let duplicate = fcntl_dupfd_cloexec(connection, 0).map(|fd: OwnedFd| TcpStream::from(fd));
            *socket = duplicate.map_or(Tracking::Idle, |connection| {
                // A connection that has ended at once was reset by a client that had closed it.
                let mut flight = Flight { connection, had_client_closed: true };
                match flight.state() {
                    DeliveryState::InFlight => Tracking::Flushed(flight),
                    state => Tracking::Done(state),
                }
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

    /// Returns true if a tracked response has arrived.
    pub(super) fn has_arrived(&self) -> bool {
        match &mut *self.0.borrow_mut() {
            Tracking::Unavailable | Tracking::Idle | Tracking::Unflushed => false,
            Tracking::Flushed(flight) => flight.state() == DeliveryState::Arrived,
            Tracking::Done(state) => *state == DeliveryState::Arrived,
        }
    }

    pub(super) fn state(&self) -> DeliveryState {
        match &mut *self.0.borrow_mut() {
            Tracking::Unavailable | Tracking::Idle => DeliveryState::Arrived,
            Tracking::Unflushed => DeliveryState::InFlight,
            Tracking::Flushed(flight) => flight.state(),
            Tracking::Done(state) => *state,
        }
    }

    /// Stops tracking.
    pub(super) fn done(&self) {
        self.set(Tracking::Idle);
    }
}

impl Flight {
    fn state(&mut self) -> DeliveryState {
        match getsockopt(&self.connection, TcpInfo) {
            Ok(info) => {
                let state = info.delivery(self.had_client_closed);
                self.had_client_closed = info.has_client_closed();
                state
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel does not report the delivery of a response");
                DeliveryState::Arrived
            }
        }
    }
}

/// The socket option `TCP_INFO`.
#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, ConnectionInfo, GetStruct<ConnectionInfo>);

/// The begin of the kernel's `struct tcp_info`, as of Linux 4.19. Later kernels only add fields after it, and return as
/// much as is requested. The structure of the crate `libc` ends before the fields that are needed here.
#[derive(Clone, Copy)]
#[repr(C)]
struct ConnectionInfo {
    state: u8,
    _counts_and_times: [u8; 119],
    bytes_acked: u64,
    _received_and_segments: [u8; 16],
    bytes_not_sent: u32,
    _rates: [u8; 52],
    bytes_sent: u64,
    bytes_sent_again: u64,
}

impl ConnectionInfo {
    /// `TCP_CLOSE`: the connection has ended.
    const CLOSED: u8 = 7;
    /// `TCP_CLOSE_WAIT`: the client has closed its side.
    const CLIENT_CLOSED: u8 = 8;

    fn has_client_closed(&self) -> bool {
        self.state == Self::CLIENT_CLOSED
    }

    /// Returns the delivery. If the connection ended without an acknowledgement, the response is lost if the client had
    /// closed before. Otherwise the acknowledgement may have been lost with the connection, and the caller may use what it
    /// was told; so the response counts as arrived.
    fn delivery(&self, had_client_closed: bool) -> DeliveryState {
        let sent_once = self.bytes_sent.saturating_sub(self.bytes_sent_again);
        if self.bytes_not_sent == 0 && self.bytes_acked >= sent_once {
            DeliveryState::Arrived
        } else if self.state != Self::CLOSED {
            DeliveryState::InFlight
        } else if had_client_closed {
            DeliveryState::Lost
        } else {
            DeliveryState::Arrived
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read as _, Write as _},
        net::TcpListener,
    };

    use super::*;

    /// Returns the state of a response that was written just now.
    fn delivery_state(connection: &TcpStream) -> DeliveryState {
        let connection = connection.try_clone().expect("a second descriptor");
        Flight { connection, had_client_closed: true }.state()
    }

    #[test]
    fn without_an_acknowledgement_a_response_is_lost_only_if_the_client_had_closed() {
        let cut_off = ConnectionInfo {
            state: ConnectionInfo::CLOSED,
            _counts_and_times: [0; 119],
            bytes_acked: 0,
            _received_and_segments: [0; 16],
            bytes_not_sent: 0,
            _rates: [0; 52],
            bytes_sent: 20,
            bytes_sent_again: 10,
        };
        for (had_client_closed, expected) in [(true, DeliveryState::Lost), (false, DeliveryState::Arrived)] {
            assert_eq!(cut_off.delivery(had_client_closed), expected);
        }
        let acknowledged = ConnectionInfo { bytes_acked: 10, ..cut_off };
        assert_eq!(acknowledged.delivery(true), DeliveryState::Arrived);
        for state in [1, ConnectionInfo::CLIENT_CLOSED] {
            assert_eq!(ConnectionInfo { state, ..cut_off }.delivery(true), DeliveryState::InFlight);
        }
    }

    #[test]
    fn the_structure_of_the_kernel_has_its_fields_at_these_places() {
        assert_eq!(std::mem::offset_of!(ConnectionInfo, bytes_acked), 120);
        assert_eq!(std::mem::offset_of!(ConnectionInfo, bytes_not_sent), 144);
        assert_eq!(std::mem::offset_of!(ConnectionInfo, bytes_sent), 200);
        assert_eq!(size_of::<ConnectionInfo>(), 216);
    }

    #[test]
    fn a_response_that_arrived_before_the_client_reset_the_connection_has_arrived() {
        let (mut ours, client) = connection("127.0.0.1:0").expect("a connection");
        ours.write_all(&[b'x'; 1000]).expect("sent");
        // Closed with something unread, a connection is reset.
        drop(client);
        assert_eq!(ours.read(&mut [0]).map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
        assert_eq!(delivery_state(&ours), DeliveryState::Arrived);
    }

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
        assert_eq!(delivery_state(&ours), DeliveryState::Lost);
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
