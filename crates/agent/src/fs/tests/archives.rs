//! Tests of archives.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use casement_test_support::archives::{COMMON_EMPTY_DIRECTORY, COMMON_TREE, PYTHON, by_common_writers, records};
use tempfile::TempDir;

use super::*;
use crate::fs::change::delete_directory;
use crate::fs::look::Make;
use crate::fs::zip::pack::Archive;
use crate::fs::zip::unpack;
use casement_agent_protocol::ErrorCode;

pub(super) fn zip(directory: &Path) -> Vec<u8> {
    all(Archive::of(text(directory)).expect("measured")).expect("made")
}

/// Runs a Python program and returns its output.
pub(super) fn python(program: &str, arguments: &[&Path]) -> String {
    let run = Command::new(PYTHON).arg("-c").arg(program).args(arguments).output().expect("python3");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).expect("text")
}

fn unpack(archive: &Path, to: &Path) -> Result<(), (ErrorCode, String)> {
    let file = File::open(archive).expect("the archive");
    unpack::archive(&file, text(to), &AtomicBool::new(false)).map_err(|fault| (fault.code(), fault.to_string()))
}

/// Creates an archive with Python from a list of `(name, mode, content)`.
pub(super) fn archive(dir: &Path, entries: &str) -> std::path::PathBuf {
    let path = dir.join("made.zip");
    let program = format!(
        "import sys, zipfile, warnings\nwarnings.simplefilter('ignore')\nz = zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED)\n\
         for name, mode, content in {entries}:\n i = zipfile.ZipInfo('x', (2020, 2, 3, 4, 5, 6))\n i.filename = name\n i.compress_type = 8\n\
         \x20i.create_system = 3\n i.external_attr = mode << 16\n z.writestr(i, content)\nz.close()"
    );
    python(&program, &[&path]);
    path
}

#[test]
fn an_archive_contains_names_modes_times_links_and_empty_directories() {
    let dir = TempDir::new().expect("a directory");
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("sub/empty")).expect("directories");
    fs::write(tree.join("sub/ünï\n\u{202e}.txt"), "content").expect("a file");
    fs::write(tree.join("empty"), "").expect("a file");
    fs::write(tree.join("run"), vec![7; 3 << 20]).expect("a file");
    fs::set_permissions(tree.join("run"), Permissions::from_mode(0o751)).expect("a mode");
    fs::write(tree.join(OsStr::from_bytes(b"raw\xff")), "x").expect("a file");
    let day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_001);
    File::options().write(true).open(tree.join("run")).expect("open").set_modified(day).expect("a time");
    symlink("/etc/passwd", tree.join("out")).expect("a link");
    symlink("sub", tree.join("inner")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("fifo"), rustix::fs::Mode::RUSR).expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).expect("a socket");
    let path = dir.path().join("a.zip");
    fs::write(&path, zip(&tree)).expect("written");

    let seen = python(
        "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
         for i in z.infolist(): print(ascii(i.filename), oct(i.external_attr >> 16), i.file_size)\n\
         print(z.read('out').decode(), len(z.read('run')))",
        &[&path],
    );
    let expected = "'empty' 0o100644 0\n'inner' 0o120777 3\n'out' 0o120777 11\n'raw\\xa0' 0o100644 1\n'run' 0o100751 3145728\n\
                    'sub/' 0o40755 0\n'sub/empty/' 0o40755 0\n'sub/\\xfcn\\xef\\n\\u202e.txt' 0o100644 7\n/etc/passwd 3145728\n";
    assert_eq!(seen, expected);

    // The packed archive can be unpacked, except for the link that leads out.
    fs::remove_file(tree.join("out")).expect("removed");
    fs::write(&path, zip(&tree)).expect("written");
    let back = dir.path().join("back");
    fs::create_dir(&back).expect("a directory");
    unpack(&path, &back).expect("unpacked");
    assert_eq!(fs::read_to_string(back.join("sub/ünï\n\u{202e}.txt")).expect("read"), "content");
    assert_eq!(fs::read_link(back.join("inner")).expect("a link"), Path::new("sub"));
    let run = fs::metadata(back.join("run")).expect("there");
    assert_eq!((run.permissions().mode() & 0o777, run.modified().expect("a time"), run.len()), (0o751, day, 3 << 20));
    assert!(back.join("sub/empty").is_dir() && back.join(OsStr::from_bytes(b"raw\xff")).is_file());
    assert_eq!(fs::read_dir(&back).expect("read").count(), 5);
}

#[test]
fn archives_of_all_common_writers_unpack_to_the_same_files() {
    for (writer, bytes) in by_common_writers().expect("made") {
        let dir = TempDir::new().expect("a directory");
        let (path, target) = (dir.path().join("a.zip"), dir.path().join("target"));
        fs::create_dir(&target).expect("a directory");
        fs::write(&path, bytes).expect("written");
        assert_eq!(unpack(&path, &target), Ok(()), "{writer}");
        for (name, content) in COMMON_TREE {
            assert_eq!(fs::read_to_string(target.join(name)).ok().as_deref(), Some(*content), "{writer}: {name}");
        }
        assert!(target.join(COMMON_EMPTY_DIRECTORY).is_dir(), "{writer}");
        assert_eq!(fs::read_dir(&target).expect("read").count(), 4, "{writer}: nothing else");
    }
}

