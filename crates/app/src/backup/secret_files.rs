//! The secret files of a data directory, sealed under the passphrase of a backup.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use casement_sealing::{Passphrase, lock_key_file};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use crate::data_dir::{SECRET_FILES, write_whole};
use crate::system::System;

/// The longest secret file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The longest sealed content, in bytes.
pub(super) const MAX_SEALED_BYTES: u64 = 1 << 20;

/// The contents of the files by name.
pub(super) struct SecretFiles(BTreeMap<String, SecretSlice<u8>>);

impl SecretFiles {
    /// Reads the files that exist. `work` runs before that, while no master key can be added or removed.
    pub(super) async fn read_after<T>(
        data_dir: &Path,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(Self, T)> {
        let dir = data_dir.to_owned();
        let lock = tokio::task::spawn_blocking(move || lock_key_file(&dir)).await??;
        let done = work.await?;
        let mut files = BTreeMap::new();
        for name in SECRET_FILES {
            let path = data_dir.join(name);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            };
            let mut content = Vec::new();
            file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
            ensure!(content.len() as u64 <= MAX_FILE_BYTES, "{} is longer than {MAX_FILE_BYTES} bytes", path.display());
            files.insert(name.to_owned(), content.into());
        }
        drop(lock);
        Ok((Self(files), done))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Seals the files. They open only with the same manifest.
    pub(super) fn seal(&self, passphrase: &Passphrase, manifest: &[u8]) -> anyhow::Result<Vec<u8>> {
        let encoded = self.0.iter().map(|(name, content)| (name, STANDARD.encode(content.expose_secret())));
        let text: SecretString = serde_json::to_string(&encoded.collect::<BTreeMap<_, _>>())?.into();
        Ok(passphrase.seal(manifest, text.expose_secret().as_bytes(), &System)?)
    }

    /// Opens the files, which proves that neither they nor the manifest were altered.
    pub(super) fn open(passphrase: &Passphrase, manifest: &[u8], sealed: &[u8]) -> anyhow::Result<Self> {
        let text = passphrase.open(manifest, sealed).context("the backup does not open")?;
        let encoded: BTreeMap<String, String> =
            serde_json::from_slice(text.expose_secret()).ok().context("the sealed files are of another version")?;
        let decode = |(name, content): (String, String)| {
            ensure!(SECRET_FILES.contains(&&*name), "the backup has an unknown secret file");
            Ok((name, STANDARD.decode(content).ok().context("a sealed file is damaged")?.into()))
        };
        Ok(Self(encoded.into_iter().map(decode).collect::<anyhow::Result<_>>()?))
    }

    /// Writes the files to a data directory.
    pub(super) fn write(&self, data_dir: &Path) -> anyhow::Result<()> {
        self.0.iter().try_for_each(|(name, content)| write_whole(&data_dir.join(name), content.expose_secret()))
    }
}
