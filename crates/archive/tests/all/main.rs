//! Tests with valid and malicious archives.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod rules;
mod writers;

use std::fs::{self, File};
use std::io::{Seek as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use casement_archive::{ArchiveError, EntryRefusal, Limits, extension, package, unpack, walk};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use rawzip::{CompressionMethod, ZipArchiveWriter};

const LIMITS: Limits = Limits { entries: 100, bytes: 1 << 20, path_bytes: 1024, depth: 8, links: false };
const MANIFEST: &[u8] = br#"{"manifest_version":3,"name":"x","version":"1"}"#;

/// Returns an archive of these names and contents. A name that ends with a slash is a directory.
fn archive(entries: &[(&str, &[u8])]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let mut zip = ZipArchiveWriter::new(&mut file);
    for (name, content) in entries {
        if name.ends_with('/') {
            zip.new_dir(rawzip::path::EntryPath::verbatim(name.as_bytes())).create().unwrap();
            continue;
        }
        let entry = zip.new_file(rawzip::path::EntryPath::verbatim(name.as_bytes()));
        let (mut entry, config) =
            entry.compression_method(CompressionMethod::DEFLATE).unix_permissions(0o755).start().unwrap();
        let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::fast()));
        writer.write_all(content).unwrap();
        let (encoder, descriptor) = writer.finish().unwrap();
        encoder.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    zip.finish().unwrap();
    file.rewind().unwrap();
    file
}

fn through(entries: &[(&str, &[u8])]) -> Result<Vec<String>, ArchiveError> {
    let mut seen = Vec::new();
    walk(archive(entries), LIMITS, |entry, _| {
        seen.push(entry.path.display().to_string());
        Ok::<_, ArchiveError>(())
    })?;
    Ok(seen)
}

/// Returns true if the archive is intact, but must not be unpacked.
fn is_refused(error: &ArchiveError) -> bool {
    matches!(error, ArchiveError::Refused(_) | ArchiveError::Entry { .. })
}

fn refused(entries: &[(&str, &[u8])], why: &str) {
    let error = through(entries).unwrap_err();
    assert!(is_refused(&error) && error.to_string().contains(why), "{entries:?}: {error}");
}

#[test]
fn unpack_keeps_names_content_and_the_executable_bit() {
    let place = tempfile::tempdir().unwrap();
    let made = archive(&[("top/", b""), ("top/ünï/file", b"content"), ("top/empty", b""), ("beside", b"x")]);
    unpack(made, LIMITS, Some(Path::new("top")), place.path()).unwrap();
    let read = |path: &str| fs::read(place.path().join(path)).unwrap();
    assert_eq!((read("ünï/file"), read("empty")), (b"content".to_vec(), Vec::new()));
    let mode = fs::metadata(place.path().join("ünï/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755 & !current_umask(place.path()));
    assert!(!place.path().join("beside").exists() && !place.path().join("top").exists());
}

fn current_umask(place: &Path) -> u32 {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = File::options().write(true).create_new(true).mode(0o777).open(place.join("probe")).unwrap();
    !file.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for (name, why) in [
        ("../out", "leads out"),
        ("a/../../out", "leads out"),
        ("..", "leads out"),
        ("/etc/passwd", "absolute"),
        ("C:/out", "absolute"),
        ("a\\..\\out", "leads out"),
        ("a\0b", "NUL"),
        ("a/b/c/d/e/f/g/h/i", "nested too deeply"),
    ] {
        refused(&[(name, b"x")], why);
    }
    refused(&[(&"n".repeat(256), b"x")], "too long");
    refused(&[(&"n/".repeat(600), b"")], "too long");
    refused(&[("a", b"x"), ("a", b"y")], "twice");
    refused(&[("a", b"x"), ("a/", b"")], "twice");
    refused(&[("a", b"x"), ("a/b", b"y")], "below a file");
    refused(&[("a/b", b"x"), ("a", b"y")], "twice");
    assert_eq!(through(&[("a/b", b"x"), ("a/", b""), ("a/c", b"")]).unwrap(), ["a/b", "a", "a/c"]);
}

#[test]
fn unpacked_bytes_and_entries_are_bounded() {
    let half = vec![0; 600 << 10];
    assert!(through(&[("a", &half)]).is_ok());
    refused(&[("a", &half), ("b", &half)], "bytes unpacked");
    let names: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
    refused(&many, "more than 100 entries");
    assert_eq!(through(&many[..100]).unwrap().len(), 100);
}

#[test]
fn damaged_archives_are_unreadable_and_never_panic() {
    let bytes = {
        let mut file = archive(&[("a", b"some content that is long enough"), ("b", b"more")]);
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
        bytes
    };
    let read = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        walk(file, LIMITS, |_, _| Ok::<_, ArchiveError>(()))
    };
    read(&bytes).unwrap();
    // No truncation and no changed byte causes a panic.
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        drop(read(&changed));
    }
    assert!(matches!(read(b"no archive"), Err(ArchiveError::Unreadable(_))));
    assert!(matches!(read(b""), Err(ArchiveError::Unreadable(_))));
}

