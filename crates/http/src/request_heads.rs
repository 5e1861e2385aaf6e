//! Bounds the connections that have not sent the whole head of a request, per address and in total. Each of them
//! occupies a descriptor and a connection slot until the head timeout.

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
use metrics::counter;
use parking_lot::Mutex;

use crate::{audit::TrustedProxies, rate::network};

/// The maximum per address for any total. A client that opens hundreds of connections at once has not sent their heads
/// yet when the first of them are checked.
const MAX_PER_ADDRESS: usize = 1000;

/// The connections that wait for the rest of a head. Above a bound, the connection that has waited longest is closed.
#[derive(Debug)]
pub(crate) struct Heads {
    max_total: usize,
    max_per_address: usize,
    /// Proxies, which are exempt from the bound per address, because many clients share them.
    trusted: TrustedProxies,
    pending: Mutex<PendingHeads>,
}

#[derive(Debug, Default)]
struct PendingHeads {
    next_number: u64,
    /// The pending heads by number, in order of arrival.
    all: BTreeMap<u64, (Option<IpAddr>, Arc<CloseSignal>)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Signals the task of a connection to close it.
#[derive(Debug, Default)]
struct CloseSignal {
    is_set: AtomicBool,
    waker: AtomicWaker,
}

/// The registration of a connection that waits for the rest of a head. Dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct PendingHead {
    heads: Arc<Heads>,
    number: u64,
    closing: Arc<CloseSignal>,
}

impl Heads {
    /// Allows a quarter of `connections` to wait for a head, and half as many per address.
    pub(crate) fn new(connections: usize, trusted: TrustedProxies) -> Arc<Self> {
        let max_total = (connections / 4).max(2);
        let max_per_address = (max_total / 2).min(MAX_PER_ADDRESS);
        Arc::new(Self { max_total, max_per_address, trusted, pending: Mutex::default() })
    }

    /// Registers a connection that waits for a head, and closes the oldest one if that exceeds a bound.
    pub(crate) fn register(self: &Arc<Self>, from: Option<IpAddr>) -> PendingHead {
        let bounded = from.map(|from| from.to_canonical()).filter(|from| !self.trusted.contains(*from));
        let from = bounded.map(network);
        let closing = Arc::<CloseSignal>::default();
        let mut pending = self.pending.lock();
        let number = pending.next_number;
        pending.next_number += 1;
        pending.all.insert(number, (from, Arc::clone(&closing)));
        let own = from.map(|from| {
            let own = pending.by_address.entry(from).or_default();
            own.insert(number);
            (own.len(), own.first().copied())
        });
        let oldest = match own {
            Some((count, oldest)) if count > self.max_per_address => oldest,
            _ if pending.all.len() > self.max_total => pending.all.keys().next().copied(),
            _ => None,
        };
        if let Some(closing) = oldest.and_then(|oldest| pending.remove(oldest)) {
            counter!("casement_half_sent_heads_closed_total").increment(1);
            closing.is_set.store(true, Ordering::Release);
            closing.waker.wake();
        }
        drop(pending);
        PendingHead { heads: Arc::clone(self), number, closing }
    }
}

impl PendingHeads {
    fn remove(&mut self, number: u64) -> Option<Arc<CloseSignal>> {
        let (from, closing) = self.all.remove(&number)?;
        if let Some(from) = from
            && let Some(own) = self.by_address.get_mut(&from)
        {
            own.remove(&number);
            if own.is_empty() {
                self.by_address.remove(&from);
            }
        }
        Some(closing)
    }
}

impl PendingHead {
    /// Returns whether the connection must be closed to make room. If not, the task of `cx` is woken when it must.
    pub(crate) fn is_closed(&self, cx: &Context<'_>) -> bool {
        self.closing.waker.register(cx.waker());
        self.closing.is_set.load(Ordering::Acquire)
    }
}

impl Drop for PendingHead {
    fn drop(&mut self) {
        self.heads.pending.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, task::Waker};

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, last)))
    }

    fn closed(connections: &[PendingHead]) -> Vec<usize> {
        let cx = Context::from_waker(Waker::noop());
        (0..connections.len()).filter(|at| connections[*at].is_closed(&cx)).collect()
    }

    #[test]
    fn an_address_over_its_bound_loses_only_its_own_oldest_connections() {
        let heads = Heads::new(64, TrustedProxies::default());
        let other = heads.register(address(1));
        let mut many: Vec<_> = (0..10).map(|_| heads.register(address(2))).collect();
        assert_eq!(closed(&many), [0, 1]);
        assert_eq!(closed(&[other]), [] as [usize; 0]);
        // A connection that has sent its head makes room.
        drop(many.pop());
        many.push(heads.register(address(2)));
        assert_eq!(closed(&many), [0, 1]);
    }

    #[test]
    fn over_the_total_bound_the_oldest_are_closed_and_drops_unregister() {
        let heads = Heads::new(64, TrustedProxies::default());
        let many: Vec<_> = (0..20).map(|n| heads.register(address(n))).collect();
        assert_eq!(closed(&many), [0, 1, 2, 3]);
        drop(many);
        let pending = heads.pending.lock();
        assert!(pending.all.is_empty() && pending.by_address.is_empty());
    }

    #[test]
    fn a_trusted_proxy_is_exempt_but_a_sandbox_in_its_network_is_not() {
        let sandboxes = address(3).into_iter().collect();
        let trusted = TrustedProxies::new(vec!["203.0.113.0/24".parse().expect("a network")], sandboxes);
        let heads = Heads::new(64, trusted);
        let many: Vec<_> = (0..16).map(|_| heads.register(address(2))).collect();
        assert_eq!(closed(&many), [] as [usize; 0]);
        drop(many);
        let many: Vec<_> = (0..16).map(|_| heads.register(address(3))).collect();
        assert_eq!(closed(&many), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
