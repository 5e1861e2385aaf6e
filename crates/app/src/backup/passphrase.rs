//! Reads the passphrase of a backup: from a file, from the terminal, or from standard input.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::Path;

use anyhow::{Context as _, ensure};
use casement_sealing::Passphrase;
use secrecy::{ExposeSecret as _, SecretString};

/// Reads the passphrase. On a terminal it is asked for, twice if it is a `new` one.
///
/// # Errors
/// If it cannot be read, or is too short or too long.
pub(super) fn read(file: Option<&Path>, new: bool) -> anyhow::Result<Passphrase> {
    let text = match file {
        Some(path) => {
            let cannot = || format!("cannot read the passphrase from {}", path.display());
            first_line(File::open(path).with_context(cannot)?).with_context(cannot)?
        }
        None if std::io::stdin().is_terminal() => ask(new)?,
        None => first_line(std::io::stdin()).context("cannot read the passphrase from standard input")?,
    };
    Ok(Passphrase::new(text)?)
}

fn ask(new: bool) -> anyhow::Result<SecretString> {
    let text: SecretString = rpassword::prompt_password("Passphrase of the backup: ")?.into();
    if new {
        Passphrase::new(text.clone())?;
        let again: SecretString = rpassword::prompt_password("The same again: ")?.into();
        ensure!(text.expose_secret() == again.expose_secret(), "the two passphrases differ");
    }
    Ok(text)
}

/// Returns the first line, without its end.
fn first_line(source: impl Read) -> anyhow::Result<SecretString> {
    let mut text = String::new();
    // One byte more than the longest, so that a longer one is refused and not cut.
    source.take(Passphrase::MAX_BYTES as u64 + 2).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passphrase_is_the_first_line_and_never_cut() -> anyhow::Result<()> {
        let line = |text: &str| anyhow::Ok(first_line(text.as_bytes())?.expose_secret().to_owned());
        assert_eq!(line("a b\r\nsecond")?, "a b");
        assert_eq!(line("a b")?, "a b");
        assert_eq!(line("")?, "");
        let long = "x".repeat(2 * Passphrase::MAX_BYTES);
        assert!(Passphrase::new(line(&long)?.into()).is_err());
        Ok(())
    }
}
