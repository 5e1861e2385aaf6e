//! Connections to whichever address of a name answers first (RFC 8305): one that does not answer costs a quarter of a
//! second instead of its timeout.

mod http_connector;

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    net::{TcpStream, ToSocketAddrs, lookup_host},
    time::sleep,
};

pub use http_connector::HttpConnector;

/// The time after which the next address is tried beside those that have not answered (RFC 8305 §5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to a name, or to an address.
///
/// # Errors
/// The name cannot be resolved or has no address; the error of the address that failed last.
pub async fn connect(target: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = lookup_host(target).await?.collect();
    let (stream, _) = connect_first(interleaved(&addresses), ATTEMPT_DELAY, TcpStream::connect).await?;
    Ok(stream)
}

/// Returns the addresses with their families in turn, beginning with that of the first one (RFC 8305 §4).
#[must_use]
pub fn interleaved(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first_family =
        |address: &&SocketAddr| addresses.first().is_some_and(|first| first.is_ipv4() == address.is_ipv4());
    let (first, second): (Vec<&SocketAddr>, Vec<&SocketAddr>) = addresses.iter().partition(is_first_family);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    std::iter::from_fn(|| {
        let next = first.next().or_else(|| second.next())?;
        std::mem::swap(&mut first, &mut second);
        Some(*next)
    })
    .collect()
}

/// Connects to the first address that answers (RFC 8305 §5): the attempts run side by side, each begins `delay` after the one
/// before, or as soon as that one failed.
///
/// # Errors
/// The error of the address that failed last, if all failed; [`io::ErrorKind::NotFound`] without any address.
pub async fn connect_first<S, F>(
    addresses: Vec<SocketAddr>,
    delay: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<(S, SocketAddr)>
where
    F: Future<Output = io::Result<S>>,
{
    let mut attempts = FuturesUnordered::new();
    let mut rest = addresses.into_iter();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = rest.next() {
            let attempt = connect(address);
            attempts.push(async move { (attempt.await, address) });
        }
        let has_more = rest.len() > 0;
        tokio::select! {
            ended = attempts.next() => match ended {
                Some((Ok(stream), address)) => return Ok((stream, address)),
                Some((Err(error), address)) => {
                    tracing::debug!(%address, %error, "cannot connect to an address");
                    last = error;
                }
                None => return Err(last),
            },
            () = sleep(delay), if has_more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Connects like a network in which the addresses with the port 1 do not answer and those with the port 2 refuse. Returns
    /// what was dialled and when, and the address of the connection.
    async fn dialled(addresses: &[&str]) -> (Vec<(String, u128)>, Option<String>) {
        let (began, dialled) = (Instant::now(), parking_lot::Mutex::new(Vec::new()));
        let connect = |address: SocketAddr| {
            dialled.lock().push((address.to_string(), began.elapsed().as_millis()));
            async move {
                match address.port() {
                    1 => std::future::pending().await,
                    2 => Err(io::ErrorKind::ConnectionRefused.into()),
                    _ => Ok(()),
                }
            }
        };
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let found = connect_first(interleaved(&addresses), ATTEMPT_DELAY, connect).await;
        (dialled.into_inner(), found.ok().map(|((), address)| address.to_string()))
    }

    fn at(dialled: &[(&str, u128)]) -> Vec<(String, u128)> {
        dialled.iter().map(|(address, at)| ((*address).to_owned(), *at)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_delays_the_next_one_by_250_ms() {
        let found = dialled(&["[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:80"]).await;
        assert_eq!(found, (at(&[("[2001:db8::1]:1", 0), ("192.0.2.1:80", 250)]), Some("192.0.2.1:80".to_owned())));
        let found = dialled(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:80"]).await;
        let expected = at(&[("192.0.2.1:1", 0), ("192.0.2.2:1", 250), ("192.0.2.3:80", 500)]);
        assert_eq!(found, (expected, Some("192.0.2.3:80".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_delays_the_next_one_not_at_all() {
        let found = dialled(&["192.0.2.1:2", "192.0.2.2:80"]).await;
        assert_eq!(found, (at(&[("192.0.2.1:2", 0), ("192.0.2.2:80", 0)]), Some("192.0.2.2:80".to_owned())));
        assert_eq!(dialled(&["192.0.2.1:2"]).await, (at(&[("192.0.2.1:2", 0)]), None));
        assert_eq!(dialled(&[]).await, (Vec::new(), None));
    }
}
