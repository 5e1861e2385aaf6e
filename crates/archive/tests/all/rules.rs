//! Tests of the rules for names, kinds and contents. Python writes the records, so that each field has the value that
//! the rule is about.

use std::os::unix::ffi::OsStrExt as _;

use casement_test_support::archives::records;

use super::*;
use crate::writers::tree;

/// Unpacks the archive of a Python expression, and returns its files and empty directories.
fn unpacked(entries: &str) -> Result<Vec<String>, ArchiveError> {
    let bytes = records(&format!("out.write(archive({entries}))")).unwrap();
    let place = tempfile::tempdir().unwrap();
    unpack(file_of(&bytes), package::LIMITS, None, place.path())?;
    Ok(tree(place.path()).into_iter().map(|(name, _)| name).collect())
}

/// Asserts that the archive of a Python expression is refused for the same entry and reason as an extension, as a
/// package, and by a list of its names, which is what happens before a session's files change.
#[track_caller]
fn refused_everywhere(entries: &str, name: &str, why: EntryRefusal) {
    let bytes = records(&format!("out.write(archive(entry('manifest.json', b'{{}}'), {entries}))")).unwrap();
    let list = casement_archive::list(file_of(&bytes), package::LIMITS, |_| Ok::<_, ArchiveError>(()));
    let extension = extension::inspect(file_of(&bytes)).map(drop);
    let package = package::inspect(file_of(&bytes), "x").map(drop);
    for read in [list, extension, package] {
        let error = read.unwrap_err();
        let found = matches!(&error, ArchiveError::Entry { name: of, why: found } if of == name && *found == why);
        assert!(found, "{entries}: {error:?}");
    }
}

/// Returns the one name in the archive of a Python expression, as it is on the disk.
fn name_of(entry: &str) -> Vec<u8> {
    let bytes = records(&format!("out.write(archive({entry}))")).unwrap();
    let mut found = Vec::new();
    let listed = casement_archive::list(file_of(&bytes), package::LIMITS, |entry| {
        found.extend_from_slice(entry.path.as_os_str().as_bytes());
        Ok::<_, ArchiveError>(())
    });
    listed.unwrap();
    found
}

#[test]
fn a_name_marked_as_utf_8_must_be_utf_8() {
    assert_eq!(name_of("entry('ünï', flags=0x800)"), "ünï".as_bytes());
    refused_everywhere(r"entry(b'a\xff', flags=0x800)", "a\u{fffd}", EntryRefusal::NotUtf8);
}

#[test]
fn an_unmarked_name_is_utf_8_if_it_can_be() {
    assert_eq!(name_of("entry('ünï')"), "ünï".as_bytes());
    assert_eq!(name_of("entry('ünï', made=DOS)"), "ünï".as_bytes());
}

#[test]
fn a_name_of_windows_that_is_not_utf_8_is_in_code_page_437() {
    assert_eq!(name_of("entry('Übung für Noël ░.txt'.encode('cp437'), made=DOS)"), "Übung für Noël ░.txt".as_bytes());
    // Every byte has a letter of its own, so that a name in another code page can be found again.
    let all = name_of("entry(bytes(range(0x80, 0xc0)) + b'/' + bytes(range(0xc0, 0x100)), made=DOS)");
    let python =
        records("out.write((bytes(range(0x80, 0xc0)) + b'/' + bytes(range(0xc0, 0x100))).decode('cp437').encode())")
            .unwrap();
    assert_eq!(String::from_utf8(all), String::from_utf8(python));
}

#[test]
fn a_backslash_in_a_code_page_stays_as_it_may_be_half_a_letter() {
    // The second byte of this letter in Shift-JIS is that of a backslash.
    assert_eq!(name_of("entry('表.txt'.encode('cp932'), made=DOS)"), "ò\\.txt".as_bytes());
}

