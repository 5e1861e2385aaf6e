//! Paths within a package, and the runtime of an entrypoint.

use std::fmt;

use crate::field::{FieldCode, InvalidValue, check_max_length};
use crate::pattern::plain;

/// The maximum number of characters of a path within a package.
pub const MAX_BYTES: usize = 1024;

/// A path within a package: relative, without empty, `.` or `..` parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackagePath(String);

impl PackagePath {
    /// Parses a path; removes every `./` at the start and one `/` at the end.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let bad = |code, text: &str| Err(InvalidValue::new(code, text));
        if text.is_empty() {
            return bad(FieldCode::TooShort, "must name something in the package");
        }
        check_max_length(text, MAX_BYTES)?;
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return bad(FieldCode::InvalidFormat, "may hold neither control characters nor '\\'");
        }
        if text.starts_with('/') {
            return bad(FieldCode::InvalidFormat, "must be relative to the root of the package");
        }
        let text = text.strip_suffix('/').unwrap_or(text);
        let mut path = String::with_capacity(text.len());
        for part in text.split('/').skip_while(|part| *part == ".") {
            match part {
                ".." => return bad(FieldCode::Blocked, "must stay within the package: '..' is not allowed"),
                "" | "." => return bad(FieldCode::InvalidFormat, "may hold no empty part and no '.' within"),
                _ if part.len() > 255 => return bad(FieldCode::TooLong, "a part must have at most 255 bytes"),
                _ if path.is_empty() => path.push_str(part),
                _ => {
                    path.push('/');
                    path.push_str(part);
                }
            }
        }
        if path.is_empty() {
            return bad(FieldCode::TooShort, "must name something in the package");
        }
        Ok(Self(path))
    }

    /// Returns the path, with `/` between its parts.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PackagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The runtime of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// Python 3.9 or later.
    Python,
    /// Node 20 or later; the types of TypeScript are stripped.
    Node,
}

/// The file of a package that is loaded, with its runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entrypoint {
    path: PackagePath,
    runtime: Runtime,
}

/// The error of a file name that no runtime accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is neither a Python file (.py) nor one for Node (.ts, .mts, .js, .mjs, .cjs)")]
pub struct NoRuntime(pub PackagePath);

impl Entrypoint {
    /// The pattern of the paths of entrypoints. It also accepts paths with a part of more than 255 bytes.
    pub const PATTERN: &str = concat!(
        concat!(r"^(\./)*((\.{0,2}", plain!(r"./\\"), r"|\.{3})", plain!(r"/\\"), "*/)*"),
        concat!(plain!(r"/\\"), r"*\.(py|ts|mts|js|mjs|cjs)/?$")
    );

    /// Creates the entrypoint at this path. The end of its name selects the runtime.
    ///
    /// # Errors
    /// [`NoRuntime`].
    pub fn at(path: PackagePath) -> Result<Self, NoRuntime> {
        let runtime = match path.as_str().rsplit_once('.').map(|(_, end)| end) {
            Some("py") => Runtime::Python,
            Some("ts" | "mts" | "js" | "mjs" | "cjs") => Runtime::Node,
            _ => return Err(NoRuntime(path)),
        };
        Ok(Self { path, runtime })
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &PackagePath {
        &self.path
    }

    /// Returns the runtime.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_within_its_package() {
        for (text, path) in [("main.py", "main.py"), ("./src/app.ts", "src/app.ts"), ("sub/dir/", "sub/dir")] {
            assert_eq!(PackagePath::parse(text).expect(text).as_str(), path);
        }
        for (text, code) in [
            ("", FieldCode::TooShort),
            (".", FieldCode::TooShort),
            ("./", FieldCode::TooShort),
            ("/etc/passwd", FieldCode::InvalidFormat),
            ("..", FieldCode::Blocked),
            ("a/../b.py", FieldCode::Blocked),
            ("a//b.py", FieldCode::InvalidFormat),
            ("a/./b.py", FieldCode::InvalidFormat),
            ("a\\..\\b.py", FieldCode::InvalidFormat),
            ("a\0.py", FieldCode::InvalidFormat),
            (&*"a".repeat(1025), FieldCode::TooLong),
            (&*"a".repeat(256), FieldCode::TooLong),
        ] {
            assert_eq!(PackagePath::parse(text).expect_err(text).code, code, "{text:?}");
        }
    }

    #[test]
    fn the_name_of_an_entrypoint_says_what_runs_it() {
        let runtime = |text| Entrypoint::at(PackagePath::parse(text).expect(text)).map(|found| found.runtime());
        assert_eq!(runtime("a/main.py"), Ok(Runtime::Python));
        for text in ["a.ts", "a.mts", "a.js", "a.mjs", "a.cjs"] {
            assert_eq!(runtime(text), Ok(Runtime::Node), "{text}");
        }
        for text in ["a.rb", "Makefile", "py", "a.PY", "a.tsx"] {
            assert!(runtime(text).is_err(), "{text}");
        }
    }
}
