//! Where the files go that a page lets be downloaded: into one directory, without a question, with a display and without.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The session's directory of downloads.
pub(crate) fn directory(profile: &Path) -> PathBuf {
    profile.with_file_name("downloads")
}

/// Makes the directory, and tells a new profile of it: that holds for every window, also those that clients open in contexts of their
/// own.
pub(crate) fn prepare(profile: &Path) -> io::Result<()> {
    let downloads = directory(profile);
    std::fs::create_dir_all(&downloads)?;
    let settings = profile.join("Default");
    std::fs::create_dir_all(&settings)?;
    let preferences = json!({
        "download": { "default_directory": downloads, "directory_upgrade": true, "prompt_for_download": false },
        "savefile": { "default_directory": downloads },
    });
    // A profile that was used has its own, which hold this too.
    let file = std::fs::File::create_new(settings.join("Preferences"));
    match file.and_then(|file| Ok(serde_json::to_writer(file, &preferences)?)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// The same in the words of the debugging protocol: without it a browser without a window downloads nothing.
pub(crate) fn behavior(profile: &Path) -> Value {
    json!({ "behavior": "allow", "downloadPath": directory(profile), "eventsEnabled": false })
}
