//! Which part of Chromium's user data is the profile: what a person would miss on another machine.
//!
//! Of the user data directory only `Default` is kept, the browser's one profile. What lies beside it belongs to the installation:
//!
//! | left out | why |
//! | --- | --- |
//! | `Local State` | switches of `chrome://flags`, metrics and their identifiers; made anew. No key is in it: with `--password-store=basic` cookies and passwords can be read wherever the profile goes |
//! | `Crashpad`, `BrowserMetrics`, `Safe Browsing`, `component_crx_cache`, models, lists … | reports, and what is downloaded for parts of the browser |
//! | `GPUPersistentCache`, `GrShaderCache`, `ShaderCache` … | caches |
//! | `Singleton…`, `DevToolsActivePort` | say which process uses the directory, and where it listens |
//!
//! Of `Default` everything is kept, what a later Chromium will put there too, but for [`LEFT_OUT`] and the locks and logs of databases.
//! Kept although it sounds like a cache: `Service Worker/ScriptCache`. It holds the scripts themselves, and without them Chromium
//! forgets the service workers.
//!
//! Cookies that last as long as the browser are kept, too: Chromium stores them with the others, and when it is started with
//! `--restore-last-session` it takes them up again, with everything that belongs to them (partition, scheme and port of their source,
//! priority), of which the debugging protocol would carry a part only.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// The one directory of the user data directory that is kept.
const MAX_BUFFERED_BYTES: &str = "Default";

/// Left out of it.
const LEFT_OUT: &[&str] = &[
    // Can be fetched or made again; most of the size.
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
    // The pages that were open, and what their tabs had for themselves: a session begins with a page of its own.
    "Sessions",
    "Sessions_Encrypted",
    "Session Storage",
    // Which extensions there are, a session says; what they have stored is kept, and theirs again where they are loaded.
    "Extensions",
    "Extension Rules",
    "Extension Scripts",
    "DNR Extension Rules",
    // What policies gave them. Policies belong to a session, too.
    "Managed Extension Settings",
    // What the browser's own password manager keeps, where a policy lets it: it fills it in and shows it to whoever sits before it.
    "Login Data",
    "Login Data-journal",
    "Login Data For Account",
    "Login Data For Account-journal",
    // Which certificates are trusted is not a profile's to say: it would bring its own authority into a login.
    "ServerCertificate",
    "ServerCertificate-journal",
    // Downloads that were under way.
    "Download Service",
    "README",
];

/// Locks and logs, which a database makes anew.
const OF_DATABASES: &[&str] = &["LOCK", "LOG", "LOG.old"];

/// Whether what lies at `path`, relative to the user data directory, is kept. Nothing is below what is not.
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
