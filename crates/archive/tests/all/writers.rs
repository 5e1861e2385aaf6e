//! Tests with the archives of common writers.

use casement_test_support::archives::{COMMON_EMPTY_DIRECTORY, COMMON_TREE, by_common_writers};

use super::*;

/// Returns every file below `directory` with its content, and every empty directory with a slash, sorted.
pub(super) fn tree(directory: &Path) -> Vec<(String, String)> {
    fn below(directory: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
        let entries: Vec<_> = fs::read_dir(directory).unwrap().map(Result::unwrap).collect();
        if entries.is_empty() {
            found.push((prefix.to_owned(), String::new()));
        }
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                below(&entry.path(), &format!("{name}/"), found);
            } else {
                found.push((name, fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    below(directory, "", &mut found);
    found.sort();
    found
}

#[test]
fn archives_of_all_common_writers_unpack_to_the_same_files() -> anyhow::Result<()> {
    let mut expected: Vec<_> =
        COMMON_TREE.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    expected.push((format!("{COMMON_EMPTY_DIRECTORY}/"), String::new()));
    expected.sort();
    for (writer, bytes) in by_common_writers()? {
        let place = tempfile::tempdir()?;
        let unpacked = unpack(file_of(&bytes), package::LIMITS, None, place.path());
        assert!(unpacked.is_ok(), "{writer}: {unpacked:?}");
        assert_eq!(tree(place.path()), expected, "{writer}");
    }
    Ok(())
}

#[test]
fn archives_of_all_common_writers_are_extensions_and_packages() -> anyhow::Result<()> {
    for (writer, bytes) in by_common_writers()? {
        let extension = extension::inspect(file_of(&bytes));
        assert!(matches!(extension, Ok(None)), "{writer}: {extension:?}");
        let package = package::inspect(file_of(&bytes), "sub/deep/ünï.txt");
        assert!(matches!(package, Ok(true)), "{writer}: {package:?}");
    }
    Ok(())
}
