//! The download directory of a session. Pages download into it without a prompt, with a display and without one.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// All spelling dictionaries of Chromium. The first typed word downloads a dictionary, even if spell checking is
/// disabled, unless the dictionary is blocked.
const DICTIONARIES: &str = "af bg ca cs cy da de el en-AU en-CA en-GB en-US es es-419 es-AR es-ES es-MX es-US et fa fo fr he hi hr hu \
    hy id it ko lt lv nb nl pl pt-BR pt-PT ro ru sh sk sl sq sr sv ta tg tr uk vi";

/// Returns the download directory of the session.
pub(crate) fn directory(profile: &Path) -> PathBuf {
    profile.with_file_name("downloads")
}

/// Creates the download directory, and writes the initial preferences of a new profile. They apply to every window,
/// also to those in browser contexts of clients.
pub(crate) fn prepare(profile: &Path) -> io::Result<()> {
    let downloads = directory(profile);
    std::fs::create_dir_all(&downloads)?;
    let settings = profile.join("Default");
    std::fs::create_dir_all(&settings)?;
    let preferences = json!({
        "download": { "default_directory": downloads, "directory_upgrade": true, "prompt_for_download": false },
        "savefile": { "default_directory": downloads },
        "browser": { "enable_spellchecking": false },
        // Text in the address bar is sent to no search service before it is opened.
        "search": { "suggest_enabled": false },
        "spellcheck": { "blocked_dictionaries": DICTIONARIES.split(' ').collect::<Vec<_>>() },
    });
    // A profile that was used before has preferences of its own, which include these.
    let file = std::fs::File::create_new(settings.join("Preferences"));
    match file.and_then(|file| Ok(serde_json::to_writer(file, &preferences)?)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// Returns the parameters of `Browser.setDownloadBehavior`, which exempt the first context from all checks of Chromium. In
/// other contexts, and once a client has set something else and left, the preferences above and the policies hold.
pub(crate) fn behavior(profile: &Path) -> Value {
    json!({ "behavior": "allow", "downloadPath": directory(profile), "eventsEnabled": false })
}
