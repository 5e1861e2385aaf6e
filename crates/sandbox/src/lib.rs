//! Starts, finds again and ends isolated groups of processes.
//!
//! A sandbox is one group of processes in namespaces of its own (user, pid, mount, ipc, uts, cgroup and network), made
//! by bubblewrap. It sees a read-only system, a private home and nothing of the host; its network has `lo` alone. It
//! **outlives the process that started it**: what is needed to find it again stands in `root/<id>/state.json`, written
//! before the program runs its first instruction.
//!
//! Whoever is killed half-way through a start leaves something that [`Host::sweep`] finds: the program is held back by
//! a gate that only the starter opens, so what remains is a blocked bubblewrap and a directory.
//!
//! There is no way to ask for less isolation. What is missing makes [`Host::start`] fail with the reason and the remedy.

mod cgroup;
mod check;
mod end;
mod error;
mod filter;
mod host;
mod kernel_log;
mod keyring;
mod layout;
mod memory;
mod network;
mod process;
mod program;
mod record;
mod sandbox;
mod spec;
mod start;
mod uid;

pub use check::{Check, version};
pub use error::{EndError, HostError, ListError, StartError, StepError};
pub use host::{Host, HostConfig};
pub use kernel_log::OomKill;
pub use keyring::leave_session_keyring;
pub use memory::over_limit;
pub use network::{Network, prepare_network};
pub use record::MemoryLimit;
pub use sandbox::Sandbox;
pub use spec::{File, Spec};