#[test]
fn a_name_of_a_unix_that_is_not_utf_8_keeps_its_bytes() {
    assert_eq!(name_of(r"entry(b'caf\xe9/\xff')"), b"caf\xe9/\xff");
    assert_eq!(name_of(r"entry(b'caf\xe9', made=0x1314)"), b"caf\xe9", "macOS is a Unix");
}

#[test]
fn the_field_unicode_path_has_the_name_if_it_belongs_to_the_header() {
    assert_eq!(name_of(r"entry(b'a_b', made=NTFS, extra=unicode_path(b'a_b', 'a☃b'))"), "a☃b".as_bytes());
    assert_eq!(name_of(r"entry(b'a_b', extra=unicode_path(b'other', 'a☃b'))"), b"a_b", "an editor renamed the entry");
    refused_everywhere(r"entry(b'a_b', extra=unicode_path(b'a_b', '../b'))", "../b", EntryRefusal::LeavesArchive);
}

#[test]
fn backslashes_separate_only_in_a_windows_name_without_a_slash() {
    assert_eq!(
        unpacked(r"entry('a\\b\\c', made=DOS), entry('d\\', made=DOS, attr=0, method=0)").unwrap(),
        ["a/b/c", "d/"]
    );
    assert_eq!(unpacked(r"entry('a/b\\c', made=DOS), entry('x\\y')").unwrap(), ["a/b\\c", "x\\y"]);
    for (entry, name, why) in [
        (r"entry('\\\\server\\share', made=DOS)", "//server/share", EntryRefusal::Absolute),
        (r"entry('\\a', made=DOS)", "/a", EntryRefusal::Absolute),
        (r"entry('a\\..\\b', made=DOS)", "a/../b", EntryRefusal::LeavesArchive),
        (r"entry('a\\..\\b')", r"a\\..\\b", EntryRefusal::LeavesArchive),
    ] {
        refused_everywhere(entry, name, why);
    }
}

#[test]
fn names_in_archives_of_git_are_those_of_the_repository() {
    // git states version 0.0 of the system 0, on each system, because it writes no attributes.
    assert_eq!(name_of(r"entry('a\\b', made=0)"), b"a\\b");
    assert_eq!(name_of(r"entry(b'caf\xe9', made=0)"), b"caf\xe9");
    assert_eq!(unpacked("entry('d/', made=0, method=0, attr=0x10), entry('e', made=0)").unwrap(), ["d/", "e"]);
}

#[test]
fn absolute_names_and_drives_are_refused() {
    for (entry, name) in [
        ("entry('/etc/passwd')", "/etc/passwd"),
        ("entry('C:/a')", "C:/a"),
        (r"entry('c:\\a')", r"c:\\a"),
        ("entry('C:a', made=DOS)", "C:a"),
    ] {
        refused_everywhere(entry, name, EntryRefusal::Absolute);
    }
    assert_eq!(unpacked("entry('a:b'), entry('12:30/x')").unwrap(), ["12:30/x", "a:b"], "a colon is a letter on Unix");
}

#[test]
fn dots_and_empty_parts_of_a_name_are_left_out() {
    assert_eq!(
        unpacked("entry('./', method=0), entry('./a//b'), entry('c/./d'), entry('e/.', method=0, attr=0)").unwrap(),
        ["a/b", "c/d", "e/"]
    );
    refused_everywhere("entry('a'), entry('./a')", "./a", EntryRefusal::Duplicate);
}

#[test]
fn names_that_differ_in_case_or_normal_form_are_different() {
    let names = unpacked("entry('A'), entry('a'), entry('\\u00fc'), entry('u\\u0308')").unwrap();
    assert_eq!(names, ["A", "a", "u\u{308}", "\u{fc}"]);
}

#[test]
fn a_directory_is_named_by_a_slash_a_mode_or_an_attribute() {
    let dirs = "entry('slash/', made=DOS, attr=0, method=0), entry('mode', method=0, attr=0o40755 << 16), \
                entry('attribute', made=DOS, attr=0x10, method=0), entry('both/', method=0, attr=0o100644 << 16)";
    assert_eq!(unpacked(dirs).unwrap(), ["attribute/", "both/", "mode/", "slash/"]);
    refused_everywhere("entry('a/', b'x')", "a/", EntryRefusal::DirectoryContent);
}

