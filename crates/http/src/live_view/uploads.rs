//! Files that a person lets fall onto the picture: they are put into one directory of the session, and from there onto the page.

use casement_domain::{
    field::{FieldCode, InvalidInput, InvalidValue},
    fs::AbsolutePath,
};

/// Where they are put. Whoever uses the live view may write here, and let fall what is here; nothing else of the session's files.
const DIRECTORY: &str = "/home/casement/Uploads/";
/// The longest name of a file, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The path of a file that is put into the session under this name.
///
/// # Errors
/// `invalid_format` for what is not the name of one file.
pub(crate) fn path_of(name: &str) -> Result<AbsolutePath, InvalidInput> {
    let path = format!("{DIRECTORY}{name}");
    let bad = || InvalidInput::of("name", InvalidValue::new(FieldCode::InvalidFormat, "must be the name of one file"));
    if is_uploaded(&path) { AbsolutePath::parse(path).map_err(|_| bad()) } else { Err(bad()) }
}

/// Whether a file at this path was put there by the live view, as far as its path tells.
pub(super) fn is_uploaded(path: &str) -> bool {
    path.strip_prefix(DIRECTORY).is_some_and(|name| {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(['/', '\0'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_but_into_the_directory_of_uploads() {
        assert_eq!(path_of("Notiz ü.txt").expect("a name").as_str(), "/home/casement/Uploads/Notiz ü.txt");
        for name in
            ["", ".", "..", "a/b", "../.config/chromium/Default/Cookies", "/etc/passwd", "a\0b", &"a".repeat(256)]
        {
            assert!(path_of(name).is_err(), "{name:?}");
        }
        for path in [
            "/home/casement/.config/x",
            "/home/casement/Uploads/../.config",
            "/home/casement/Uploads/a/../../x",
            "/etc/passwd",
        ] {
            assert!(!is_uploaded(path), "{path}");
        }
    }
}