#[test]
fn an_extension_lies_at_the_root_or_in_the_one_top_folder() {
    let inspect = |entries: &[(&str, &[u8])]| extension::inspect(archive(entries));
    assert_eq!(inspect(&[("manifest.json", MANIFEST), ("a/b", b"")]).unwrap(), None);
    assert_eq!(inspect(&[("x/", b""), ("x/manifest.json", MANIFEST)]).unwrap().as_deref(), Some(Path::new("x")));
    let mac = [("x/manifest.json", MANIFEST), ("__MACOSX/x/._manifest.json", b"".as_slice()), (".DS_Store", b"")];
    assert_eq!(inspect(&mac).unwrap().as_deref(), Some(Path::new("x")));
    let comments = b"// mine\n{\"manifest_version\": 3 /* three */}".as_slice();
    assert_eq!(inspect(&[("manifest.json", comments)]).unwrap(), None);
    for (entries, why) in [
        (vec![("a", MANIFEST)], "no manifest.json"),
        (vec![("a/b/manifest.json", MANIFEST)], "no manifest.json"),
        (vec![("a/manifest.json", MANIFEST), ("b/c", b"".as_slice())], "no manifest.json"),
        (vec![("a/manifest.json", MANIFEST), ("c", b"")], "no manifest.json"),
        (vec![("manifest.json", b"[]")], "is not an object"),
        (vec![("manifest.json", b"{")], "is not JSON"),
        (vec![("manifest.json", b"\xff")], "is not UTF-8"),
        (vec![("manifest.json", br#"{"manifest_version":1,"name":"x","version":"1"}"#)], "manifest_version"),
        (vec![("manifest.json", br#"{"manifest_version":3,"name":"","version":"1"}"#)], "a name"),
        (vec![("manifest.json", br#"{"manifest_version":3,"name":"x"}"#)], "a version"),
    ] {
        let error = inspect(&entries).unwrap_err();
        assert!(error.to_string().contains(why), "{entries:?}: {error}");
    }
}

/// Returns an archive of these links, as name and target, and the file `dir/file`.
fn with_links(links: &[(&str, &str)]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let mut zip = ZipArchiveWriter::new(&mut file);
    for (name, content, mode) in
        [("dir/file", "content", 0o100_644)].into_iter().chain(links.iter().map(|(name, to)| (*name, *to, 0o120_777)))
    {
        let entry = zip.new_file(rawzip::path::EntryPath::verbatim(name.as_bytes()));
        let (mut entry, config) = entry.unix_permissions(mode).start().unwrap();
        let mut writer = config.wrap(&mut entry);
        writer.write_all(content.as_bytes()).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    zip.finish().unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn only_links_within_a_package_are_accepted() {
    let place = tempfile::tempdir().unwrap();
    let links = [("dir/up", "../dir/file"), ("root", "."), ("dir/again", "up"), ("later", "root/dir")];
    unpack(with_links(&links), package::LIMITS, None, place.path()).unwrap();
    for name in ["dir/up", "dir/again", "later/file", "root/dir/file"] {
        assert_eq!(fs::read(place.path().join(name)).unwrap(), b"content", "{name}");
    }
    for (links, why) in [
        (&[("out", "..")][..], "out of the archive"),
        (&[("dir/out", "../../etc/passwd")], "out of the archive"),
        (&[("out", "/etc/passwd")], "not relative"),
        (&[("dir/root", ".."), ("out", "dir/root/..")], "behind a name"),
        (&[("out", "")], "not relative"),
        (&[("dir", "elsewhere")], "twice"),
        (&[("link", "dir"), ("link/file", "x")], "below a file"),
    ] {
        let error = package::inspect(with_links(links), "dir/file").unwrap_err();
        assert!(error.to_string().contains(why), "{links:?}: {error}");
    }
    let error = walk(with_links(&[("link", "dir")]), LIMITS, |_, _| Ok::<_, ArchiveError>(())).unwrap_err();
    assert!(error.to_string().contains("is a symbolic link"), "{error}");
}

/// Returns an archive of one deflated file `a`. Its headers are at [`LOCAL`] and [`central`].
fn one_file(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut archive(&[("a", content)]), &mut bytes).unwrap();
    bytes
}

const LOCAL: usize = 0;

/// Returns the offset of the central directory, which is one record and an end record of 22 bytes.
fn central(bytes: &[u8]) -> usize {
    let end = bytes.len() - 22;
    u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap()) as usize
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn inspected(bytes: &[u8]) -> Result<bool, ArchiveError> {
    package::inspect(file_of(bytes), "a")
}

#[test]
fn encrypted_entries_are_refused() {
    for flags in [1_u8, 0x41] {
        let mut bytes = one_file(b"content");
        let at = central(&bytes);
        bytes[LOCAL + 6] |= flags;
        bytes[at + 8] |= flags;
        let error = inspected(&bytes).unwrap_err();
        assert!(matches!(error, ArchiveError::Entry { why: EntryRefusal::Encrypted, .. }), "{error}");
    }
}

#[test]
fn devices_pipes_and_sockets_are_refused() {
    for kind in [0o020_666_u32, 0o060_666, 0o010_666, 0o140_666] {
        let mut bytes = one_file(b"content");
        let at = central(&bytes);
        bytes[at + 40..at + 42].copy_from_slice(&u16::try_from(kind).unwrap().to_le_bytes());
        let error = inspected(&bytes).unwrap_err();
        assert!(matches!(error, ArchiveError::Entry { why: EntryRefusal::SpecialFile, .. }), "{kind:o}: {error}");
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let content = vec![b'x'; 1 << 20];
    let whole = one_file(&content);
    assert!(inspected(&whole).unwrap());
    let at = central(&whole);
    for (field, size) in [(24, 10_u32), (24, 1 << 21), (20, 10), (20, 1 << 21)] {
        let mut bytes = whole.clone();
        bytes[at + field..at + field + 4].copy_from_slice(&size.to_le_bytes());
        let error = inspected(&bytes).unwrap_err();
        assert!(matches!(error, ArchiveError::Unreadable(_)), "{field} {size}: {error}");
    }
    // The local header may omit the sizes, but may not have other ones.
    for (field, size) in [(18, 10_u32), (18, 1 << 21), (22, 10), (22, 1 << 21)] {
        let mut bytes = whole.clone();
        bytes[LOCAL + field..LOCAL + field + 4].copy_from_slice(&size.to_le_bytes());
        let error = inspected(&bytes).unwrap_err();
        assert!(error.to_string().contains("the entry a has another size than it says"), "{field} {size}: {error}");
    }
    let mut bytes = whole;
    bytes[at + 24..at + 28].copy_from_slice(&(2_u32 << 30).to_le_bytes());
    let error = inspected(&bytes).unwrap_err();
    assert!(matches!(&error, ArchiveError::Refused(why) if why.contains("bytes unpacked")), "{error}");
}

/// Reads a small archive in which many names share one content. Each declares its true size.
#[test]
fn entries_that_share_content_count_each_against_the_bound() {
    const EACH: usize = 32 << 20;
    const NAMES: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let whole = one_file(&vec![0; EACH]);
    let (at, end) = (central(&whole), whole.len() - 22);
    let record = &whole[at..end];
    let count = u16::try_from(package::LIMITS.bytes as usize / EACH + 1).unwrap();
    let mut bytes = whole[..at].to_vec();
    for number in 0..count {
        let mut record = record.to_vec();
        record[46] = NAMES[usize::from(number)];
        bytes.extend(record);
    }
    let size = u32::try_from(bytes.len() - at).unwrap();
    let mut tail = whole[end..].to_vec();
    tail[8..10].copy_from_slice(&count.to_le_bytes());
    tail[10..12].copy_from_slice(&count.to_le_bytes());
    tail[12..16].copy_from_slice(&size.to_le_bytes());
    bytes.extend(tail);
    assert!(bytes.len() < EACH / 100, "a bomb of {} bytes", bytes.len());
    let error = inspected(&bytes).unwrap_err();
    assert!(matches!(&error, ArchiveError::Refused(why) if why.contains("bytes unpacked")), "{error}");
}

#[test]
fn too_many_entries_are_refused_even_if_the_archive_declares_fewer() {
    let names: Vec<String> = (0..60_000).map(|n| format!("{n}/")).collect();
    let entries: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut archive(&entries), &mut bytes).unwrap();
    let error = inspected(&bytes).unwrap_err();
    assert!(matches!(&error, ArchiveError::Refused(why) if why.contains("more than 50000 entries")), "{error}");
    let end = bytes.len() - 22;
    bytes[end + 8..end + 12].copy_from_slice(&[1, 0, 1, 0]);
    assert!(inspected(&bytes).is_err());
}

#[test]
fn inspect_finds_files_but_neither_directories_nor_links() {
    let look = |path| package::inspect(with_links(&[("link", "dir/file")]), path).unwrap();
    assert!(look("dir/file"));
    assert!(!look("dir") && !look("link") && !look("file"));
}

#[test]
fn pack_makes_the_same_archive_of_the_same_files() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(folder.path().join("src/node_modules/x")).unwrap();
    for (name, content) in [("main.py", "print()"), ("src/b", ""), ("src/a", "x"), ("src/node_modules/x/left", "out")] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let packed = package::pack(folder.path()).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&packed).unwrap();
    file.rewind().unwrap();
    assert!(package::inspect(file.try_clone().unwrap(), "src/a").unwrap());
    file.rewind().unwrap();
    unpack(file, package::LIMITS, None, other.path()).unwrap();
    assert_eq!(fs::read(other.path().join("main.py")).unwrap(), b"print()");
    assert!(!other.path().join("src/node_modules").exists());
    assert_eq!(package::pack(other.path()).unwrap(), packed);
    let mut whole = tempfile::tempfile().unwrap();
    whole.write_all(&package::pack_all(folder.path()).unwrap()).unwrap();
    whole.rewind().unwrap();
    assert!(package::inspect(whole, "src/node_modules/x/left").unwrap(), "pack_all leaves nothing out");
    std::os::unix::fs::symlink("..", folder.path().join("src/up")).unwrap();
    assert!(package::pack(folder.path()).is_err());
}

/// Reads an archive with `async_zip` 0.0.19 and its options for untrusted archives.
fn read_by_async_zip(bytes: Vec<u8>) -> async_zip::error::Result<u64> {
    use async_zip::base::read1::{ZipOptions, seek::ZipArchiveReader};
    use futures_lite::io::{AsyncReadExt as _, Cursor};
    let options = ZipOptions { max_cd_num_files: 100, max_cd_num_files_load: 100, ..ZipOptions::untrusted() };
    futures_lite::future::block_on(async {
        let mut archive = ZipArchiveReader::open_with_options(Cursor::new(bytes), options).await?;
        let mut content = Vec::new();
        archive.file(0).await?.read_to_end(&mut content).await?;
        Ok(archive.cdrs().len() as u64)
    })
}

/// Decision 8 explains why `rawzip` reads archives. This test fails once `async_zip` reads these archives correctly.
#[test]
fn archives_that_async_zip_misreads_are_read_correctly() {
    let whole = one_file(b"content");
    let at = central(&whole);
    assert_eq!(read_by_async_zip(whole.clone()).unwrap(), 1);

    // The local header disagrees with the directory about the size.
    let mut other_size = whole.clone();
    other_size[LOCAL + 22..LOCAL + 26].copy_from_slice(&10_u32.to_le_bytes());
    assert!(inspected(&other_size).is_err());
    assert_eq!(read_by_async_zip(other_size).unwrap(), 1);

    // The compressed size is larger than the compressed content.
    let mut padded = whole.clone();
    let compressed = u32::from_le_bytes(whole[at + 20..at + 24].try_into().unwrap());
    padded[at + 20..at + 24].copy_from_slice(&(compressed + 4).to_le_bytes());
    assert!(inspected(&padded).is_err());
    assert_eq!(read_by_async_zip(padded).unwrap(), 1);

    // The ZIP64 field contains only the offset, which is valid. The second half is padding.
    let mut offset_alone = whole.clone();
    offset_alone[at + 30..at + 32].copy_from_slice(&20_u16.to_le_bytes());
    offset_alone[at + 42..at + 46].copy_from_slice(&u32::MAX.to_le_bytes());
    let zip64 = [&[1, 0, 16, 0][..], &[0; 16]].concat();
    offset_alone.splice(at + 47..at + 47, zip64);
    let size = offset_alone.len() - 10;
    offset_alone[size..size + 4].copy_from_slice(&u32::try_from(size - 12 - at).unwrap().to_le_bytes());
    assert!(inspected(&offset_alone).unwrap());
    assert!(std::panic::catch_unwind(|| read_by_async_zip(offset_alone).map(drop)).is_err(), "a panic");

    // The directory has more entries than the end record declares.
    let many: Vec<(&str, &[u8])> = vec![("a/", b""); 60_000];
    let mut longer = Vec::new();
    std::io::Read::read_to_end(&mut archive(&many), &mut longer).unwrap();
    let end = longer.len() - 22;
    longer[end + 8..end + 12].copy_from_slice(&[1, 0, 1, 0]);
    assert!(inspected(&longer).is_err());
    let error = read_by_async_zip(longer).unwrap_err();
    assert!(error.to_string().contains("(60000)"), "reads {error} of at most 100");
}
