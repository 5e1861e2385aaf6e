//! Selects the part of Chromium's user data that is the profile: the state that a person would miss on another machine.
//!
//! Of the user data directory only `Default` is saved, the browser's one profile. The rest belongs to the installation:
//!
//! | not saved | reason |
//! | --- | --- |
//! | `Local State` | switches of `chrome://flags`, metrics and their identifiers; created again. It contains no key |
//! | `Crashpad`, `BrowserMetrics`, `Safe Browsing`, `component_crx_cache`, models, lists … | reports and downloads |
//! | `GPUPersistentCache`, `GrShaderCache`, `ShaderCache` … | caches |
//! | `Singleton…`, `DevToolsActivePort` | the process that uses the directory, and its port |
//!
//! With `--password-store=basic` no key is needed: cookies and passwords can be read on every machine.
//!
//! Everything in `Default` is saved, including files of later versions of Chromium, except for [`LEFT_OUT`] and the
//! locks and logs of databases. `Service Worker/ScriptCache` is saved although its name suggests a cache: it contains
//! the scripts themselves, and without them Chromium loses the service workers.
//!
//! Session cookies are saved, too: Chromium stores them with the others, and restores them when it is started with
//! `--restore-last-session`, with all their properties (partition, scheme and port of their source, priority). The
//! debugging protocol would transfer only some of the properties.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// The only directory of the user data directory that is saved.
const MAX_BUFFERED_BYTES: &str = "Default";

/// The files and directories of `Default` that are not saved.
const LEFT_OUT: &[&str] = &[
    // Can be downloaded or created again, and are most of the size.
    "Cache",
    "Code Cache",
    "GPUCache",
    "DawnCache",
    "DawnGraphiteCache",
    "DawnWebGPUCache",
    "GrShaderCache",
    "ShaderCache",
    "Media Cache",
    "Shared Dictionary",
    "Segmentation Platform",
    "Site Characteristics Database",
    "optimization_guide_hint_cache_store",
    "optimization_guide_model_store",
    // The open pages and the storage of their tabs: a session begins with its own page.
    "Sessions",
    "Sessions_Encrypted",
    "Session Storage",
    // The session determines the extensions. Their stored data is saved, and they have it again when they are loaded.
    "Extensions",
    "Extension Rules",
    "Extension Scripts",
    "DNR Extension Rules",
    // The settings of extensions by policy. Policies belong to a session, too.
    "Managed Extension Settings",
    // The entries of the browser's password manager, if a policy enables it: it fills them in and shows them to every
    // user.
    "Login Data",
    "Login Data-journal",
    "Login Data For Account",
    "Login Data For Account-journal",
    // A profile must not determine the trusted certificates: it could add its own certificate authority to a login.
    "ServerCertificate",
    "ServerCertificate-journal",
    // Unfinished downloads.
    "Download Service",
    "README",
];

/// The locks and logs of databases, which create them again.
const OF_DATABASES: &[&str] = &["LOCK", "LOG", "LOG.old"];

/// Returns true if the file or directory at `path`, relative to the user data directory, is saved.
pub(super) fn is_saved(path: &Path) -> bool {
    let mut parts = path.components().map(Component::as_os_str);
    if parts.next() != Some(OsStr::new(MAX_BUFFERED_BYTES)) {
        return false;
    }
    let is_in = |names: &[&str], part: &OsStr| names.iter().any(|name| part == *name);
    let left_out = parts.next().is_some_and(|part| is_in(LEFT_OUT, part));
    !left_out && !path.file_name().is_some_and(|name| is_in(OF_DATABASES, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_would_miss_is_stored_and_nothing_else() {
        for saved in [
            "Default",
            "Default/Cookies",
            "Default/Cookies-journal",
            "Default/Preferences",
            "Default/Local Storage/leveldb/000003.log",
            "Default/Service Worker/ScriptCache/index",
            "Default/Local Extension Settings/abc/CURRENT",
            "Default/Storage/ext/Cache",
            "Default/whatever comes",
        ] {
            assert!(is_saved(Path::new(saved)), "{saved}");
        }
        for left_out in [
            "",
            "Local State",
            "SingletonLock",
            "Profile 1/Cookies",
            "Defaults",
            "Default/Cache",
            "Default/Cache/Cache_Data/index",
            "Default/Sessions/Tabs_1",
            "Default/Login Data",
            "Default/Login Data For Account-journal",
            "Default/IndexedDB/x.leveldb/LOCK",
        ] {
            assert!(!is_saved(Path::new(left_out)), "{left_out}");
        }
    }
}
