//! Tests of archives without a browser: the agent's own archives, which `tar` can read, and malicious ones.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tar::{Builder, EntryType, Header};

use super::pack::Archive;
use super::unpack::{Limits, UnpackError, unpack};
use crate::fs::Make as _;

const LIMITS: Limits = Limits { entries: 1000, bytes: 1 << 20 };

fn pack(profile: &Path) -> Vec<u8> {
    let (mut archive, mut whole) = (Archive::of(profile).expect("it is there"), Vec::new());
    while let Some(piece) = archive.make().expect("it is made") {
        whole.extend_from_slice(&piece);
    }
    whole
}

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file can be made");
    file.write_all(content).expect("it can be written");
    file.rewind().expect("it can be read");
    file
}

fn compressed(archive: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).expect("it can");
    encoder.write_all(archive).expect("into memory");
    encoder.finish().expect("into memory")
}

/// Returns a long name: an origin may have 253 letters.
fn long() -> String {
    format!("Default/IndexedDB/https_{}.example_0.indexeddb.leveldb/000003.log", "a".repeat(200))
}

/// Creates files of all relevant lengths in `profile`.
fn fill(profile: &Path) -> Vec<(String, Vec<u8>)> {
    let lengths = [0, 1, 511, 512, 513, 700_000];
    let mut files: Vec<_> = lengths.map(|n| (format!("Default/of {n}"), vec![n as u8; n])).into();
    files.push((long(), b"log".to_vec()));
    files.push(("Default/Cookies".to_owned(), b"cookies".to_vec()));
    for (name, content) in &files {
        let path = profile.join(name);
        fs::create_dir_all(path.parent().expect("in a directory")).expect("it can be made");
        fs::write(path, content).expect("it can be written");
    }
    files
}

#[test]
fn what_is_packed_comes_out_again_and_any_tar_can_read_it() {
    let place = tempfile::tempdir().expect("a directory");
    let (profile, target) = (place.path().join("profile"), place.path().join("target"));
    let files = fill(&profile);
    fs::create_dir_all(profile.join("Default/empty")).expect("it can be made");
    fs::create_dir_all(profile.join("Default/Cache/Cache_Data")).expect("it can be made");
    fs::write(profile.join("Default/Cache/Cache_Data/index"), "cached").expect("it can be written");
    fs::write(profile.join("Local State"), "{}").expect("it can be written");
    symlink("/etc/hostname", profile.join("Default/link")).expect("it can be made");
    symlink("/etc", profile.join("Default/directory")).expect("it can be made");
    let fifo = profile.join("Default/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    assert!(fs::metadata(&fifo).expect("it is there").file_type().is_fifo());

    let packed = pack(&profile);
    assert_eq!(pack(&profile), packed, "the same again");
    let plain = zstd::decode_all(&packed[..]).expect("it is whole");
    let mut tar = Command::new("tar").arg("-t").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tar");
    let mut input = tar.stdin.take().expect("it is a pipe");
    let listed = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(&plain).expect("tar reads to the end"));
        tar.wait_with_output().expect("it runs")
    });
    assert!(listed.status.success());
    let mut names: Vec<_> = String::from_utf8(listed.stdout).expect("UTF-8").lines().map(str::to_owned).collect();
    names.retain(|name| !name.ends_with('/'));
    let mut wanted: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
    wanted.sort();
    names.sort();
    assert_eq!(names, wanted);

    unpack(&file(&packed), LIMITS, &target).expect("it is ours");
    check(&target, &files);
    assert!(target.join("Default/empty").is_dir());
    assert!(!target.join("Default/Cache").exists());
}

/// Checks that all files exist with their content and mode.
fn check(target: &Path, files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        let mut found = Vec::new();
        let mut file = File::open(target.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        file.read_to_end(&mut found).expect("it is a file");
        assert!(found == *content, "{name}");
        assert_eq!(file.metadata().expect("it is open").permissions().mode() & 0o7777, 0o600);
    }
}

fn entry(kind: EntryType, name: &[u8], content: &[u8]) -> (Header, Vec<u8>) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    (header, content.to_vec())
}

fn archive(entries: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (header, content) in entries {
        builder.append(header, &content[..]).expect("into memory");
    }
    builder.into_inner().expect("into memory")
}

/// Unpacks an archive that must be refused, and checks that nothing is left.
fn refused(content: &[u8], what: &str) -> UnpackError {
    let place = tempfile::tempdir().expect("a directory");
    let inner = place.path().join("inner");
    fs::create_dir(&inner).expect("it can be made");
    let fault = unpack(&file(content), LIMITS, &inner.join("target")).expect_err(what);
    assert_eq!(fs::read_dir(&inner).expect("it is there").count(), 0, "{what}");
    assert_eq!(fs::read_dir(place.path()).expect("it is there").count(), 1, "{what}");
    fault
}

