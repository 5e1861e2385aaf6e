//! The download directories that clients name.
//!
//! A client on another machine usually means a directory of its own. Chromium cannot create it, or creates it in the
//! session, where the client does not look, and in either case answers that all is well.

use casement_domain::fs::DOWNLOADS;
use serde_json::{Map, Value};

use super::FilesLocation;

pub(super) const SET_DOWNLOADS: &str = "Browser.setDownloadBehavior";
/// The same for the context of one page, deprecated.
pub(super) const SET_DOWNLOADS_OF_PAGE: &str = "Page.setDownloadBehavior";
pub(super) const SET_DOWNLOADS_OF_BIDI: &str = "browser.setDownloadBehavior";
/// The command of WebDriver BiDi with a command of CDP in it.
pub(super) const CDP_IN_BIDI: &str = "goog:cdp.sendCommand";
/// The name of the directory in which Playwright expects downloads on its own machine begins like this.
const PLAYWRIGHT_DIRECTORY: &str = "playwright-artifacts-";

/// A command that names a download directory.
#[derive(Debug, PartialEq)]
pub(super) struct NamedDirectory {
    pub(super) path: String,
    /// The command with the session's directory, for a path that the session does not have.
    pub(super) replacement: String,
}

/// Returns the directory that a command of CDP names. A path in the session's home means the session: Chromium creates it.
pub(super) fn of_cdp(mut message: Value, location: FilesLocation) -> Option<NamedDirectory> {
    let path = replace(message.get_mut("params")?.as_object_mut()?, location)?;
    Some(NamedDirectory { path, replacement: message.to_string() })
}

/// Returns the directory that a command of WebDriver BiDi names.
pub(super) fn of_bidi(mut message: Value, location: FilesLocation) -> Option<NamedDirectory> {
    let is_cdp = message["method"] == CDP_IN_BIDI;
    let params = message.get_mut("params")?;
    let path = match is_cdp {
        true if !is_cdp_command(params["method"].as_str()) => return None,
        true => replace(params.get_mut("params")?.as_object_mut()?, location)?,
        false => replace_in_bidi(params, location)?,
    };
    Some(NamedDirectory { path, replacement: message.to_string() })
}

/// Returns the directory that a command of classic WebDriver names, with a command of CDP in its body.
pub(crate) fn of_classic(mut body: Value) -> Option<(String, String)> {
    is_cdp_command(body.get("cmd")?.as_str()).then_some(())?;
    let path = replace(body.get_mut("params")?.as_object_mut()?, FilesLocation::Session)?;
    Some((path, body.to_string()))
}

fn is_cdp_command(name: Option<&str>) -> bool {
    matches!(name, Some(SET_DOWNLOADS | SET_DOWNLOADS_OF_PAGE))
}

/// Replaces the directory in the parameters of CDP, and returns the one that the client has named.
fn replace(params: &mut Map<String, Value>, location: FilesLocation) -> Option<String> {
    let path = params.get("downloadPath")?.as_str().filter(|path| is_foreign(path))?.to_owned();
    put_directory(params, location);
    Some(path)
}

/// Has the downloads go to the session's directory, or where the server of a remote browser wants them.
pub(super) fn put_directory(params: &mut Map<String, Value>, location: FilesLocation) {
    match location {
        FilesLocation::Session => {
            params.insert("downloadPath".to_owned(), DOWNLOADS.into());
        }
        FilesLocation::Remote => {
            params.insert("behavior".to_owned(), "default".into());
            params.remove("downloadPath");
        }
    }
}

fn replace_in_bidi(params: &mut Value, location: FilesLocation) -> Option<String> {
    let folder = params.pointer_mut("/downloadBehavior/destinationFolder")?;
    let path = folder.as_str().filter(|path| is_foreign(path))?.to_owned();
    match location {
        FilesLocation::Session => *folder = DOWNLOADS.into(),
        // Null is the default.
        FilesLocation::Remote => params["downloadBehavior"] = Value::Null,
    }
    Some(path)
}

/// Returns whether a path may be one of the client's machine. The session's home has a name that no other machine has.
fn is_foreign(path: &str) -> bool {
    let home = DOWNLOADS.rsplit_once('/').map_or(DOWNLOADS, |(home, _)| home);
    !path.is_empty() && path.strip_prefix(home).is_none_or(|below| !below.is_empty() && !below.starts_with('/'))
}

/// Returns whether the parameters are those of a Playwright, which reads a download from its own disk by its id.
pub(super) fn is_playwright(params: &Value) -> bool {
    let directory = params["downloadPath"].as_str().unwrap_or_default();
    let name = directory.rsplit(['/', '\\']).next().unwrap_or_default();
    params["behavior"] == "allowAndName" && name.starts_with(PLAYWRIGHT_DIRECTORY)
}
