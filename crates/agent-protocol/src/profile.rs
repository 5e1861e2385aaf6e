//! Profiles: the words of `/v1/profile/…`.
//!
//! An archive is a `tar` of the user data directory, compressed by `zstd`, of plain files and directories only.

/// `POST`, body: an archive → `{}`. Unpacks it beside the browser's user data; a [restart](super::extension::RESTART) that asks for it
/// puts it in their place. One that waits already is replaced. Refused with `not_allowed`, and nothing of it left, when it is cut,
/// altered, or holds what nobody should unpack.
pub const LOAD: &str = "/v1/profile/load";
/// `POST`, no arguments → an archive, as it is made. Closes Chromium for good, in order, and waits until it has written everything;
/// the agent stays until it is told to end. Asked again, it gives what it gave before. A connection that breaks off before its end
/// has brought no archive.
pub const CAPTURE: &str = "/v1/profile/capture";

/// The longest archive, in bytes, as it comes.
pub const MAX_PROFILE_BYTES: u64 = 512 << 20;
/// The most that comes out of one, in bytes.
pub const MAX_UNPACKED_BYTES: u64 = 2 << 30;
/// The most files and directories in one.
pub const MAX_PROFILE_ENTRIES: u64 = 200_000;
