//! The contact with the server: its requests, its open event streams, and the idle timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The timeout of the first request of the server that created this sandbox. A server that has ended sends none.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(45);

/// Tracks the contact with the server.
#[derive(Debug)]
pub(crate) struct ServerContact {
    last_request: Mutex<Instant>,
    has_begun: AtomicBool,
    pending_requests: AtomicUsize,
    event_streams: AtomicUsize,
    /// The number of readers that were sent the end of the browser.
    end_reports: AtomicUsize,
    /// The idle timeout in seconds; 0 disables it.
    idle_timeout: watch::Sender<u64>,
}

impl ServerContact {
    pub(crate) fn new(idle_timeout_seconds: u64) -> Self {
        Self {
            last_request: Mutex::new(Instant::now()),
            has_begun: AtomicBool::new(false),
            pending_requests: AtomicUsize::new(0),
            event_streams: AtomicUsize::new(0),
            end_reports: AtomicUsize::new(0),
            idle_timeout: watch::Sender::new(idle_timeout_seconds),
        }
    }

    /// Counts a request of a server until the guard is dropped. The wait for a slow start is one request.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.record_request();
        self.pending_requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(self))
    }

    fn record_request(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        *self.last_request.lock() = Instant::now();
    }

    /// Changes the idle timeout, in seconds; 0 disables it.
    pub(crate) fn set_idle_timeout(&self, seconds: u64) {
        self.idle_timeout.send_replace(seconds);
    }

    /// Records that a reader was sent the end of the browser.
    pub(crate) fn record_end_report(&self) {
        self.end_reports.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true once the end was reported and no event stream is open.
    pub(crate) fn is_end_reported(&self) -> bool {
        self.end_reports.load(Ordering::Relaxed) > 0 && self.event_streams.load(Ordering::Relaxed) == 0
    }

    /// Counts an event stream until the guard is dropped.
    pub(crate) fn open_event_stream(self: &Arc<Self>) -> EventStreamGuard {
        self.event_streams.fetch_add(1, Ordering::Relaxed);
        EventStreamGuard(Arc::clone(self))
    }

    /// Returns when the timeout of the first request expires without a request. Otherwise it never returns.
    pub(crate) async fn first_request_missed(&self) {
        tokio::time::sleep(FIRST_REQUEST_TIMEOUT).await;
        if self.has_begun.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Returns when there was no request of a server for the idle timeout.
    pub(crate) async fn idle_timeout_expired(&self) {
        let mut limits = self.idle_timeout.subscribe();
        loop {
            let limit = match *limits.borrow_and_update() {
                0 => None,
                seconds => Some(Duration::from_secs(seconds)),
            };
            let left = match (limit, self.idle_time()) {
                (Some(limit), Some(idle)) if idle >= limit => return,
                (Some(limit), idle) => limit - idle.unwrap_or_default(),
                (None, _) => Duration::MAX,
            };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                Ok(()) = limits.changed() => {}
            }
        }
    }

    /// Returns the time since the last request; `None` while one is pending or an event stream is open.
    fn idle_time(&self) -> Option<Duration> {
        let is_none = |count: &AtomicUsize| count.load(Ordering::Relaxed) == 0;
        let is_idle = is_none(&self.pending_requests) && is_none(&self.event_streams);
        is_idle.then(|| self.last_request.lock().elapsed())
    }
}

/// A pending request.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ServerContact>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.record_request();
        self.0.pending_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open event stream.
#[derive(Debug)]
pub(crate) struct EventStreamGuard(Arc<ServerContact>);

impl Drop for EventStreamGuard {
    fn drop(&mut self) {
        self.0.record_request();
        self.0.event_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_request_that_takes_longer_than_the_idle_timeout_is_contact() {
        let contact = Arc::new(ServerContact::new(1));
        let pending = contact.begin_request();
        let expired = timeout(Duration::from_millis(1_500), contact.idle_timeout_expired()).await;
        assert!(expired.is_err(), "a server waits for the answer");
        drop(pending);
        let expired = timeout(Duration::from_secs(30), contact.idle_timeout_expired()).await;
        assert!(expired.is_ok(), "there is no contact any more");
    }
}
