//! The events of downloads for a Playwright on another machine.
//!
//! Playwright opens a download as a file of its own machine, whose name is the download's id. Such a file does not
//! exist: `saveAs` would name a path that nobody knows, and `createReadStream` would end without bytes and without an
//! error. An id with a NUL makes each of them fail, with a text that contains the path and thereby the id.

use casement_domain::untrusted_json;

use super::FilesLocation;

/// The beginning of a marked id. Node shows 128 characters of a refused path, of which the directory takes 30 to 80.
const MARK: &str = "\0in the session below /home/casement/downloads: GET fs/read_file #";
/// The same for a remote browser.
const REMOTE_MARK: &str = "\0on the machine of the remote browser, which gives no files #";

fn mark(location: FilesLocation) -> &'static str {
    match location {
        FilesLocation::Session => MARK,
        FilesLocation::Remote => REMOTE_MARK,
    }
}

/// Returns an event of the root session with a marked id.
pub(super) fn marked(event: &[u8], location: FilesLocation) -> Option<String> {
    let mut event = untrusted_json::parse(event).ok()?;
    if event.get("sessionId").is_some() {
        return None;
    }
    let guid = event.get_mut("params")?.get_mut("guid")?;
    *guid = format!("{}{}", mark(location), guid.as_str()?).into();
    Some(event.to_string())
}

/// Returns Chromium's id of a marked one.
pub(super) fn unmarked(guid: &str) -> Option<&str> {
    guid.strip_prefix(MARK).or_else(|| guid.strip_prefix(REMOTE_MARK))
}

#[cfg(test)]
#[path = "download_events_tests.rs"]
mod tests;
