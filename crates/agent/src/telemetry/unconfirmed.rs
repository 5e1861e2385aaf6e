//! Events from their happening until a server has them in safe keeping.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::event::Event;
use casement_agent_protocol::telemetry::{
    Addresses, Category, GAP, MAX_UNCONFIRMED_BYTES, MAX_UNCONFIRMED_EVENTS, SourceKind,
};

/// How much is handed to a reader at once, in bytes; one event at least.
const CHUNK: usize = 64 << 10;

/// The events that are not confirmed.
#[derive(Debug)]
pub(super) struct UnconfirmedEvents {
    events: Mutex<Events>,
    /// The number of the last event; a reader waits for it to grow.
    last: watch::Sender<u64>,
    /// How many readers there were; another one ends the one before.
    reader: watch::Sender<u64>,
    /// The last number that was handed to a reader.
    read: watch::Sender<u64>,
    /// How much is told of addresses from now on.
    addresses: watch::Sender<Addresses>,
}

#[derive(Debug, Default)]
struct Events {
    last: u64,
    /// The last number belongs to something that was lost.
    owing: bool,
    /// With their numbers, oldest first.
    lines: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl Default for UnconfirmedEvents {
    fn default() -> Self {
        let (last, reader, read, addresses) = Default::default();
        Self { events: Mutex::default(), last, reader, read, addresses }
    }
}

impl UnconfirmedEvents {
    /// From now on so much of addresses is told.
    pub(super) fn report_addresses(&self, addresses: Addresses) {
        self.addresses.send_replace(addresses);
    }

    /// Numbers an event and keeps it. The oldest go when there are too many.
    pub(super) fn add(&self, event: Event) {
        let rest = event.into_json(*self.addresses.borrow());
        let mut events = self.lock();
        events.add(&rest);
        let last = events.last;
        drop(events);
        self.last.send_replace(last);
    }

    /// Numbers something that could not be taken in.
    pub(super) fn lose(&self) {
        let mut events = self.lock();
        events.last += 1;
        events.owing = true;
    }

    /// If something was lost last, says so, so that it is seen. It has no number of its own: whether it is read or goes with the
    /// oldest, as many count as lost.
    pub(super) fn settle(&self) {
        let mut events = self.lock();
        if !events.owing {
            return;
        }
        events.keep(&Event::new(GAP, Category::Other, SourceKind::LocalProcess).into_json(Addresses::Full));
        let last = events.last;
        drop(events);
        self.last.send_replace(last);
    }

    /// The number of the last event that there is. If something was lost last, that is said.
    pub(super) fn finish(&self) -> u64 {
        self.settle();
        self.lock().last
    }

    /// Lets the events up to this number go.
    pub(super) fn confirm(&self, through: u64) {
        let mut events = self.lock();
        let confirmed = events.lines.partition_point(|(number, _)| *number <= through);
        let bytes: usize = events.lines.drain(..confirmed).map(|(_, line)| line.len()).sum();
        events.bytes -= bytes;
        if events.lines.is_empty() {
            events.lines.shrink_to(64);
        }
    }

    /// A reader of what comes after this number. The reader before is at its end.
    pub(super) fn read(self: &Arc<Self>, after: u64) -> Reader {
        self.reader.send_modify(|count| *count += 1);
        let turn = self.reader.subscribe();
        let me = *turn.borrow();
        Reader { buffered: Arc::clone(self), after, me, turn, last: self.last.subscribe() }
    }

    /// Returns when everything is read, at once if nobody reads.
    pub(super) async fn drained(&self) {
        let mut read = self.read.subscribe();
        loop {
            let all = *read.borrow_and_update() >= self.lock().last;
            if all || self.last.receiver_count() == 0 || read.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Events> {
        self.events.lock()
    }
}

impl Events {
    fn add(&mut self, rest: &[u8]) {
        self.last += 1;
        self.keep(rest);
    }

    /// Under the last number.
    fn keep(&mut self, rest: &[u8]) {
        self.owing = false;
        let mut line = BytesMut::with_capacity(rest.len() + 32);
        line.put_slice(b"{\"seq\":");
        line.put_slice(self.last.to_string().as_bytes());
        line.put_u8(b',');
        // The rest is an object too: its own bracket goes.
        line.put_slice(rest.get(1..).unwrap_or_default());
        line.put_u8(b'\n');
        let line = line.freeze();
        self.bytes += line.len();
        self.lines.push_back((self.last, line));
        while self.lines.len() > MAX_UNCONFIRMED_EVENTS || (self.bytes > MAX_UNCONFIRMED_BYTES && self.lines.len() > 1)
        {
            let Some((_, line)) = self.lines.pop_front() else { break };
            self.bytes -= line.len();
        }
    }

    /// The lines after this number, as many as are handed out at once, and the number of the last of them.
    fn after(&self, number: u64) -> Option<(u64, Bytes)> {
        let first = self.lines.partition_point(|(of, _)| *of <= number);
        let mut taken = self.lines.iter().skip(first);
        let (mut last, line) = taken.next().cloned()?;
        let mut chunk = BytesMut::from(line);
        for (number, line) in taken {
            if chunk.len() + line.len() > CHUNK {
                break;
            }
            chunk.put_slice(line);
            last = *number;
        }
        Some((last, chunk.freeze()))
    }
}

/// Reads events in their order.
#[derive(Debug)]
pub(super) struct Reader {
    buffered: Arc<UnconfirmedEvents>,
    after: u64,
    me: u64,
    turn: watch::Receiver<u64>,
    last: watch::Receiver<u64>,
}

impl Reader {
    /// Waits for the next lines; none when another reader came.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if *self.turn.borrow() != self.me {
                return None;
            }
            self.last.mark_unchanged();
            let more = self.buffered.lock().after(self.after);
            if let Some((last, chunk)) = more {
                self.after = last;
                self.buffered.read.send_replace(last);
                return Some(chunk);
            }
            tokio::select! {
                changed = self.last.changed() => changed.ok()?,
                changed = self.turn.changed() => changed.ok()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(buffered: &UnconfirmedEvents) -> Vec<u64> {
        buffered.lock().lines.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn what_was_lost_has_as_many_numbers_whether_the_word_of_it_is_read_or_lost_too() {
        let buffered = UnconfirmedEvents::default();
        let event = Event::new("page_load", Category::Page, SourceKind::Cdp);
        buffered.add(event.clone());
        for _ in 0..3 {
            buffered.lose();
        }
        buffered.settle();
        buffered.settle();
        assert_eq!(numbers(&buffered), [1, 4], "the last of the lost is told");
        buffered.add(event);
        assert_eq!(numbers(&buffered), [1, 4, 5]);
    }
}
