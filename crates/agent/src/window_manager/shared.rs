//! What the window manager and its users share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
pub(super) struct Shared {
    /// The number of the last request to settle.
    requested: AtomicU32,
    /// The number of the last one that was answered; `None` once the window manager has ended.
    answered: Mutex<Option<u32>>,
    changed: Condvar,
    filling: AtomicBool,
    browser_windows: Mutex<BrowserWindows>,
}

/// The browser's windows in the order of their creation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrowserWindows {
    /// Their number.
    pub(crate) count: usize,
    /// The place of the one in front, from zero, if it is one of these.
    pub(crate) front: Option<usize>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            requested: AtomicU32::new(0),
            answered: Mutex::new(Some(0)),
            changed: Condvar::new(),
            filling: AtomicBool::new(false),
            browser_windows: Mutex::default(),
        }
    }

    /// Returns the number of a new request.
    pub(super) fn request(&self) -> u32 {
        self.requested.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Notes that a request was answered. Any program of the session may send one, so a number that was never requested
    /// is ignored.
    pub(super) fn answer(&self, number: u32) {
        let mut answered = self.answered.lock();
        if number <= self.requested.load(Ordering::Relaxed) && answered.is_some_and(|last| last < number) {
            *answered = Some(number);
            self.changed.notify_all();
        }
    }

    /// Notes that the window manager has ended and answers nothing more.
    pub(super) fn end(&self) {
        *self.answered.lock() = None;
        self.changed.notify_all();
    }

    /// Waits for the answer to a request, or the end of the window manager. Returns false after the timeout.
    pub(super) fn wait(&self, number: u32, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut answered = self.answered.lock();
        while answered.is_some_and(|last| last < number) {
            if self.changed.wait_until(&mut answered, deadline).timed_out() {
                return answered.is_none_or(|last| last >= number);
            }
        }
        true
    }

    /// Publishes the browser's windows. The X server gives rising numbers to the windows of one program.
    pub(super) fn publish(&self, mut windows: Vec<u32>, active: Option<u32>) {
        windows.sort_unstable();
        let front = windows.iter().position(|window| Some(*window) == active);
        *self.browser_windows.lock() = BrowserWindows { count: windows.len(), front };
    }

    pub(super) fn browser_windows(&self) -> BrowserWindows {
        *self.browser_windows.lock()
    }

    /// Returns true while every window with tabs fills the display, whatever size it asks for.
    pub(super) fn is_filling(&self) -> bool {
        self.filling.load(Ordering::Relaxed)
    }

    pub(super) fn set_filling(&self, filling: bool) {
        self.filling.store(filling, Ordering::Relaxed);
    }
}
