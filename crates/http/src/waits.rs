//! Bounds what connections hold while they wait for their clients, per address and in total: those that have not sent
//! the whole head of a request, those that are idle between two requests, and the bytes of responses that are not read.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Context,
};

use futures_util::task::AtomicWaker;
use metrics::{Counter, counter};
use parking_lot::Mutex;

use crate::{audit::TrustedProxies, rate::network};

/// The maximum number of half-sent heads per address for any total. A client that opens hundreds of connections at once
/// has not sent their heads yet when the first of them are checked.
const MAX_HEADS_PER_ADDRESS: u64 = 1000;
/// The maximum number of bytes of responses that were made and not read, of the server and per address.
const MAX_UNREAD_BYTES: u64 = 512 << 20;
const MAX_UNREAD_BYTES_PER_ADDRESS: u64 = 128 << 20;

/// What connections may hold while they wait for their clients.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// Connections that wait for the rest of a head. Each occupies a descriptor until the head timeout.
    pub(crate) heads: Arc<Bound>,
    /// Connections without a request. Each occupies a descriptor until the idle timeout.
    pub(crate) idle: Arc<Bound>,
    /// Bytes of responses that the client does not read.
    pub(crate) unread: Arc<Bound>,
}

impl Waits {
    /// Allows a quarter of `connections` to wait for a head and half of them to be idle; an eighth of them per address.
    pub(crate) fn new(connections: usize, trusted: &TrustedProxies) -> Self {
        let connections = connections as u64;
        let total = (connections / 4).max(2);
        let per_address = (connections / 8).max(1);
        let heads = counter!("casement_half_sent_heads_closed_total");
        let idle = counter!("casement_idle_connections_closed_total");
        let unread = counter!("casement_unread_responses_closed_total");
        Self {
            heads: Bound::new(total, per_address.min(MAX_HEADS_PER_ADDRESS), trusted, heads),
            idle: Bound::new(total.saturating_mul(2), per_address, trusted, idle),
            unread: Bound::new(MAX_UNREAD_BYTES, MAX_UNREAD_BYTES_PER_ADDRESS, trusted, unread),
        }
    }
}

/// A bound of what waiting connections hold. Above it, the connections that have waited longest are closed.
pub(crate) struct Bound {
    max_total: u64,
    max_per_address: u64,
    /// Proxies, which are exempt from the bound per address, because many clients share them.
    trusted: TrustedProxies,
    closed: Counter,
    waiting: Mutex<Waiting>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("max_total", &self.max_total).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Waiting {
    next_number: u64,
    /// The waiting connections by number, in order of arrival.
    all: BTreeMap<u64, Entry>,
    total: u64,
    by_address: HashMap<IpAddr, OfAddress>,
}

#[derive(Debug)]
struct Entry {
    from: Option<IpAddr>,
    weight: u64,
    closing: Arc<CloseSignal>,
}

/// The connections of an address.
#[derive(Debug, Default)]
struct OfAddress {
    numbers: BTreeSet<u64>,
    total: u64,
}

/// Signals the task of a connection to close it.
#[derive(Debug, Default)]
struct CloseSignal {
    is_set: AtomicBool,
    waker: AtomicWaker,
}

/// The registration of a waiting connection. Dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct Wait {
    bound: Arc<Bound>,
    number: u64,
    closing: Arc<CloseSignal>,
}

impl Bound {
    fn new(max_total: u64, max_per_address: u64, trusted: &TrustedProxies, closed: Counter) -> Arc<Self> {
        Arc::new(Self { max_total, max_per_address, trusted: trusted.clone(), closed, waiting: Mutex::default() })
    }

    /// Registers a waiting connection that holds `weight`, and closes the oldest ones if that exceeds a bound.
    pub(crate) fn register(self: &Arc<Self>, from: Option<IpAddr>, weight: u64) -> Wait {
        let bounded = from.map(|from| from.to_canonical()).filter(|from| !self.trusted.contains(*from));
        let closing = Arc::<CloseSignal>::default();
        let mut waiting = self.waiting.lock();
        let number = waiting.add(Entry { from: bounded.map(network), weight, closing: Arc::clone(&closing) });
        let mut excess = Vec::new();
        while let Some(oldest) = waiting.excess(number, self.max_total, self.max_per_address) {
            excess.extend(waiting.remove(oldest));
        }
        drop(waiting);
        for closing in excess {
            self.closed.increment(1);
            closing.is_set.store(true, Ordering::Release);
            closing.waker.wake();
        }
        Wait { bound: Arc::clone(self), number, closing }
    }
}

