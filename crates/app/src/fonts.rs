//! The fonts of the machine, which are those of the sessions: `casement doctor` names the languages without one.

use std::collections::BTreeSet;
use std::io;
use std::process::Command;

/// A language as fontconfig names it, its name for people, and the Debian package that has a font for it.
const LANGUAGES: [(&str, &str, &str); 14] = [
    ("ar", "Arabic", "fonts-noto-core"),
    ("bn", "Bengali", "fonts-noto-core"),
    ("el", "Greek", "fonts-liberation"),
    ("he", "Hebrew", "fonts-noto-core"),
    ("hi", "Hindi", "fonts-noto-core"),
    ("ja", "Japanese", "fonts-noto-cjk"),
    ("ka", "Georgian", "fonts-noto-core"),
    ("ko", "Korean", "fonts-noto-cjk"),
    ("ru", "Russian", "fonts-liberation"),
    ("ta", "Tamil", "fonts-noto-core"),
    ("th", "Thai", "fonts-noto-core"),
    ("zh-cn", "Chinese", "fonts-noto-cjk"),
    ("zh-tw", "Chinese of Taiwan", "fonts-noto-cjk"),
    ("und-zsye", "emoji", "fonts-noto-color-emoji"),
];

/// The languages without a font.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// The names for people, such as `Thai`.
    pub(crate) languages: Vec<&'static str>,
    /// The Debian packages that have the fonts.
    pub(crate) packages: BTreeSet<&'static str>,
}

/// Returns the languages for which fontconfig knows no font.
///
/// # Errors
/// If fontconfig's program cannot be run.
pub(crate) fn missing() -> io::Result<Missing> {
    let listed = Command::new("fc-list").args(["--format", "%{lang}\n"]).output()?;
    if !listed.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
    }
    Ok(missing_of(&String::from_utf8_lossy(&listed.stdout)))
}

/// Returns the languages that none of the fonts has. Each line has the languages of one font.
fn missing_of(fonts: &str) -> Missing {
    let known: BTreeSet<&str> = fonts.lines().flat_map(|line| line.split('|')).map(str::trim).collect();
    let lacking = LANGUAGES.iter().filter(|(language, ..)| !known.contains(language));
    Missing {
        languages: lacking.clone().map(|(_, name, _)| *name).collect(),
        packages: lacking.map(|(.., package)| *package).collect(),
    }
}

/// Returns the number of languages that are looked for.
pub(crate) fn looked_for() -> usize {
    LANGUAGES.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_languages_that_no_font_has_are_named_with_the_packages_that_have_one() {
        let all: Vec<&str> = LANGUAGES.iter().map(|(language, ..)| *language).collect();
        assert_eq!(missing_of(&all.join("|")), Missing { languages: Vec::new(), packages: BTreeSet::new() });
        let western = "aa|el|en|ru\nru|uk\n\nar|he|zh-hk\n";
        let missing = missing_of(western);
        assert!(missing.languages.contains(&"Thai") && missing.languages.contains(&"Chinese"), "{missing:?}");
        assert!(!missing.languages.contains(&"Arabic") && !missing.languages.contains(&"Greek"), "{missing:?}");
        let packages = BTreeSet::from(["fonts-noto-core", "fonts-noto-cjk", "fonts-noto-color-emoji"]);
        assert_eq!(missing.packages, packages);
    }
}