#[test]
fn archives_that_hold_what_no_one_should_unpack_are_refused() {
    let regular = |name: &str| vec![entry(EntryType::Regular, name.as_bytes(), b"x")];
    let of_kind = |kind: EntryType| {
        let (mut header, content) = entry(kind, b"Default/x", b"");
        header.set_link_name("/etc/passwd").expect("it fits");
        header.set_cksum();
        vec![(header, content)]
    };
    let long = |length: usize| vec![entry(EntryType::GNULongName, b"././@LongLink", &vec![b'a'; length])];
    for (what, entries) in [
        ("absolute", regular("/Default/x")),
        ("out", regular("../x")),
        ("out from within", regular("Default/../../x")),
        ("here", regular("./Default/x")),
        ("twice", [regular("Default/x"), regular("Default/x")].concat()),
        ("below a file", [regular("Default/x"), regular("Default/x/y")].concat()),
        ("too deep", regular(&format!("Default/{}", "a/".repeat(40)))),
        ("a link", of_kind(EntryType::Symlink)),
        ("a hard link", of_kind(EntryType::Link)),
        ("a device", of_kind(EntryType::Char)),
        ("a disk", of_kind(EntryType::Block)),
        ("a FIFO", of_kind(EntryType::Fifo)),
        ("a sparse file", of_kind(EntryType::GNUSparse)),
        ("attributes", of_kind(EntryType::XHeader)),
        ("too long a name", [long(1 << 20), regular("Default/x")].concat()),
        ("a link through a long name", [long(5), of_kind(EntryType::Symlink)].concat()),
    ] {
        let fault = refused(&compressed(&archive(&entries)), what);
        assert!(matches!(fault, UnpackError::Refused(_)), "{what}: {fault}");
    }
}

#[test]
fn archives_that_are_cut_or_altered_are_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let files = fill(place.path());
    let whole = pack(place.path());
    for length in [0, 1, 10, whole.len() / 2, whole.len() - 5, whole.len() - 1] {
        assert!(matches!(refused(&whole[..length], "cut"), UnpackError::Unreadable(_)), "cut to {length}");
    }
    for at in (0..whole.len()).step_by(whole.len().div_ceil(40)) {
        let mut altered = whole.clone();
        altered[at] ^= 0x20;
        // A few bits have no meaning.
        let inner = tempfile::tempdir().expect("a directory");
        let target = inner.path().join("target");
        match unpack(&file(&altered), LIMITS, &target) {
            Ok(()) => check(&target, &files),
            Err(_) => assert!(!target.exists(), "altered at {at}"),
        }
    }
    refused(b"PK\x03\x04 is something else", "not an archive");
    let plain = zstd::decode_all(&whole[..]).expect("it is ours");
    // A complete stream of a truncated archive.
    for length in [512, plain.len() / 2 / 512 * 512, plain.len() / 2, plain.len() - 1024] {
        let cut = compressed(&plain[..length]);
        assert!(matches!(refused(&cut, "cut inside"), UnpackError::Unreadable(_)), "cut inside to {length}");
    }
    let bare = compressed(&archive(&[entry(EntryType::GNULongName, b"././@LongLink", b"Default/x\0")]));
    assert!(matches!(refused(&bare, "a name of nothing"), UnpackError::Unreadable(_)));
}

#[test]
fn archives_that_grow_without_end_are_refused() {
    let bomb = |write: &dyn Fn(&mut dyn std::io::Write)| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
        write(&mut encoder);
        encoder.finish().expect("into memory")
    };
    let many = bomb(&|out| {
        for n in 0..=LIMITS.entries {
            let (header, _) = entry(EntryType::Regular, format!("other/{n}").as_bytes(), b"");
            out.write_all(header.as_bytes()).expect("into memory");
        }
    });
    assert!(many.len() < 64 << 10);
    assert!(matches!(refused(&many, "many entries"), UnpackError::Refused(_)));
    for name in ["Default/x", "other"] {
        let large = bomb(&|out| {
            let (mut header, _) = entry(EntryType::Regular, name.as_bytes(), b"");
            header.set_size(8 << 30);
            header.set_cksum();
            out.write_all(header.as_bytes()).expect("into memory");
            for _ in 0..40 {
                out.write_all(&vec![0; 1 << 20]).expect("into memory");
            }
        });
        assert!(large.len() < 64 << 10);
        let fault = refused(&large, "a large file");
        assert!(fault.to_string().contains("bytes come out of it"), "{fault}");
    }
}
