//! Has the session's extensions run in the contexts of clients too. To Chromium these are incognito windows, in which an
//! extension runs only if a person has allowed it.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Allows the extensions at these paths in incognito windows. Chromium must not run. An extension whose manifest refuses
/// such windows stays out of them.
pub(crate) fn enable(profile: &Path, extensions: &[PathBuf]) -> io::Result<()> {
    let ids: Vec<String> = extensions.iter().map(|path| id(path)).collect::<io::Result<_>>()?;
    if ids.is_empty() {
        return Ok(());
    }
    let path = profile.join("Default/Preferences");
    let mut preferences: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let Some(settings) = member(&mut preferences, "extensions").and_then(|value| member(value, "settings")) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the preferences of Chromium are no object"));
    };
    for id in ids {
        if let Some(Value::Object(of_one)) = member(settings, &id) {
            of_one.insert("incognito".to_owned(), true.into());
        }
    }
    std::fs::write(path, preferences.to_string())
}

/// Returns a member of an object, which becomes an empty object if there is none.
fn member<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let value = object.as_object_mut()?.entry(name).or_insert_with(|| Map::new().into());
    value.is_object().then_some(value)
}

/// Returns the id that Chromium gives to an extension: of the key in its manifest, else of its path.
fn id(path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    let manifest = std::fs::read(path.join("manifest.json"))?;
    let key = serde_json::from_slice(&manifest).ok().and_then(|manifest: Value| key_of(&manifest));
    let digest = Sha256::digest(key.as_deref().unwrap_or(path.as_os_str().as_encoded_bytes()));
    let letter = |digit: u8| char::from(b'a' + digit);
    Ok(digest.iter().take(16).flat_map(|byte| [letter(byte >> 4), letter(byte & 15)]).collect())
}

/// Returns the key of a manifest: base 64, with or without the lines around it of a PEM file.
fn key_of(manifest: &Value) -> Option<Vec<u8>> {
    let lines = manifest["key"].as_str()?.lines().filter(|line| !line.starts_with("-----"));
    STANDARD.decode(lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(root: &Path, manifest: &str) -> PathBuf {
        std::fs::create_dir_all(root).unwrap();
        std::fs::write(root.join("manifest.json"), manifest).unwrap();
        root.to_owned()
    }

    #[test]
    fn an_extension_is_known_by_the_key_of_its_manifest_or_else_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let of_path = id(&extension(&folder.path().join("a"), "{}")).unwrap();
        assert!(of_path.len() == 32 && of_path.bytes().all(|letter| (b'a'..=b'p').contains(&letter)), "{of_path}");
        assert_ne!(of_path, id(&extension(&folder.path().join("b"), "{}")).unwrap());
        let with_key = |key: &str| id(&extension(&folder.path().join("c"), &format!(r#"{{"key":"{key}"}}"#))).unwrap();
        // The digest of the bytes "key" begins with 2c70e12b.
        assert!(with_key("a2V5").starts_with("cmhaobcl"), "{}", with_key("a2V5"));
        assert_eq!(with_key("a2V5"), with_key("-----BEGIN PUBLIC KEY-----\\na2V5\\n-----END PUBLIC KEY-----"));
    }

    #[test]
    fn all_other_preferences_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (profile, extension) = (folder.path().join("profile"), extension(&folder.path().join("e"), "{}"));
        let id = id(&extension).unwrap();
        std::fs::create_dir_all(profile.join("Default")).unwrap();
        let file = profile.join("Default/Preferences");
        let before = serde_json::json!({ "a": 1, "extensions": { "b": 2, "settings": { &*id: { "path": "/e" } } } });
        std::fs::write(&file, before.to_string()).unwrap();
        enable(&profile, &[extension]).unwrap();
        let mut expected = before;
        expected["extensions"]["settings"][&id]["incognito"] = true.into();
        assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap(), expected);
    }
}