#[test]
fn macos_metadata_is_left_out_and_nothing_else_of_that_name() {
    let mac =
        "entry('__MACOSX/', method=0), entry('__MACOSX/._a'), entry('__MACOSX/d/', method=0), entry('__MACOSX/d/._b')";
    assert_eq!(unpacked(&format!("entry('a'), {mac}, entry('d/b')")).unwrap(), ["a", "d/b"]);
    assert_eq!(
        unpacked("entry('__MACOSX/a'), entry('._b'), entry('.DS_Store')").unwrap(),
        [".DS_Store", "._b", "__MACOSX/a"]
    );
}

#[test]
fn times_are_exact_where_an_extra_field_has_them() {
    for (entry, modified) in [
        ("entry('a', extra=extended_time(1700000001))", Some(1_700_000_001)),
        ("entry('a', extra=extended_time(0xffffffff))", Some(-1)),
        ("entry('a', date=0x5d7d, time=0x6000)", Some(1_795_953_600)),
        ("entry('a', date=0, time=0)", None),
    ] {
        let bytes = records(&format!("out.write(archive({entry}))")).unwrap();
        let mut found = None;
        let listed = casement_archive::list(file_of(&bytes), package::LIMITS, |entry| {
            found = entry.modified;
            Ok::<_, ArchiveError>(())
        });
        listed.unwrap();
        assert_eq!(found, modified, "{entry}");
    }
}

#[test]
fn other_compression_than_deflate_is_refused_by_its_name() {
    for (method, name) in
        [(9, "deflate64"), (12, "bzip2"), (14, "lzma"), (93, "zstd"), (95, "xz"), (77, "another method")]
    {
        refused_everywhere(&format!("entry('a', claims={method})"), "a", EntryRefusal::Compression(method));
        let text = EntryRefusal::Compression(method).to_string();
        assert!(text.contains(&format!("compressed with {name} (method {method})")), "{text}");
    }
}

#[test]
fn encrypted_entries_are_refused_whatever_the_method() {
    for entry in ["entry('a', flags=1)", "entry('a', flags=0x41)", "entry('a', flags=1, claims=99)"] {
        refused_everywhere(entry, "a", EntryRefusal::Encrypted);
    }
}

#[test]
fn an_extension_may_have_links_that_stay_in_its_folder() {
    let made = |target: &str| {
        let entries = format!(
            "entry('x/manifest.json', {MANIFEST:?}.encode()), entry('x/d/l', {target:?}.encode(), attr=0o120777 << 16)",
            MANIFEST = std::str::from_utf8(MANIFEST).unwrap()
        );
        records(&format!("out.write(archive({entries}))")).unwrap()
    };
    let place = tempfile::tempdir().unwrap();
    extension::install(file_of(&made("../manifest.json")), place.path()).unwrap();
    assert_eq!(fs::read(place.path().join("d/l")).unwrap(), MANIFEST);
    // Within the archive, but outside of what is unpacked.
    let error = extension::inspect(file_of(&made("../../x/manifest.json"))).unwrap_err();
    assert!(matches!(error, ArchiveError::Entry { why: EntryRefusal::LinkLeavesArchive, .. }), "{error}");
}

#[test]
fn more_than_65535_entries_without_zip64_are_all_read() {
    let limits = Limits { entries: 100_000, ..package::LIMITS };
    // macOS counts modulo 65536.
    let bytes = records("out.write(archive(*[entry(f'{n}', method=0) for n in range(65537)], count=1))").unwrap();
    let mut count = 0;
    let listed = casement_archive::list(file_of(&bytes), limits, |_| {
        count += 1;
        Ok::<_, ArchiveError>(())
    });
    listed.unwrap();
    assert_eq!(count, 65_537);
}
