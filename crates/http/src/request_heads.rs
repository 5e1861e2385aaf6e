//! Connections that have not sent the whole head of a request: how many there may be, of one address and of all. Each of them holds a
//! descriptor and a place in the server for as long as its client likes to take, up to half a minute.

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
use parking_lot::{Mutex, MutexGuard};

use crate::{audit::TrustedProxies, rate::neighbourhood};

/// The most of one address, however many connections there may be. Clients that open hundreds of connections at once have not sent their heads
/// yet when the first of them are looked at.
const MAX_OF_ADDRESS: usize = 1000;

/// The connections that wait for the rest of a head. Beyond the bounds, the one that has waited longest is closed.
#[derive(Debug)]
pub(crate) struct Heads {
    most: usize,
    most_of_address: usize,
    /// Whole sites stand behind these: they have no bound of their own.
    trusted: TrustedProxies,
    waiting: Mutex<WaitingHead>,
}

#[derive(Debug, Default)]
struct WaitingHead {
    next: u64,
    /// In the order in which they began to wait.
    all: BTreeMap<u64, (Option<IpAddr>, Arc<Closing>)>,
    of_address: HashMap<IpAddr, BTreeSet<u64>>,
}

/// Whether a connection is to be closed, and whom to wake for it.
#[derive(Debug, Default)]
struct Closing {
    told: AtomicBool,
    waker: AtomicWaker,
}

/// A connection that waits for the rest of a head, until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingHead {
    heads: Arc<Heads>,
    number: u64,
    closing: Arc<Closing>,
}

impl Heads {
    /// Of `connections` that the server takes at a time, a quarter may wait for a head, and half as many of one address.
    pub(crate) fn new(connections: usize, trusted: TrustedProxies) -> Arc<Self> {
        let most = (connections / 4).max(2);
        let most_of_address = (most / 2).min(MAX_OF_ADDRESS);
        Arc::new(Self { most, most_of_address, trusted, waiting: Mutex::default() })
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingHead> {
        self.waiting.lock()
    }

    /// From now on this connection waits for a head.
    pub(crate) fn wait(self: &Arc<Self>, from: Option<IpAddr>) -> PendingHead {
        let bounded = from.map(|from| from.to_canonical()).filter(|from| !self.trusted.has(*from));
        let from = bounded.map(neighbourhood);
        let closing = Arc::<Closing>::default();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.all.insert(number, (from, Arc::clone(&closing)));
        let own = from.map(|from| {
            let own = waiting.of_address.entry(from).or_default();
            own.insert(number);
            (own.len(), own.first().copied())
        });
        let oldest = match own {
            Some((count, oldest)) if count > self.most_of_address => oldest,
            _ if waiting.all.len() > self.most => waiting.all.keys().next().copied(),
            _ => None,
        };
        if let Some(closing) = oldest.and_then(|oldest| waiting.remove(oldest)) {
            counter!("casement_half_sent_heads_closed_total").increment(1);
            closing.told.store(true, Ordering::Release);
            closing.waker.wake();
        }
        drop(waiting);
        PendingHead { heads: Arc::clone(self), number, closing }
    }
}

impl WaitingHead {
    fn remove(&mut self, number: u64) -> Option<Arc<Closing>> {
        let (from, closing) = self.all.remove(&number)?;
        if let Some(from) = from
            && let Some(own) = self.of_address.get_mut(&from)
        {
            own.remove(&number);
            if own.is_empty() {
                self.of_address.remove(&from);
            }
        }
        Some(closing)
    }
}

impl PendingHead {
    /// Whether the connection is to be closed for others. If not, whoever asks is woken when it is.
    pub(crate) fn is_closed(&self, cx: &Context<'_>) -> bool {
        self.closing.waker.register(cx.waker());
        self.closing.told.load(Ordering::Acquire)
    }
}

impl Drop for PendingHead {
    fn drop(&mut self) {
        self.heads.waiting().remove(self.number);
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
    fn an_address_beyond_its_bound_loses_its_own_oldest_and_no_other_one() {
        let heads = Heads::new(64, TrustedProxies::default());
        let other = heads.wait(address(1));
        let mut many: Vec<_> = (0..10).map(|_| heads.wait(address(2))).collect();
        assert_eq!(closed(&many), [0, 1]);
        assert_eq!(closed(&[other]), [] as [usize; 0]);
        // One that has sent its head makes room.
        drop(many.pop());
        many.push(heads.wait(address(2)));
        assert_eq!(closed(&many), [0, 1]);
    }

    #[test]
    fn many_addresses_together_lose_the_oldest_and_all_are_forgotten() {
        let heads = Heads::new(64, TrustedProxies::default());
        let many: Vec<_> = (0..20).map(|n| heads.wait(address(n))).collect();
        assert_eq!(closed(&many), [0, 1, 2, 3]);
        drop(many);
        let waiting = heads.waiting();
        assert!(waiting.all.is_empty() && waiting.of_address.is_empty());
    }

    #[test]
    fn a_trusted_proxy_has_no_bound_of_its_own_and_a_sandbox_in_its_network_has_one() {
        let sandboxes = address(3).into_iter().collect();
        let trusted = TrustedProxies::new(vec!["203.0.113.0/24".parse().expect("a network")], sandboxes);
        let heads = Heads::new(64, trusted);
        let many: Vec<_> = (0..16).map(|_| heads.wait(address(2))).collect();
        assert_eq!(closed(&many), [] as [usize; 0]);
        drop(many);
        let many: Vec<_> = (0..16).map(|_| heads.wait(address(3))).collect();
        assert_eq!(closed(&many), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
