//! The paths, permissions, entries and changes of files.

use std::fmt;

use bytes::Bytes;
use time::OffsetDateTime;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_max_bytes, required};
use crate::session_operation::OperationError;
use crate::text_enum::text_enum;

/// The maximum length of a path, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The directory in a session into which pages download.
pub const DOWNLOADS: &str = "/home/casement/downloads";
/// The maximum length of the name of a user or group, in characters.
pub const MAX_PRINCIPAL: usize = 64;

/// A path in a session's sandbox: absolute, without `.`, `..`, `//` and a `/` at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AbsolutePath(String);

impl AbsolutePath {
    /// The pattern of requested paths.
    pub const PATTERN: &str = r"^/[^\x00]*$";

    /// Parses a requested path. `.` and `..` are resolved as text: `/a/../b` is `/b` even if `/a` is a link; `/..` is
    /// `/`.
    ///
    /// # Errors
    /// The path is not absolute, contains a NUL, or is longer than [`MAX_PATH_BYTES`].
    #[expect(clippy::needless_pass_by_value, reason = "as all fields are parsed")]
    pub fn parse(text: String) -> Result<Self, InvalidValue> {
        check_max_bytes(&text, MAX_PATH_BYTES)?;
        if !text.starts_with('/') {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "must be absolute: it must begin with /"));
        }
        if text.contains('\0') {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold NUL"));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                name => parts.push(name),
            }
        }
        Ok(Self(format!("/{}", parts.join("/"))))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last part; `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Returns the path of `name` in this directory.
    #[must_use]
    pub fn child(&self, name: &str) -> String {
        if self.0 == "/" { format!("/{name}") } else { format!("{}/{name}", self.0) }
    }

    fn is_root(&self) -> bool {
        self.0 == "/"
    }
}

impl fmt::Display for AbsolutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The permissions of a file: read, write and execute, and the sticky bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    /// The pattern of modes: no set-user-ID and set-group-ID bits.
    pub const PATTERN: &str = "^[01]?[0-7]{3}$";
    /// The default mode of a new directory.
    pub const DIRECTORY: Self = Self(0o755);
    /// The default mode of a new file.
    pub const FILE: Self = Self(0o644);

    /// Parses three or four octal digits. The set-user-ID and set-group-ID bits are refused: no user of the sandbox has
    /// more rights than another.
    ///
    /// # Errors
    /// `invalid_format`; `not_allowed` for these bits.
    #[expect(clippy::needless_pass_by_value, reason = "as all fields are parsed")]
    pub fn parse(text: String) -> Result<Self, InvalidValue> {
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let mode = digits.then(|| u32::from_str_radix(&text, 8).ok()).flatten();
        let mode =
            mode.ok_or_else(|| InvalidValue::new(FieldCode::InvalidFormat, "must be three or four octal digits"))?;
        if mode & 0o6000 != 0 {
            return Err(InvalidValue::new(FieldCode::NotAllowed, "may not set the set-user-ID or set-group-ID bit"));
        }
        Ok(Self(mode))
    }

    /// Returns the mode as a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// The file, directory or other entry at a path. Links are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last part of the path; `/` for the root.
    pub name: String,
    /// The type and the permissions, as in `st_mode`.
    pub mode: u32,
    /// The size in bytes; 0 for a directory.
    pub size_bytes: u64,
    /// The time of the last change of the content.
    pub modified_at: OffsetDateTime,
}

impl Entry {
    const TYPE: u32 = 0o170_000;
    const DIRECTORY: u32 = 0o040_000;

    /// Returns whether the entry is a directory. A link to a directory is not one.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.mode & Self::TYPE == Self::DIRECTORY
    }

    /// Returns the type and the permissions in the format of `ls`: `drwxr-xr-x`.
    #[must_use]
    pub fn mode_text(&self) -> String {
        let kind = match self.mode & Self::TYPE {
            Self::DIRECTORY => 'd',
            0o120_000 => 'l',
            0o020_000 => 'c',
            0o060_000 => 'b',
            0o010_000 => 'p',
            0o140_000 => 's',
            _ => '-',
        };
        let special = |bit: u32, execute: u32, with: char, without: char| match (self.mode & bit, self.mode & execute) {
            (0, 0) => '-',
            (0, _) => 'x',
            (_, 0) => without,
            _ => with,
        };
        let plain = |bit: u32, letter: char| if self.mode & bit == 0 { '-' } else { letter };
        [
            kind,
            plain(0o400, 'r'),
            plain(0o200, 'w'),
            special(0o4000, 0o100, 's', 'S'),
            plain(0o040, 'r'),
            plain(0o020, 'w'),
            special(0o2000, 0o010, 's', 'S'),
            plain(0o004, 'r'),
            plain(0o002, 'w'),
            special(0o1000, 0o001, 't', 'T'),
        ]
        .iter()
        .collect()
    }
}

/// A part of an upload of several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upload {
    /// The beginning of the file that will be at this path.
    File(AbsolutePath),
    /// Bytes of the file.
    Data(Bytes),
}

/// The id of a watch: 1 to 40 characters of `0-9a-z`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(String);

impl WatchId {
    /// # Errors
    /// [`OperationError::Missing`] for a text that cannot be the id of a watch.
    pub fn parse(text: &str) -> Result<Self, OperationError> {
        let good = (1..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        if good { Ok(Self(text.to_owned())) } else { Err(OperationError::Missing("there is no such watch".to_owned())) }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A change in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind.
    pub kind: ChangeKind,
    /// The path.
    pub path: String,
    /// True if the changed entry is a directory.
    pub is_dir: bool,
}

text_enum! {
    /// The kind of a change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChangeKind {
        /// The entry was created at the path, or moved to it.
        Create => "CREATE",
        /// The content changed.
        Write => "WRITE",
        /// The entry was deleted.
        Delete => "DELETE",
        /// The entry was moved away from the path.
        Rename => "RENAME",
    }
}

/// Parses the required path of a request.
pub(super) fn path_of(text: Option<String>) -> Result<AbsolutePath, InvalidInput> {
    required("path", text, AbsolutePath::parse)
}

/// Parses a path that is not the root.
pub(super) fn deletable(text: Option<String>) -> Result<AbsolutePath, InvalidInput> {
    required("path", text, |text| {
        let path = AbsolutePath::parse(text)?;
        if path.is_root() { Err(InvalidValue::new(FieldCode::Blocked, "may not be /")) } else { Ok(path) }
    })
}

/// Parses the name or the number of a user or a group.
fn principal(text: String) -> Result<String, InvalidValue> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    match text.len() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must be a name or a number")),
        1..=MAX_PRINCIPAL if text.chars().all(plain) => Ok(text),
        _ => Err(InvalidValue::new(FieldCode::InvalidFormat, "must be a name or a number")),
    }
}

/// Permissions to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPermissions {
    /// The path of the file or directory; a link is followed.
    pub path: AbsolutePath,
    /// The new mode.
    pub mode: FileMode,
    /// The new owner: a name or a number.
    pub owner: Option<String>,
    /// The new group: a name or a number.
    pub group: Option<String>,
}

impl NewPermissions {
    /// Checks the permissions to set: `mode` is octal digits, `owner` and `group` are names or numbers.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        path: Option<String>,
        mode: Option<String>,
        owner: Option<String>,
        group: Option<String>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let path = fields.take_required("path", path, AbsolutePath::parse);
        let mode = fields.take_required("mode", mode, FileMode::parse);
        let owner = fields.take_optional("owner", owner, principal);
        let group = fields.take_optional("group", group, principal);
        fields.finish_with(|| Some(Self { path: path?, mode: mode?, owner, group }))
    }
}

/// A directory to create, with its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDirectory {
    /// The path.
    pub path: AbsolutePath,
    /// The mode of a directory that is created.
    pub mode: FileMode,
}

impl NewDirectory {
    /// Checks a directory to create; the mode is octal digits, default 755.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(path: Option<String>, mode: Option<String>) -> Result<Self, InvalidInput> {
        let (path, mode) = path_and_mode(path, mode, FileMode::DIRECTORY)?;
        Ok(Self { path, mode })
    }
}

/// Parses a path and its mode, octal digits.
pub(super) fn path_and_mode(
    path: Option<String>,
    mode: Option<String>,
    default: FileMode,
) -> Result<(AbsolutePath, FileMode), InvalidInput> {
    let mut fields = Fields::new();
    let path = fields.take_required("path", path, AbsolutePath::parse);
    let mode = fields.take_optional("mode", mode, FileMode::parse).unwrap_or(default);
    fields.finish_with(|| Some((path?, mode)))
}

/// A file or directory to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMove {
    /// The present path.
    pub source: AbsolutePath,
    /// The new path, at which nothing may exist.
    pub destination: AbsolutePath,
}

impl NewMove {
    /// Checks a move.
    ///
    /// # Errors
    /// Returns every path that breaks a rule.
    pub fn parse(src_path: Option<String>, dest_path: Option<String>) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let source = fields.take_required("src_path", src_path, AbsolutePath::parse);
        let destination = fields.take_required("dest_path", dest_path, AbsolutePath::parse);
        fields.finish_with(|| Some(Self { source: source?, destination: destination? }))
    }
}

/// A directory to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWatch {
    /// The path.
    pub path: AbsolutePath,
    /// True if the directories below it are watched too, including those that are created later.
    pub recursive: bool,
}

/// Parses paths of an upload, each with the number of its file.
pub(super) fn uploaded(paths: Vec<(usize, String)>) -> Result<Vec<(usize, AbsolutePath)>, InvalidInput> {
    const MAX_COUNT: usize = 100;
    let mut fields = Fields::new();
    let parsed = fields.take(
        "files",
        match paths.iter().map(|(index, _)| index + 1).max() {
            None => Err(InvalidValue::new(FieldCode::Required, "is required")),
            Some(1..=MAX_COUNT) => Ok(()),
            Some(_) => Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_COUNT} files"))),
        },
    );
    let paths = if parsed.is_some() { paths } else { Vec::new() };
    let parsed = paths
        .into_iter()
        .filter_map(|(index, path)| {
            let path = fields.take(&format!("files[{index}].dest_path"), AbsolutePath::parse(path));
            Some((index, path?))
        })
        .collect();
    fields.finish()?;
    Ok(parsed)
}

/// Parses the directory into which an archive is unpacked.
pub(super) fn unpacked(text: Option<String>, has_archive: bool) -> Result<AbsolutePath, InvalidInput> {
    let mut fields = Fields::new();
    let path = fields.take_required("dest_path", text, AbsolutePath::parse);
    fields.take_required("zip_file", has_archive.then_some(()), Ok);
    fields.finish_with(|| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Result<String, FieldCode> {
        AbsolutePath::parse(text.to_owned()).map(|path| path.0).map_err(|bad| bad.code)
    }

    #[test]
    fn paths_are_absolute_and_resolved_as_text() {
        for (text, path) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/./b//c/", "/a/b/c"),
            ("/a/../../b", "/b"),
            ("/..", "/"),
            ("/a\nb/ü\u{202e}", "/a\nb/ü\u{202e}"),
        ] {
            assert_eq!(plain(text), Ok(path.to_owned()), "{text:?}");
        }
        for text in ["", "a", "./a", "~", " /a", "/a\0b"] {
            assert_eq!(plain(text), Err(FieldCode::InvalidFormat), "{text:?}");
        }
        assert!(plain(&format!("/{}", "x".repeat(MAX_PATH_BYTES - 1))).is_ok());
        assert_eq!(plain(&format!("/{}", "x".repeat(MAX_PATH_BYTES))), Err(FieldCode::TooLong));
    }

    #[test]
    fn the_name_of_a_path_is_its_last_part() {
        let path = |text: &str| AbsolutePath::parse(text.to_owned()).expect("a path");
        assert_eq!((path("/").name(), path("/a/b").name()), (None, Some("b")));
        assert_eq!((path("/").child("x"), path("/a").child("x")), ("/x".to_owned(), "/a/x".to_owned()));
    }

    #[test]
    fn modes_are_octal_text_without_set_id_bits() {
        let mode = |text: &str| FileMode::parse(text.to_owned()).map(FileMode::bits).map_err(|bad| bad.code);
        assert_eq!((mode("644"), mode("0755"), mode("1777"), mode("000")), (Ok(0o644), Ok(0o755), Ok(0o1777), Ok(0)));
        for bad in ["", "64", "00644", "888", "+64", "0o644", "rwx", " 644", "６４４"] {
            assert_eq!(mode(bad), Err(FieldCode::InvalidFormat), "{bad:?}");
        }
        for bad in ["4755", "2755", "6755", "7777"] {
            assert_eq!(mode(bad), Err(FieldCode::NotAllowed), "{bad:?}");
        }
    }

    #[test]
    fn modes_read_as_in_a_listing() {
        let text = |mode| Entry { name: String::new(), mode, size_bytes: 0, modified_at: OffsetDateTime::UNIX_EPOCH };
        for (mode, expected) in [
            (0o040_755, "drwxr-xr-x"),
            (0o100_644, "-rw-r--r--"),
            (0o120_777, "lrwxrwxrwx"),
            (0o010_600, "prw-------"),
            (0o140_000, "s---------"),
            (0o041_777, "drwxrwxrwt"),
            (0o106_710, "-rws--s---"),
            (0o101_644, "-rw-r--r-T"),
        ] {
            assert_eq!(text(mode).mode_text(), expected);
        }
    }

    #[test]
    fn every_refused_field_is_named() {
        let refused =
            |invalid: InvalidInput| invalid.fields().iter().map(|field| field.field.clone()).collect::<Vec<_>>();
        let permissions = NewPermissions::parse(None, Some("x".into()), Some("a b".into()), None);
        assert_eq!(refused(permissions.expect_err("refused")), ["path", "mode", "owner"]);
        assert_eq!(refused(NewMove::parse(None, None).expect_err("refused")), ["src_path", "dest_path"]);
        assert_eq!(refused(unpacked(None, false).expect_err("refused")), ["dest_path", "zip_file"]);
        assert_eq!(refused(uploaded(vec![]).expect_err("refused")), ["files"]);
        assert_eq!(refused(uploaded(vec![(100, "/a".into())]).expect_err("refused")), ["files"]);
        let paths = vec![(0, "/a".to_owned()), (1, "b".to_owned()), (2, String::new())];
        assert_eq!(refused(uploaded(paths).expect_err("refused")), ["files[1].dest_path", "files[2].dest_path"]);
        assert_eq!(refused(deletable(Some("/..".into())).expect_err("refused")), ["path"]);
    }
}
