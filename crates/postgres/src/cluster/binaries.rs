//! Finds the system's PostgreSQL programs.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::ClusterError;
use super::initdb::version_of;

/// The oldest supported PostgreSQL. Collations that ignore case need 12, tests run from 15 on, and 14 is the oldest
/// version that is still maintained.
pub const MINIMUM_MAJOR: u32 = 14;

/// An installed PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// The real directory of `initdb` and `postgres`, links resolved.
    pub dir: PathBuf,
    /// The major version.
    pub major: u32,
}

impl Binaries {
    /// The newest PostgreSQL on this system.
    ///
    /// # Errors
    /// [`ClusterError::NoBinaries`] if there is none that is new enough.
    pub fn newest() -> Result<Self, ClusterError> {
        let found = Self::all().into_iter().filter(|found| found.major >= MINIMUM_MAJOR);
        found.max_by_key(|found| found.major).ok_or_else(none_found)
    }

    /// The PostgreSQL in a directory.
    ///
    /// # Errors
    /// [`ClusterError::NoBinaries`] if the directory has none, or an unsupported old one.
    pub fn at(dir: &Path) -> Result<Self, ClusterError> {
        let found = Self::probe(dir).filter(|found| found.major >= MINIMUM_MAJOR);
        found.ok_or_else(|| ClusterError::NoBinaries { looked: dir.display().to_string() })
    }

    /// The PostgreSQL with the major version that created the data directory.
    pub(crate) fn of_major(wanted: &str, data_dir: &Path) -> Result<Self, ClusterError> {
        let all = Self::all();
        if let Some(found) = all.iter().find(|found| found.major.to_string() == wanted) {
            return Ok(found.clone());
        }
        if all.is_empty() {
            return Err(none_found());
        }
        let majors: BTreeSet<u32> = all.iter().map(|found| found.major).collect();
        let available = majors.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        Err(ClusterError::OtherMajor { data_dir: data_dir.to_owned(), found: wanted.to_owned(), available })
    }

    /// The PostgreSQL with the major version that created the cluster in a data directory.
    pub(crate) fn of_cluster(data_dir: &Path) -> Result<Self, ClusterError> {
        match version_of(data_dir)? {
            Some(version) => Self::of_major(&version, data_dir),
            None => Err(ClusterError::NotACluster(data_dir.to_owned())),
        }
    }

    /// The path of one program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn all() -> Vec<Self> {
        let unique: BTreeSet<PathBuf> = candidates().iter().filter_map(|dir| real_directory(dir)).collect();
        unique.iter().filter_map(|dir| Self::probe(dir)).collect()
    }

    fn probe(dir: &Path) -> Option<Self> {
        let dir = real_directory(dir)?;
        let printed = Command::new(dir.join("postgres")).arg("--version").output().ok()?;
        let major = parse_major(&String::from_utf8_lossy(&printed.stdout))?;
        Some(Self { dir, major })
    }
}

fn none_found() -> ClusterError {
    ClusterError::NoBinaries { looked: "/usr/lib/postgresql/*/bin, /usr/pgsql-*/bin, PATH and pg_config".into() }
}

fn candidates() -> Vec<PathBuf> {
    let mut dirs = children("/usr/lib/postgresql", |_| true).into_iter().map(|dir| dir.join("bin")).collect::<Vec<_>>();
    dirs.extend(children("/usr", |name| name.starts_with("pgsql-")).into_iter().map(|dir| dir.join("bin")));
    dirs.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    if let Ok(printed) = Command::new("pg_config").arg("--bindir").output() {
        dirs.push(PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim()));
    }
    dirs
}

fn children(dir: &str, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(&wanted)).map(|entry| entry.path()).collect()
}

/// The directory of the real `initdb`, if `postgres` is there too. `initdb` looks for `postgres` beside itself, but a
/// link in PATH may point to one program only.
fn real_directory(dir: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(dir.join("initdb")).ok()?.parent()?.to_owned();
    real.join("postgres").is_file().then_some(real)
}

/// `postgres (PostgreSQL) 15.14 (Debian 15.14-0)` → 15; `17beta1` → 17.
fn parse_major(printed: &str) -> Option<u32> {
    let version = printed.strip_prefix("postgres (PostgreSQL) ")?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_major;

    #[test]
    fn the_major_version_is_read_from_releases_and_betas() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 19beta2\n"), Some(19));
        assert_eq!(parse_major("mysql 8"), None);
    }
}
