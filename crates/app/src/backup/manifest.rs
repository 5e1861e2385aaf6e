//! The manifest of a backup: what made it, and its parts with their checksums.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use casement_domain::Clock as _;
use semver::Version;
use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;

use super::part::open_file;
use super::{BLOBS, DUMP, MANIFEST};
use crate::system::System;

/// The format that this version writes and reads.
const FORMAT: u32 = 1;
/// The longest manifest, in bytes, which has room for a million parts.
const MAX_BYTES: u64 = 256 << 20;
const MAX_NAME_BYTES: usize = 512;
const MAX_WORD_BYTES: usize = 128;

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// `database.dump`, or `blobs/` and the key of a blob.
    pub(super) name: String,
    pub(super) size_bytes: u64,
    /// SHA-256 of the content, in hexadecimal digits.
    pub(super) sha256: String,
}

impl Part {
    /// Returns the key of the blob, if the part is one.
    pub(super) fn blob(&self) -> Option<&str> {
        self.name.strip_prefix(BLOBS)
    }

    fn check(&self) -> anyhow::Result<()> {
        let is_known = self.name == DUMP || self.blob().is_some();
        ensure!(is_known && is_safe(&self.name), "the manifest has a part with an impossible name");
        let digits = self.sha256.len() == 64 && self.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(digits, "{}: the manifest has no checksum", self.name);
        Ok(())
    }
}

/// Returns true for a relative path that stays below its folder: words of letters, digits, `.`, `_` and `-`, which do
/// not begin with a dot.
pub(super) fn is_safe(name: &str) -> bool {
    let is_word = |word: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !word.is_empty() && word.len() <= MAX_WORD_BYTES && !word.starts_with('.') && word.bytes().all(known)
    };
    name.len() <= MAX_NAME_BYTES && name.split('/').all(is_word)
}

/// The contents of a backup.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The version of the program that made the backup.
    pub(super) casement: String,
    /// The version of the database's last migration.
    pub(super) schema: String,
    pub(super) created_at: String,
    /// The names of the sealed secret files.
    pub(super) secrets: Vec<String>,
    pub(super) parts: Vec<Part>,
}

/// What every format has.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

impl Manifest {
    pub(super) fn new(schema: String, secrets: Vec<String>, parts: Vec<Part>) -> anyhow::Result<Self> {
        let created_at = System.now().format(&Rfc3339)?;
        Ok(Self { format: FORMAT, casement: env!("CARGO_PKG_VERSION").to_owned(), schema, created_at, secrets, parts })
    }

    /// Returns the text that is stored and authenticated.
    pub(super) fn text(&self) -> anyhow::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads the manifest of a backup. Also returns its text.
    ///
    /// # Errors
    /// If there is none, or it is damaged, or of a later version than this program.
    pub(super) fn read(folder: &Path) -> anyhow::Result<(Self, Vec<u8>)> {
        let path = folder.join(MANIFEST);
        let file = open_file(folder, MANIFEST).with_context(|| format!("{} is no backup", folder.display()))?;
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(text.len() as u64 <= MAX_BYTES, "{} is longer than {MAX_BYTES} bytes", path.display());
        let manifest = Self::parse(&text).with_context(|| format!("{} cannot be restored", folder.display()))?;
        Ok((manifest, text))
    }

    fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let AnyFormat { format } = serde_json::from_slice(text).context("its manifest is damaged")?;
        ensure!(format == FORMAT, "its format is {format}, and this version of casement reads {FORMAT}");
        let manifest: Self = serde_json::from_slice(text).context("its manifest is damaged")?;
        manifest.check_version()?;
        let mut names = BTreeSet::new();
        for part in &manifest.parts {
            part.check()?;
            ensure!(names.insert(&part.name), "{}: the manifest has this part twice", part.name);
        }
        ensure!(names.contains(&DUMP.to_owned()), "the manifest has no {DUMP}");
        Ok(manifest)
    }

    /// Refuses a backup of a later version, whose data this version may not understand.
    fn check_version(&self) -> anyhow::Result<()> {
        let made_by = Version::parse(&self.casement).context("its manifest has no version")?;
        let own = Version::parse(env!("CARGO_PKG_VERSION"))?;
        if made_by > own || !casement_postgres::knows_schema(&self.schema) {
            bail!("casement {made_by} made it, which is later than this version, {own}: restore it with that one");
        }
        Ok(())
    }

    pub(super) fn dump(&self) -> anyhow::Result<&Part> {
        self.parts.iter().find(|part| part.name == DUMP).context("the manifest has no dump")
    }

    pub(super) fn blobs(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.blob().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "20261121100000";

    fn part(name: &str) -> Part {
        Part { name: name.to_owned(), size_bytes: 1, sha256: "0a".repeat(32) }
    }

    fn manifest(names: &[&str]) -> Manifest {
        let parts = names.iter().map(|name| part(name)).collect();
        Manifest::new(SCHEMA.to_owned(), vec!["master-key".to_owned()], parts).expect("a manifest")
    }

    fn refusal(manifest: &Manifest) -> String {
        let refused = Manifest::parse(&manifest.text().expect("a text")).expect_err("refused");
        format!("{refused:#}")
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let written = manifest(&[DUMP, "blobs/profiles/01a/01b"]);
        let read = Manifest::parse(&written.text().expect("a text")).expect("it can be read");
        assert_eq!(read, written);
        assert_eq!(read.blobs().filter_map(Part::blob).collect::<Vec<_>>(), ["profiles/01a/01b"]);
    }

    #[test]
    fn names_that_lead_out_of_the_backup_are_refused() {
        let names = ["/etc/passwd", "blobs/../../x", "blobs/a//b", "blobs/", "blobs/.x", "blobs/a\\b", "other", ""];
        for name in names {
            assert!(refusal(&manifest(&[DUMP, name])).contains("impossible name"), "{name}");
        }
        let long = format!("blobs/{}", "a/".repeat(MAX_NAME_BYTES));
        assert!(!is_safe(&long));
    }

    #[test]
    fn a_manifest_with_missing_repeated_or_damaged_parts_is_refused() {
        assert!(refusal(&manifest(&["blobs/a"])).contains("no database.dump"));
        assert!(refusal(&manifest(&[DUMP, DUMP])).contains("twice"));
        let mut other = manifest(&[DUMP]);
        other.parts[0].sha256.pop();
        assert!(refusal(&other).contains("no checksum"));
        let text = manifest(&[DUMP]).text().expect("a text");
        assert!(Manifest::parse(&text[..text.len() / 2]).is_err());
    }

    #[test]
    fn a_backup_of_a_later_version_is_refused() {
        let mut later = manifest(&[DUMP]);
        "99.0.0".clone_into(&mut later.casement);
        assert!(refusal(&later).contains("casement 99.0.0 made it"));
        let mut migrated = manifest(&[DUMP]);
        "99991231235959".clone_into(&mut migrated.schema);
        assert!(refusal(&migrated).contains("later than this version"));
        let mut format = manifest(&[DUMP]);
        format.format = 2;
        assert!(refusal(&format).contains("its format is 2"));
    }
}
