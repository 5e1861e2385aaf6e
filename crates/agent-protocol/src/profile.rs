//! Profiles: `/v1/profile/…`.
//!
//! An archive is a `tar` of the user data directory, compressed with `zstd`, with regular files and directories only.

/// `POST`, body: an archive → `{}`. Unpacks it beside the browser's user data; a [restart](super::extension::RESTART)
/// with `profile` swaps them. Replaces a pending one. An archive that is truncated, altered or has unsafe entries is
/// refused with `not_allowed`, and nothing of it is left.
pub const LOAD: &str = "/v1/profile/load";
/// `POST`, no arguments → an archive as a stream. Closes Chromium for good and waits until it has written everything;
/// the agent continues until it is shut down. A repeated request returns the same archive. A stream that breaks before
/// its end is not an archive.
pub const CAPTURE: &str = "/v1/profile/capture";

/// The longest archive, in bytes, compressed.
pub const MAX_PROFILE_BYTES: u64 = 512 << 20;
/// The longest content of an archive, in bytes, unpacked.
pub const MAX_UNPACKED_BYTES: u64 = 2 << 30;
/// The maximum number of files and directories of an archive.
pub const MAX_PROFILE_ENTRIES: u64 = 200_000;
