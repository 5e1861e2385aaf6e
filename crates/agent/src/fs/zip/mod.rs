//! ZIP archives: made while they are sent, and unpacked.
//!
//! The crates that write archives as a stream keep several hundred bytes of every entry until the end, and some of them write sizes
//! behind an entry that readers of streams cannot follow. The format is small, so it is written here; `docs/decisions` says more.

pub(super) mod pack;
pub(super) mod record;
pub(super) mod source;
pub(super) mod unpack;
