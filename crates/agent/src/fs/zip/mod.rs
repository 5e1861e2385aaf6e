//! ZIP archives: packed while they are sent, and unpacked.
//!
//! The crates that write archives as a stream store several hundred bytes of every entry until the end, and some of
//! them write sizes after an entry in a form that stream readers cannot parse. Writing is small, so it is implemented
//! here; `casement_archive` reads. See `docs/decisions`.

pub(super) mod pack;
mod record;
pub(super) mod unpack;
