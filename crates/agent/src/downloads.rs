//! Where the files go that a page lets be downloaded: into one directory, without a question, with a display and without.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// All that Chromium can have. The first word that is typed fetches one, for which nobody has asked, also where spelling is not looked
/// at: only a dictionary that is blocked is left where it is.
const DICTIONARIES: &str = "af bg ca cs cy da de el en-AU en-CA en-GB en-US es es-419 es-AR es-ES es-MX es-US et fa fo fr he hi hr hu \
    hy id it ko lt lv nb nl pl pt-BR pt-PT ro ru sh sk sl sq sr sv ta tg tr uk vi";

/// The session's directory of downloads.
pub(crate) fn directory(profile: &Path) -> PathBuf {
    profile.with_file_name("downloads")
}

/// Makes the directory, and tells a new profile of it: that holds for every window, also those that clients open in contexts of their
/// own. What else a new profile has to know is told with it.
pub(crate) fn prepare(profile: &Path) -> io::Result<()> {
    let downloads = directory(profile);
    std::fs::create_dir_all(&downloads)?;
    let settings = profile.join("Default");
    std::fs::create_dir_all(&settings)?;
    let preferences = json!({
        "download": { "default_directory": downloads, "directory_upgrade": true, "prompt_for_download": false },
        "savefile": { "default_directory": downloads },
        "browser": { "enable_spellchecking": false },
        // What is typed as an address is told to nobody before it is opened.
        "search": { "suggest_enabled": false },
        "spellcheck": { "blocked_dictionaries": DICTIONARIES.split(' ').collect::<Vec<_>>() },
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
