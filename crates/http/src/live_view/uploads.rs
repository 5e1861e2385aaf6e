//! Files that a person drops onto the picture: they are uploaded to one directory of the session and dropped onto the
//! page from there.

use casement_domain::{
    field::{FieldCode, InvalidInput, InvalidValue},
    fs::AbsolutePath,
};

/// The directory of the uploads. A user of the live view may write files to this directory only, and drop only its
/// files.
const DIRECTORY: &str = "/home/casement/Uploads/";
/// The maximum length of a file name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Returns the path in the session for an upload of this name.
///
/// # Errors
/// `invalid_format` if `name` is not the name of one file.
pub(crate) fn upload_path(name: &str) -> Result<AbsolutePath, InvalidInput> {
    let path = format!("{DIRECTORY}{name}");
    let bad = || InvalidInput::of("name", InvalidValue::new(FieldCode::InvalidFormat, "must be the name of one file"));
    if is_uploaded(&path) { AbsolutePath::parse(path).map_err(|_| bad()) } else { Err(bad()) }
}

/// Returns whether a path is the path of an upload.
pub(super) fn is_uploaded(path: &str) -> bool {
    path.strip_prefix(DIRECTORY).is_some_and(|name| {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(['/', '\0'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_the_directory_of_uploads() {
        assert_eq!(upload_path("Notiz ü.txt").expect("a name").as_str(), "/home/casement/Uploads/Notiz ü.txt");
        for name in
            ["", ".", "..", "a/b", "../.config/chromium/Default/Cookies", "/etc/passwd", "a\0b", &"a".repeat(256)]
        {
            assert!(upload_path(name).is_err(), "{name:?}");
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
