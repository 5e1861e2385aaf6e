//! The files without which Chromium does not take a locale.
//!
//! The locale of pages and workers is the language of Chromium's interface, which Chromium takes from its environment if it
//! has a file with the texts of that language. Most systems install the English file only. A sandbox therefore sees a
//! folder with a link to the English file for each locale in place of Chromium's own: the formats of all locales are
//! part of Chromium, and the interface stays English.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use casement_domain::browser::Locale;

/// The path of Chromium's own files in a sandbox.
const ORIGINALS: &str = "/run/casement/locales";
const ENGLISH: &str = "en-US.pak";

/// The folder of links, and Chromium's own folder.
#[derive(Debug)]
pub(crate) struct LocaleFolder {
    links: PathBuf,
    originals: PathBuf,
}

impl LocaleFolder {
    /// Prepares the folder in the data directory, which running sandboxes may be using.
    ///
    /// # Errors
    /// If Chromium has no English file, or the folder cannot be written.
    pub(crate) fn prepare(chromium: &Path, data_dir: &Path) -> io::Result<Self> {
        let originals = chromium.with_file_name("locales");
        fs::metadata(originals.join(ENGLISH))?;
        let links = data_dir.join("locales");
        fs::create_dir_all(&links)?;
        // Sandboxes run as other users.
        fs::set_permissions(&links, fs::Permissions::from_mode(0o755))?;
        let target = Path::new(ORIGINALS).join(ENGLISH);
        for locale in Locale::all() {
            match symlink(&target, links.join(format!("{}.pak", locale.as_str()))) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(Self { links, originals })
    }

    /// Returns the read-only mounts of a sandbox: the paths on the host and inside.
    pub(crate) fn mounts(&self) -> [(PathBuf, PathBuf); 2] {
        [(self.originals.clone(), PathBuf::from(ORIGINALS)), (self.links.clone(), self.originals.clone())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_locale_has_a_link_to_the_english_file() {
        let [system, data] = [(); 2].map(|()| tempfile::tempdir().expect("a folder can be made"));
        let chromium = system.path().join("chromium");
        assert!(LocaleFolder::prepare(&chromium, data.path()).is_err(), "there is no English file");
        fs::create_dir(system.path().join("locales")).expect("it can be made");
        fs::write(system.path().join("locales").join(ENGLISH), "texts").expect("it can be written");
        for _ in 0..2 {
            let folder = LocaleFolder::prepare(&chromium, data.path()).expect("prepared");
            let [(originals, inside), (links, over)] = folder.mounts();
            assert_eq!((&originals, &over), (&system.path().join("locales"), &originals));
            assert_eq!(inside, Path::new(ORIGINALS));
            assert_eq!(fs::read_link(links.join("de-CH.pak")).expect("a link"), inside.join(ENGLISH));
            assert_eq!(fs::read_dir(links).expect("a folder").count(), Locale::all().count());
        }
    }
}