#[test]
fn an_entry_without_a_valid_time_gets_the_current_time() {
    let dir = TempDir::new().expect("a directory");
    let (path, target) = (dir.path().join("a.zip"), dir.path().join("target"));
    fs::create_dir(&target).expect("a directory");
    // Go's zip.Writer.Create leaves the date at 0, which is no date.
    fs::write(&path, records("out.write(archive(entry('a', b'x', time=0, date=0)))").expect("made")).expect("written");
    unpack(&path, &target).expect("unpacked");
    let modified = fs::metadata(target.join("a")).and_then(|found| found.modified()).expect("a time");
    assert!(modified > SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000), "{modified:?}");
}

#[test]
fn files_of_more_than_4_gib_and_more_than_65535_entries_are_packed() {
    let dir = TempDir::new().expect("a directory");
    let (tree, path) = (dir.path().join("tree"), dir.path().join("a.zip"));
    fs::create_dir(&tree).expect("a directory");
    File::create(tree.join("large")).and_then(|file| file.set_len(5 << 30)).expect("a file with a hole");
    fs::write(tree.join("small"), "x").expect("a file");
    fs::create_dir(tree.join("many")).expect("a directory");
    for index in 0..66_000 {
        File::create(tree.join(format!("many/{index}"))).expect("a file");
    }
    fs::write(&path, zip(&tree)).expect("written");
    let seen = python(
        "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nprint(len(z.infolist()), z.getinfo('large').file_size, z.read('small'))",
        &[&path],
    );
    assert_eq!(seen, format!("66003 {} b'x'\n", 5_u64 << 30));
}

#[test]
fn files_that_grow_shrink_or_vanish_leave_the_archive_whole() {
    let dir = TempDir::new().expect("a directory");
    let (tree, path) = (dir.path().join("tree"), dir.path().join("a.zip"));
    fs::create_dir(&tree).expect("a directory");
    for name in ["a", "b", "c", "d"] {
        // Data that cannot be compressed, so that the first file fills several pieces.
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        let random: Vec<u8> = (0..2_000_000).map(|_| next()).collect();
        fs::write(tree.join(name), random).expect("a file");
    }
    let mut maker = Archive::of(text(&tree)).expect("measured");
    let mut whole = maker.make().expect("made").expect("a piece").to_vec();
    File::options().append(true).open(tree.join("a")).and_then(|mut f| f.write_all(&[1; 5000])).expect("grown");
    fs::remove_file(tree.join("b")).expect("removed");
    fs::remove_file(tree.join("c")).and_then(|()| fs::create_dir(tree.join("c"))).expect("exchanged");
    let shrunk = File::options().write(true).open(tree.join("d")).expect("open");
    while let Some(piece) = maker.make().expect("made") {
        whole.extend_from_slice(&piece);
        shrunk.set_len(1000).expect("shrunk");
    }
    fs::write(&path, whole).expect("written");
    let seen = python(
        "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\nprint([(i.filename, i.file_size) for i in z.infolist()])",
        &[&path],
    );
    assert_eq!(seen, "[('a', 2000000), ('c/', 0), ('d', 1000)]\n");
}

#[test]
fn a_terabyte_of_holes_and_a_tree_too_deep_are_refused_before_anything_is_sent() {
    let dir = TempDir::new().expect("a directory");
    fs::create_dir(dir.path().join("sparse")).expect("a directory");
    File::create(dir.path().join("sparse/x")).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
    let fault = Archive::of(text(&dir.path().join("sparse"))).err().expect("refused");
    assert_eq!(fault.code(), ErrorCode::TooLarge);
    fs::remove_dir_all(dir.path().join("sparse")).expect("removed");

    deep(dir.path(), 4000);
    let fault = Archive::of(text(dir.path())).err().expect("refused");
    assert_eq!(fault.code(), ErrorCode::TooLarge);
    // Such a tree can be deleted.
    delete_directory(text(&dir.path().join("d"))).expect("deleted");
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
}

