//! The buffer of events that the server has not stored yet.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::event::Event;
use casement_agent_protocol::telemetry::{
    Addresses, Category, GAP, MAX_UNCONFIRMED_BYTES, MAX_UNCONFIRMED_EVENTS, SourceKind,
};

/// The maximum number of bytes that a reader receives at once; one event may be longer.
const CHUNK_BYTES: usize = 64 << 10;

/// The unconfirmed events.
#[derive(Debug)]
pub(super) struct UnconfirmedEvents {
    events: Mutex<Events>,
    /// The number of the last event; a reader waits for it to grow.
    last: watch::Sender<u64>,
    /// The number of readers so far. A new reader ends the previous one.
    reader: watch::Sender<u64>,
    /// The number of the last event that a reader received.
    read: watch::Sender<u64>,
    /// The part of URLs that new events contain.
    addresses: watch::Sender<Addresses>,
}

#[derive(Debug, Default)]
struct Events {
    last: u64,
    /// True if the last number belongs to a lost event.
    ends_with_loss: bool,
    /// The lines with their numbers, oldest first.
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
    /// Sets the part of URLs that new events contain.
    pub(super) fn set_addresses(&self, addresses: Addresses) {
        self.addresses.send_replace(addresses);
    }

    /// Numbers an event and adds it. The oldest events are dropped when there are too many.
    pub(super) fn add(&self, event: Event) {
        let rest = event.into_json(*self.addresses.borrow());
        let mut events = self.lock();
        events.add(&rest);
        let last = events.last;
        drop(events);
        self.last.send_replace(last);
    }

    /// Numbers a lost event.
    pub(super) fn lose(&self) {
        let mut events = self.lock();
        events.last += 1;
        events.ends_with_loss = true;
    }

    /// Adds a gap line if the last event was lost. The line has the number of that event, so that the count of lost
    /// events is the same if the line is dropped.
    pub(super) fn settle(&self) {
        let mut events = self.lock();
        if !events.ends_with_loss {
            return;
        }
        events.push(&Event::new(GAP, Category::Other, SourceKind::LocalProcess).into_json(Addresses::Full));
        let last = events.last;
        drop(events);
        self.last.send_replace(last);
    }

    /// Returns the number of the last event, after a gap line if it was lost.
    pub(super) fn finish(&self) -> u64 {
        self.settle();
        self.lock().last
    }

    /// Drops the events up to this number.
    pub(super) fn confirm(&self, through: u64) {
        let mut events = self.lock();
        let confirmed = events.lines.partition_point(|(number, _)| *number <= through);
        let bytes: usize = events.lines.drain(..confirmed).map(|(_, line)| line.len()).sum();
        events.bytes -= bytes;
        if events.lines.is_empty() {
            events.lines.shrink_to(64);
        }
    }

    /// Creates a reader of the events after this number, which ends the previous reader.
    pub(super) fn read(self: &Arc<Self>, after: u64) -> Reader {
        self.reader.send_modify(|count| *count += 1);
        let turn = self.reader.subscribe();
        let number = *turn.borrow();
        Reader { events: Arc::clone(self), after, number, turn, last: self.last.subscribe() }
    }

    /// Waits until everything is read; returns at once if there is no reader.
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
        self.push(rest);
    }

    /// Adds a line with the last number.
    fn push(&mut self, rest: &[u8]) {
        self.ends_with_loss = false;
        let mut line = BytesMut::with_capacity(rest.len() + 32);
        line.put_slice(b"{\"seq\":");
        line.put_slice(self.last.to_string().as_bytes());
        line.put_u8(b',');
        // The rest is an object: its opening bracket is left out.
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

    /// Returns one chunk of the lines after this number, and the number of its last line.
    fn after(&self, number: u64) -> Option<(u64, Bytes)> {
        let first = self.lines.partition_point(|(of, _)| *of <= number);
        let mut taken = self.lines.iter().skip(first);
        let (mut last, line) = taken.next().cloned()?;
        let mut chunk = BytesMut::from(line);
        for (number, line) in taken {
            if chunk.len() + line.len() > CHUNK_BYTES {
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
    events: Arc<UnconfirmedEvents>,
    after: u64,
    number: u64,
    turn: watch::Receiver<u64>,
    last: watch::Receiver<u64>,
}

impl Reader {
    /// Waits for the next lines and returns them; `None` once there is another reader.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if *self.turn.borrow() != self.number {
                return None;
            }
            self.last.mark_unchanged();
            let more = self.events.lock().after(self.after);
            if let Some((last, chunk)) = more {
                self.after = last;
                self.events.read.send_replace(last);
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

    fn numbers(events: &UnconfirmedEvents) -> Vec<u64> {
        events.lock().lines.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn lost_events_have_numbers_and_one_gap_line() {
        let events = UnconfirmedEvents::default();
        let event = Event::new("page_load", Category::Page, SourceKind::Cdp);
        events.add(event.clone());
        for _ in 0..3 {
            events.lose();
        }
        events.settle();
        events.settle();
        assert_eq!(numbers(&events), [1, 4], "the last lost event has a gap line");
        events.add(event);
        assert_eq!(numbers(&events), [1, 4, 5]);
    }
}
