//! Random faults, one at a time, which a seed repeats.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::Cluster;

/// The bounds of the time that a fault lasts, and of the pause after it. A node that is away for more than 45 s is lost.
const LASTS: (u64, u64) = (3, 70);
const PAUSE: (u64, u64) = (3, 15);

/// A fault, with the number of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is killed, and started again after a while.
    Kill(usize),
    /// The server is stopped with `SIGSTOP`.
    Pause(usize),
    /// The cable is pulled.
    Unplug(usize),
    /// Frames are late, and one in fifty is lost.
    SlowLink(usize),
    /// The database is stopped.
    NoDatabase,
    /// The object store is stopped.
    NoStore,
}

impl Fault {
    /// Returns the number of the node that the fault is about.
    #[must_use]
    pub const fn node(self) -> Option<usize> {
        match self {
            Self::Kill(node) | Self::Pause(node) | Self::Unplug(node) | Self::SlowLink(node) => Some(node),
            Self::NoDatabase | Self::NoStore => None,
        }
    }
}

/// A fault that was caused, with its moments.
#[derive(Clone, Copy, Debug)]
pub struct Caused {
    /// The fault.
    pub fault: Fault,
    /// The end of the fault before, or the begin of the load.
    pub quiet_since: Instant,
    /// The begin of the fault.
    pub began: Instant,
    /// The end of the fault.
    pub undone: Instant,
    /// The end of the pause after it.
    pub quiet_until: Instant,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(node) => write!(f, "node {node} is killed"),
            Self::Pause(node) => write!(f, "node {node} is stopped"),
            Self::Unplug(node) => write!(f, "the cable of node {node} is pulled"),
            Self::SlowLink(node) => write!(f, "the link of node {node} is slow"),
            Self::NoDatabase => f.write_str("the database is stopped"),
            Self::NoStore => f.write_str("the object store is stopped"),
        }
    }
}

/// A source of numbers that a seed repeats: the generator SplitMix64.
pub struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, (from, to): (u64, u64)) -> u64 {
        from + self.next() % (to - from + 1)
    }
}

impl Cluster {
    /// Causes faults for this long. `after` gets each of them after the pause that follows.
    pub fn cause_faults(
        &mut self,
        lasts: Duration,
        numbers: &mut Numbers,
        after: impl Fn(Caused),
    ) -> anyhow::Result<()> {
        let all = Instant::now();
        let mut quiet_since = all;
        thread::sleep(Duration::from_secs(PAUSE.1));
        while all.elapsed() < lasts {
            let fault = self.draw(numbers);
            let began = Instant::now();
            self.cause(fault)?;
            thread::sleep(Duration::from_secs(numbers.between(LASTS)));
            self.undo(fault)?;
            let undone = Instant::now();
            thread::sleep(Duration::from_secs(numbers.between(PAUSE)));
            let quiet_until = Instant::now();
            after(Caused { fault, quiet_since, began, undone, quiet_until });
            quiet_since = undone;
        }
        Ok(())
    }

    fn draw(&self, numbers: &mut Numbers) -> Fault {
        let node = usize::try_from(numbers.next()).unwrap_or_default() % self.nodes.len();
        match numbers.next() % 6 {
            0 => Fault::Kill(node),
            1 => Fault::Pause(node),
            2 if self.network.is_divided() => Fault::Unplug(node),
            3 if self.network.is_divided() => Fault::SlowLink(node),
            4 => Fault::NoStore,
            _ => Fault::NoDatabase,
        }
    }

    /// Causes a fault.
    pub fn cause(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill(node) => self.nodes[node].kill(),
            Fault::Pause(node) => self.pause(node),
            Fault::Unplug(node) => self.unplug(node),
            Fault::SlowLink(node) => self.slow_down(node, Duration::from_millis(50), 0.02),
            Fault::NoDatabase => self.database.stop(),
            Fault::NoStore => {
                self.store.stop();
                Ok(())
            }
        }
    }

    /// Undoes a fault.
    pub fn undo(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill(node) => self.nodes[node].restart(),
            Fault::Pause(node) => self.resume(node),
            Fault::Unplug(node) => self.plug(node),
            Fault::SlowLink(node) => self.restore_speed(node),
            Fault::NoDatabase => self.database.start(),
            Fault::NoStore => self.store.restart(),
        }
    }
}
