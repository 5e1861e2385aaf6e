//! Starts, lists and ends isolated groups of processes.
//!
//! A sandbox is a group of processes in separate namespaces (user, pid, mount, ipc, uts, cgroup and network), created
//! by bubblewrap. It contains a read-only system, a private home and nothing else of the host; its network contains
//! only `lo`. It **continues after the process that started it ends**: a later process finds it by
//! `root/<id>/state.json`, which is written before the program runs its first instruction.
//!
//! If the starter is killed during a start, [`Host::sweep`] finds the remains: a directory, and bubblewrap, which is
//! blocked until the starter signals that the program may run.
//!
//! Isolation cannot be reduced. A missing requirement makes [`Host::start`] fail with the reason and the remedy.

mod cgroup;
mod check;
mod egress_socket;
mod end;
mod error;
mod filter;
mod host;
mod kernel_log;
mod keyring;
mod layout;
mod memory;
mod network;
mod own_groups;
mod process;
mod program;
mod record;
mod sandbox;
mod search_path;
mod spec;
mod start;
mod uid;

pub use check::{Check, version};
pub use egress_socket::{egress_directory, listen_beside_egress, listen_for_egress};
pub use error::{EndError, HostError, ListError, StartError, StepError};
pub use host::{Host, HostConfig};
pub use kernel_log::OomKill;
pub use keyring::leave_session_keyring;
pub use memory::over_limit;
pub use network::{Network, NetworkSetup, prepare_network};
pub use own_groups::{OwnGroups, Shortage};
pub use record::{MemoryLimit, random_hex};
pub use sandbox::Sandbox;
pub use search_path::find_program;
pub use spec::{File, Spec};
