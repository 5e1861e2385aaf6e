//! Forwards connections between networks.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Context as _;

use super::network::enter;

/// An address whose connections lead to an address of another network. Dropping it closes the address; connections end by
/// themselves.
pub(crate) struct Door {
    address: SocketAddr,
    /// Whether it is closed, and its socket; `None` for an address that needs no forwarding.
    forwarding: Option<(Arc<AtomicBool>, TcpStream)>,
}

impl Door {
    /// Returns a door for an address of the same network.
    pub(super) fn of(address: SocketAddr) -> Self {
        Self { address, forwarding: None }
    }

    /// Forwards the connections of a listener to an address in a network namespace, or in the one of the test.
    pub(super) fn open(listener: TcpListener, to: SocketAddr, namespace: Option<PathBuf>) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        // A listener cannot be shut down by its own type.
        let socket = TcpStream::from(OwnedFd::from(listener.try_clone()?));
        let is_closed = Arc::clone(&closed);
        let (entered, result) = mpsc::channel();
        thread::spawn(move || {
            let is_entered = namespace.as_deref().map_or(Ok(()), enter);
            let failed = is_entered.is_err();
            if entered.send(is_entered).is_err() || failed {
                return;
            }
            for stream in listener.incoming() {
                if is_closed.load(Ordering::Relaxed) {
                    return;
                }
                // The threads of connections are in the namespace of this one.
                if let Ok(stream) = stream {
                    thread::spawn(move || drop(forward(&stream, to)));
                }
            }
        });
        result.recv().context("a thread ended")??;
        Ok(Self { address, forwarding: Some((closed, socket)) })
    }

    /// Returns the address to connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some((closed, socket)) = &self.forwarding {
            closed.store(true, Ordering::Relaxed);
            // Wakes the thread, whose socket would keep its network alive.
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

/// Copies both directions. Each end is passed on, and a failure ends both.
fn forward(client: &TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| one_way(client, &server));
        one_way(&server, client);
    });
    Ok(())
}

fn one_way(mut from: &TcpStream, mut to: &TcpStream) {
    let ends = match copy(&mut from, &mut to) {
        Ok(_) => to.shutdown(Shutdown::Write),
        Err(_) => from.shutdown(Shutdown::Both).and_then(|()| to.shutdown(Shutdown::Both)),
    };
    // The other side may have ended before.
    drop(ends);
}