impl Waiting {
    fn add(&mut self, entry: Entry) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.total += entry.weight;
        if let Some(from) = entry.from {
            let own = self.by_address.entry(from).or_default();
            own.numbers.insert(number);
            own.total += entry.weight;
        }
        self.all.insert(number, entry);
        number
    }

    /// Returns the connection to close next because `added` exceeds a bound.
    fn excess(&self, added: u64, max_total: u64, max_per_address: u64) -> Option<u64> {
        let own = self.all.get(&added)?.from.and_then(|from| self.by_address.get(&from));
        match own {
            Some(own) if own.total > max_per_address => own.numbers.first().copied(),
            _ if self.total > max_total => self.all.keys().next().copied(),
            _ => None,
        }
    }

    fn remove(&mut self, number: u64) -> Option<Arc<CloseSignal>> {
        let Entry { from, weight, closing } = self.all.remove(&number)?;
        self.total -= weight;
        if let Some(from) = from
            && let Some(own) = self.by_address.get_mut(&from)
        {
            own.numbers.remove(&number);
            own.total -= weight;
            if own.numbers.is_empty() {
                self.by_address.remove(&from);
            }
        }
        Some(closing)
    }
}

impl Wait {
    /// Returns whether the connection must be closed to make room. If not, the task of `cx` is woken when it must.
    pub(crate) fn is_closed(&self, cx: &Context<'_>) -> bool {
        self.closing.waker.register(cx.waker());
        self.closing.is_set.load(Ordering::Acquire)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.bound.waiting.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, task::Waker};

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, last)))
    }

    fn closed(connections: &[Wait]) -> Vec<usize> {
        let cx = Context::from_waker(Waker::noop());
        (0..connections.len()).filter(|at| connections[*at].is_closed(&cx)).collect()
    }

    #[test]
    fn an_address_over_its_bound_loses_only_its_own_oldest_connections() {
        let heads = Waits::new(64, &TrustedProxies::default()).heads;
        let other = heads.register(address(1), 1);
        let mut many: Vec<_> = (0..10).map(|_| heads.register(address(2), 1)).collect();
        assert_eq!(closed(&many), [0, 1]);
        assert_eq!(closed(&[other]), [] as [usize; 0]);
        // A connection that has sent its head makes room.
        drop(many.pop());
        many.push(heads.register(address(2), 1));
        assert_eq!(closed(&many), [0, 1]);
    }

    #[test]
    fn over_the_total_bound_the_oldest_are_closed_and_drops_unregister() {
        let heads = Waits::new(64, &TrustedProxies::default()).heads;
        let many: Vec<_> = (0..20).map(|n| heads.register(address(n), 1)).collect();
        assert_eq!(closed(&many), [0, 1, 2, 3]);
        drop(many);
        let waiting = heads.waiting.lock();
        assert!(waiting.all.is_empty() && waiting.by_address.is_empty() && waiting.total == 0);
    }

    #[test]
    fn a_trusted_proxy_is_exempt_but_a_sandbox_in_its_network_is_not() {
        let sandboxes = address(3).into_iter().collect();
        let trusted = TrustedProxies::new(vec!["203.0.113.0/24".parse().expect("a network")], sandboxes);
        let heads = Waits::new(64, &trusted).heads;
        let many: Vec<_> = (0..16).map(|_| heads.register(address(2), 1)).collect();
        assert_eq!(closed(&many), [] as [usize; 0]);
        drop(many);
        let many: Vec<_> = (0..16).map(|_| heads.register(address(3), 1)).collect();
        assert_eq!(closed(&many), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn idle_connections_are_bounded_per_address_and_in_total() {
        let idle = Waits::new(64, &TrustedProxies::default()).idle;
        let of_one: Vec<_> = (0..9).map(|_| idle.register(address(1), 1)).collect();
        assert_eq!(closed(&of_one), [0], "an eighth");
        drop(of_one);
        let of_many: Vec<_> = (0..40).map(|n| idle.register(address(n), 1)).collect();
        assert_eq!(closed(&of_many), (0..8).collect::<Vec<_>>(), "a half");
    }

    #[test]
    fn unread_bytes_are_bounded_and_a_large_response_may_close_several() {
        let unread = Waits::new(64, &TrustedProxies::default()).unread;
        let small: Vec<_> = (0..4).map(|_| unread.register(address(1), MAX_UNREAD_BYTES_PER_ADDRESS / 4)).collect();
        assert_eq!(closed(&small), [] as [usize; 0]);
        let large = unread.register(address(1), MAX_UNREAD_BYTES_PER_ADDRESS / 2);
        assert_eq!(closed(&small), [0, 1]);
        assert_eq!(closed(&[large]), [] as [usize; 0]);
        drop(small);
        let of_many: Vec<_> = (0..5).map(|n| unread.register(address(n), MAX_UNREAD_BYTES / 4)).collect();
        assert_eq!(closed(&of_many), [0]);
    }
}