#[test]
fn unsafe_archives_are_refused_whole_and_leave_nothing_behind() {
    let dir = TempDir::new().expect("a directory");
    let target = dir.path().join("target");
    fs::create_dir(&target).expect("a directory");
    fs::write(target.join("old"), "old").expect("a file");
    const FILE: &str = "0o100644";
    const LINK: &str = "0o120777";
    for (what, entries) in [
        ("is traversal", format!("[('good', {FILE}, 'x'), ('../evil', {FILE}, 'x')]")),
        ("is hidden traversal", format!("[('good', {FILE}, 'x'), ('a/../../evil', {FILE}, 'x')]")),
        ("is absolute", format!("[('good', {FILE}, 'x'), ('/tmp/evil', {FILE}, 'x')]")),
        ("appears twice", format!("[('good', {FILE}, 'x'), ('good', {FILE}, 'y')]")),
        ("is a file and a directory", format!("[('good', {FILE}, 'x'), ('good/x', {FILE}, 'y')]")),
        ("is a link that is written through", format!("[('l', {LINK}, 'sub'), ('l/evil', {FILE}, 'x')]")),
        ("is a link upwards", format!("[('good', {FILE}, 'x'), ('l', {LINK}, '../..')]")),
        ("is an absolute link", format!("[('good', {FILE}, 'x'), ('l', {LINK}, '/etc/passwd')]")),
        ("is a link to a link upwards", format!("[('d/l', {LINK}, '..'), ('m', {LINK}, 'd/l/..')]")),
        ("is a FIFO", format!("[('good', {FILE}, 'x'), ('f', 0o010644, '')]")),
        ("is a device", format!("[('good', {FILE}, 'x'), ('f', 0o020644, '')]")),
        ("is in the place of a directory", format!("[('good', {FILE}, 'x'), ('old/x', {FILE}, 'x')]")),
    ] {
        let refused = unpack(&archive(dir.path(), &entries), &target).expect_err(what);
        let is_conflict = what == "is in the place of a directory";
        let code = if is_conflict { ErrorCode::NotAllowed } else { ErrorCode::InvalidFormat };
        assert_eq!(refused.0, code, "{what}: {}", refused.1);
        let left: Vec<_> = fs::read_dir(&target).expect("read").map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(left, ["old"], "{what}");
    }
    assert!(!dir.path().join("evil").exists() && !Path::new("/tmp/evil").exists());
}

#[test]
fn damaged_archives_are_refused_wherever_the_damage_is() {
    let dir = TempDir::new().expect("a directory");
    let target = dir.path().join("target");
    fs::create_dir(&target).expect("a directory");
    let made = archive(dir.path(), "[('a', 0o100644, 'abcdefgh' * 50), ('d/b', 0o100644, 'x')]");
    let whole = fs::read(&made).expect("read");
    let damaged = dir.path().join("damaged.zip");
    for cut in 0..whole.len() {
        fs::write(&damaged, &whole[..cut]).expect("written");
        assert!(unpack(&damaged, &target).is_err(), "cut at {cut}");
    }
    // An archive with one changed byte is either refused or harmless, and never does more than an archive may do.
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        fs::write(&damaged, bytes).expect("written");
        let unpacked = unpack(&damaged, &target);
        let left = fs::read_dir(&target).expect("read").count();
        assert!(unpacked.is_ok() || left == 0, "byte {at}: {unpacked:?} and {left} left");
        fs::remove_dir_all(&target).and_then(|()| fs::create_dir(&target)).expect("cleared");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 3, "nothing beside the target");
}

#[test]
fn an_archive_that_lies_about_its_sizes_gives_no_more_than_it_says() {
    let dir = TempDir::new().expect("a directory");
    let target = dir.path().join("target");
    fs::create_dir(&target).expect("a directory");
    let made = archive(dir.path(), "[('bomb', 0o100644, b'\\0' * 50_000_000)]");
    let mut bytes = fs::read(&made).expect("read");
    let list = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").expect("a list");
    bytes[list + 24..list + 28].copy_from_slice(&1000_u32.to_le_bytes());
    fs::write(&made, &bytes).expect("written");
    assert_eq!(unpack(&made, &target).expect_err("a lie").0, ErrorCode::InvalidFormat);
    // An archive that states its true size, which exceeds the free space.
    bytes[list + 24..list + 28].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    let many = bytes.clone();
    fs::write(&made, many).expect("written");
    let _ = unpack(&made, &target).expect_err("too large, or a lie");
    assert_eq!(fs::read_dir(&target).expect("read").count(), 0);
}

#[test]
fn unpacking_fills_directories_that_are_there_and_replaces_files() {
    let dir = TempDir::new().expect("a directory");
    let target = dir.path().join("target");
    fs::create_dir_all(target.join("d/kept")).expect("directories");
    fs::write(target.join("d/old"), "old").expect("a file");
    let made = archive(dir.path(), "[('d/', 0o040700, ''), ('d/old', 0o100600, 'new'), ('d/e/f', 0o104755, 'x')]");
    unpack(&made, &target).expect("unpacked");
    let mode = |name: &str| fs::metadata(target.join(name)).expect("there").permissions().mode() & 0o7777;
    assert_eq!(fs::read_to_string(target.join("d/old")).expect("read"), "new");
    assert_eq!((mode("d/old"), mode("d/e/f")), (0o600, 0o755), "no set-user-ID bit comes out of an archive");
    assert!(target.join("d/kept").is_dir());
    assert_eq!(fs::read_dir(&target).expect("read").count(), 1);
}
