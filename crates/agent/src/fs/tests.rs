//! Rules of files that need no sandbox: the same code on a directory of the test's own, judged by programs of others.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use super::change::{delete_directory, delete_file, make_directory, permissions, relocate};
use super::draft::{CreatedDirectories, Draft};
use super::fault::{Fault, Field};
use super::look::{Content, Listing, Make};
use super::zip::pack::Archive;
use super::zip::unpack;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::fs::{Entry, MakeDirectory, Move, Permissions as Wanted};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn all(mut maker: impl Make) -> std::io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(piece) = maker.make()? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

fn zip(directory: &Path) -> Vec<u8> {
    all(Archive::of(text(directory)).expect("measured")).expect("made")
}

/// What a program of others makes of it.
fn python(program: &str, arguments: &[&Path]) -> String {
    let run = Command::new("python3").arg("-c").arg(program).args(arguments).output().expect("python3");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).expect("text")
}

fn unpack(archive: &Path, to: &Path) -> Result<(), (ErrorCode, String)> {
    let file = File::open(archive).expect("the archive");
    unpack::archive(&file, text(to), &AtomicBool::new(false)).map_err(|fault| (fault.code(), fault.to_string()))
}

/// An archive made by Python, of `(name, mode, content)`.
fn archive(dir: &Path, entries: &str) -> std::path::PathBuf {
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
fn a_listing_is_sorted_by_bytes_and_comes_in_batches() {
    let dir = TempDir::new().expect("a directory");
    for index in 0..600 {
        File::create(dir.path().join(format!("f{index}"))).expect("a file");
    }
    for name in [".hidden", "B", "a\nb", "ü", "a", "a b"] {
        File::create(dir.path().join(name)).expect("a file");
    }
    symlink("nowhere", dir.path().join("link")).expect("a link");
    let listed = String::from_utf8(all(Listing::of(text(dir.path())).expect("listed")).expect("read")).expect("text");
    let batches: Vec<Vec<Entry>> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(batches.len() == 3 && batches.iter().all(|batch| batch.len() <= 256));
    let names: Vec<String> = batches.concat().into_iter().map(|entry| entry.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    assert_eq!((names.len(), &names), (607, &sorted));
    assert!(names.starts_with(&[".hidden".into(), "B".into(), "a".into(), "a\nb".into(), "a b".into()]));
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
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"raw\xff")), "x").expect("a file");
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

    // And what was packed is unpacked again, but for the link that leads out.
    fs::remove_file(tree.join("out")).expect("removed");
    fs::write(&path, zip(&tree)).expect("written");
    let back = dir.path().join("back");
    fs::create_dir(&back).expect("a directory");
    unpack(&path, &back).expect("unpacked");
    assert_eq!(fs::read_to_string(back.join("sub/ünï\n\u{202e}.txt")).expect("read"), "content");
    assert_eq!(fs::read_link(back.join("inner")).expect("a link"), Path::new("sub"));
    let run = fs::metadata(back.join("run")).expect("there");
    assert_eq!((run.permissions().mode() & 0o777, run.modified().expect("a time"), run.len()), (0o751, day, 3 << 20));
    assert!(back.join("sub/empty").is_dir() && back.join(std::ffi::OsStr::from_bytes(b"raw\xff")).is_file());
    assert_eq!(fs::read_dir(&back).expect("read").count(), 5);
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
        // What cannot be packed, so that the first file fills several pieces.
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
    // And such a tree can be deleted.
    delete_directory(text(&dir.path().join("d"))).expect("deleted");
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
}

#[test]
fn the_kernels_file_systems_are_closed_whatever_they_are_called() {
    for (path, is_closed) in
        [("/proc", true), ("/proc/self/fd", true), ("/sys", true), ("/tmp", false), ("/usr", false)]
    {
        let opened = File::open(path).expect("it is there");
        assert_eq!(super::path::is_kernels(&opened), Ok(is_closed), "{path}");
    }
}

#[test]
fn a_directory_with_more_names_than_are_stored_is_refused_and_can_be_deleted() {
    let dir = TempDir::new().expect("a directory");
    let wide = dir.path().join("wide");
    fs::create_dir(&wide).expect("a directory");
    // Names of 250 bytes: few files make many bytes.
    let first = wide.join(format!("{:0250}", 0));
    File::create(&first).expect("a file");
    for n in 1..=super::names::MAX_NAME_BYTES / 251 {
        fs::hard_link(&first, wide.join(format!("{n:0250}"))).expect("a name");
    }
    let fault = super::look::Listing::of(text(&wide)).err().expect("refused");
    assert_eq!(fault.code(), ErrorCode::TooLarge);
    for at in [wide.as_path(), dir.path()] {
        let fault = Archive::of(text(at)).err().expect("refused");
        assert_eq!(fault.code(), ErrorCode::TooLarge);
    }
    delete_directory(text(&wide)).expect("deleted");
    assert!(!wide.exists());
}

/// A directory in a directory in a directory …, with a file in the last.
fn deep(at: &Path, levels: usize) {
    let mut here = File::open(at).expect("open");
    for _ in 0..levels {
        rustix::fs::mkdirat(&here, "d", rustix::fs::Mode::RWXU).expect("made");
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
        here = rustix::fs::openat(&here, "d", flags, rustix::fs::Mode::empty()).expect("open").into();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    drop(rustix::fs::openat(&here, "last", flags, rustix::fs::Mode::RUSR).expect("a file"));
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
        ("is there twice", format!("[('good', {FILE}, 'x'), ('good', {FILE}, 'y')]")),
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
        assert_eq!(refused.0, ErrorCode::NotAllowed, "{what}: {}", refused.1);
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
    // Any other byte anywhere: it is either refused or harmless, and never more than what the archive may do.
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
    assert_eq!(unpack(&made, &target).expect_err("a lie").0, ErrorCode::NotAllowed);
    // One that says how much it is, and is more than there is room for.
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

#[test]
fn what_is_no_regular_file_is_neither_opened_nor_waited_for() {
    let dir = TempDir::new().expect("a directory");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).expect("a FIFO");
    symlink("/dev/zero", dir.path().join("zero")).expect("a link");
    symlink("/proc/self/environ", dir.path().join("environ")).expect("a link");
    symlink("loop", dir.path().join("loop")).expect("a link");
    let code = |path: &str| Content::of(path).err().map(|fault| fault.code());
    let inside = |name: &str| text(&dir.path().join(name)).to_owned();
    assert_eq!(code(&inside("fifo")), Some(ErrorCode::PathForbidden));
    assert_eq!(code(&inside("zero")), Some(ErrorCode::PathForbidden));
    assert_eq!(code(&inside("environ")), Some(ErrorCode::PathForbidden));
    assert_eq!(code(&inside("loop")), Some(ErrorCode::NotAllowed));
    assert_eq!(code(&inside("none")), Some(ErrorCode::Missing));
    assert_eq!(code(&inside("")), Some(ErrorCode::IsADirectory));
    assert_eq!(code(&inside(&"x".repeat(300))), Some(ErrorCode::NotAllowed));
    for path in
        ["/proc/1/environ", "/proc/self/root/etc/passwd", "/dev/zero", "/dev/shm/x", "/sys/kernel/notes", "/proc"]
    {
        assert_eq!(code(path), Some(ErrorCode::PathForbidden), "{path}");
        assert_eq!(Listing::of(path).err().map(|fault| fault.code()), Some(ErrorCode::PathForbidden), "{path}");
        assert_eq!(
            Draft::new(path, 0o644, Field::Path).err().map(|f| f.code()),
            Some(ErrorCode::PathForbidden),
            "{path}"
        );
    }
    let drafted = |name: &str| Draft::new(&inside(name), 0o644, Field::Path).err().map(|fault| fault.code());
    assert_eq!(drafted("fifo"), Some(ErrorCode::PathForbidden));
    assert_eq!(drafted("zero"), Some(ErrorCode::PathForbidden));
    assert_eq!(drafted("fifo/x"), Some(ErrorCode::NotADirectory));
}

#[test]
fn a_file_is_there_when_it_is_whole_and_a_link_to_one_stays_a_link() {
    let dir = TempDir::new().expect("a directory");
    let (path, link) = (dir.path().join("x"), dir.path().join("link"));
    symlink("x", &link).expect("a link");
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).expect("read").map(|e| e.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let mut draft = Draft::new(text(&path), 0o640, Field::Path).expect("begun");
    draft.file.write_all(b"content").expect("written");
    assert_eq!(names(), ["link"]);
    draft.publish().expect("published");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o640);
    let mut draft = Draft::new(text(&link), 0o644, Field::Path).expect("begun");
    draft.file.write_all(b"other").expect("written");
    draft.publish().expect("published");
    assert_eq!(fs::read_to_string(&path).expect("read"), "other");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    drop(Draft::new(text(&path), 0o644, Field::Path).expect("begun"));
    assert_eq!(names(), ["link", "x"]);
}

#[test]
fn directories_made_on_the_way_go_again_unless_they_are_stored() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("a/b/c");
    let mut made = CreatedDirectories::default();
    made.directories(text(&path), 0o700, Field::Path).expect("made");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o700);
    fs::write(dir.path().join("a/kept"), "").expect("a file");
    drop(made);
    assert!(!dir.path().join("a/b").exists() && dir.path().join("a/kept").exists());
    let mut made = CreatedDirectories::default();
    let fault = made.directories(text(&dir.path().join("a/kept")), 0o700, Field::Path).expect_err("a file");
    assert_eq!(fault.code(), ErrorCode::Exists);
    let fault = made.directories(text(&dir.path().join("a/kept/x")), 0o700, Field::Path).expect_err("a file");
    assert_eq!(fault.code(), ErrorCode::NotADirectory);
}

#[test]
fn moving_replaces_nothing_and_crosses_file_systems() {
    let dir = TempDir::new().expect("a directory");
    let other = TempDir::new_in("/dev/shm").expect("another file system");
    let path = |name: &str| text(&dir.path().join(name)).to_owned();
    let moved =
        |source: String, destination: String| relocate(&Move { source, destination }).map_err(|fault| fault.code());
    fs::create_dir_all(dir.path().join("d/e")).expect("directories");
    fs::write(dir.path().join("d/e/f"), "content").expect("a file");
    fs::write(dir.path().join("x"), "x").expect("a file");
    assert_eq!(moved(path("x"), path("d")), Err(ErrorCode::Exists));
    assert_eq!(moved(path("d"), path("d/e/g")), Err(ErrorCode::NotAllowed));
    assert_eq!(moved(path("none"), path("y")), Err(ErrorCode::Missing));
    assert_eq!(moved(path("x"), path("none/y")), Err(ErrorCode::Missing));
    assert_eq!(moved(path("d"), path("moved")), Ok(()));
    assert_eq!(fs::read_to_string(dir.path().join("moved/e/f")).expect("read"), "content");

    // `/dev` itself is closed, so this way round.
    let inner =
        super::path::Spot { directory: File::open(dir.path()).expect("open").into(), name: c"moved".to_owned() };
    let outer =
        super::path::Spot { directory: File::open(other.path()).expect("open").into(), name: c"there".to_owned() };
    super::change::across(&inner, &outer).expect("moved");
    assert_eq!(fs::read_to_string(other.path().join("there/e/f")).expect("read"), "content");
    assert!(!dir.path().join("moved").exists());
    assert_eq!(fs::read_dir(other.path()).expect("read").count(), 1);
}

#[test]
fn permissions_follow_links_and_unknown_owners_are_refused() {
    let dir = TempDir::new().expect("a directory");
    fs::write(dir.path().join("x"), "").expect("a file");
    symlink("x", dir.path().join("link")).expect("a link");
    let wanted = |owner: Option<&str>| Wanted {
        path: text(&dir.path().join("link")).to_owned(),
        mode: 0o604,
        owner: owner.map(str::to_owned),
        group: None,
    };
    permissions(&wanted(None)).expect("set");
    assert_eq!(fs::metadata(dir.path().join("x")).expect("there").permissions().mode() & 0o7777, 0o604);
    assert_eq!(permissions(&wanted(Some("no-such-user"))).expect_err("unknown").code(), ErrorCode::NotAllowed);
    assert_eq!(permissions(&wanted(Some("4294967295"))).expect_err("no user").code(), ErrorCode::NotAllowed);
}

#[test]
fn deleting_never_follows_a_link() {
    let dir = TempDir::new().expect("a directory");
    fs::create_dir_all(dir.path().join("kept")).expect("a directory");
    fs::write(dir.path().join("kept/x"), "").expect("a file");
    fs::create_dir(dir.path().join("d")).expect("a directory");
    symlink("../kept", dir.path().join("d/link")).expect("a link");
    symlink("kept", dir.path().join("link")).expect("a link");
    let code = |name: &str| delete_directory(text(&dir.path().join(name))).map_err(|fault| fault.code());
    assert_eq!(code("link"), Err(ErrorCode::NotADirectory));
    assert_eq!(code("none"), Err(ErrorCode::Missing));
    assert_eq!(code("d"), Ok(()));
    let code = |name: &str| delete_file(text(&dir.path().join(name))).map_err(|fault| fault.code());
    assert_eq!(code("kept"), Err(ErrorCode::IsADirectory));
    assert_eq!(code("link"), Ok(()));
    assert!(dir.path().join("kept/x").exists());
}

/// Puts a link to what is inside and one that leads out in each other's place, at once and without a pause, and counts.
struct LinkSwapper {
    over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl LinkSwapper {
    fn of(one: PathBuf, other: PathBuf) -> Self {
        let (over, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ends, counts) = (Arc::clone(&over), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("exchanged");
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { over, count, thread: Some(thread) }
    }
}

impl Drop for LinkSwapper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

#[test]
fn links_that_are_exchanged_all_the_time_never_let_a_change_out() {
    let dir = TempDir::new().expect("a directory");
    // `/dev` is closed, whoever asks: what lies in there is outside.
    let outside = TempDir::new_in("/dev/shm").expect("a directory outside");
    let inside = |name: &str| dir.path().join(name);
    let path = |name: &str| text(&inside(name)).to_owned();
    fs::create_dir(inside("in")).expect("a directory");
    symlink("in", inside("a")).expect("a link");
    symlink(outside.path(), inside("b")).expect("a link");
    fs::create_dir(outside.path().join("d")).expect("a directory");
    for canary in ["canary", "x", "d/canary"] {
        fs::write(outside.path().join(canary), "canary").expect("a canary");
        fs::set_permissions(outside.path().join(canary), Permissions::from_mode(0o604)).expect("a mode");
    }
    let made = archive(dir.path(), "[('x', 0o100600, 'packed'), ('d/new', 0o100600, 'packed')]");
    let write = |name: &str| -> Result<(), Fault> {
        let mut draft = Draft::new(&path(name), 0o600, Field::Path)?;
        draft.file.write_all(b"written").map_err(|error| draft.fault(error))?;
        draft.publish()
    };
    let pack = || -> Result<(), Fault> {
        let packed = Archive::of(&path("a"))?;
        let whole = all(packed).unwrap_or_default();
        assert!(!whole.windows(6).any(|six| six == b"canary"), "what is outside was packed");
        Ok(())
    };
    let unzip = || unpack::archive(&File::open(&made).expect("the archive"), &path("a"), &AtomicBool::new(false));
    let wanted = || Wanted { path: path("a/x"), mode: 0o640, owner: None, group: None };
    let relocated =
        |source: &str, destination: &str| relocate(&Move { source: path(source), destination: path(destination) });
    type Change<'a> = (&'a str, &'a dyn Fn() -> Result<(), Fault>);
    let changes: [Change<'_>; 9] = [
        ("write_file", &|| write("a/x")),
        ("download_dir_zip", &pack),
        ("upload_zip", &unzip),
        ("set_file_permissions", &|| permissions(&wanted())),
        ("create_directory", &|| make_directory(&MakeDirectory { path: path("a/made"), mode: 0o700 })),
        ("move out", &|| relocated("a/x", "taken")),
        ("move in", &|| relocated("taken", "a/moved")),
        ("delete_file", &|| delete_file(&path("a/moved"))),
        ("delete_directory", &|| delete_directory(&path("a/d"))),
    ];
    let exchange = LinkSwapper::of(inside("a"), inside("b"));
    let mut counts = [(0_u32, 0_u32); 9];
    for round in 0.. {
        for ((what, change), (done, refused)) in changes.iter().zip(&mut counts) {
            // What an earlier change has taken away or left.
            fs::create_dir_all(inside("in/d")).expect("a directory");
            if !inside("in/x").exists() && *what != "move in" {
                fs::write(inside("in/x"), "x").expect("a file");
            }
            match change() {
                Ok(()) => *done += 1,
                Err(_) => *refused += 1,
            }
            if *what == "create_directory" {
                drop(fs::remove_dir(inside("in/made")));
            }
        }
        let left = [inside("taken"), inside("in/moved")];
        left.iter().for_each(|left| drop(fs::remove_file(left)));
        let enough = counts.iter().all(|(done, refused)| *done > 20 && *refused > 20);
        if enough && exchange.count.load(Ordering::Relaxed) > 10_000 {
            break;
        }
        assert!(round < 200_000, "{counts:?}");
    }
    drop(exchange);
    let mut names: Vec<_> =
        fs::read_dir(outside.path()).expect("read").map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["canary", "d", "x"]);
    assert_eq!(fs::read_dir(outside.path().join("d")).expect("read").count(), 1);
    for canary in ["canary", "x", "d/canary"] {
        let canary = outside.path().join(canary);
        assert_eq!(fs::read_to_string(&canary).expect("there"), "canary");
        assert_eq!(fs::metadata(&canary).expect("there").permissions().mode() & 0o7777, 0o604);
    }
    println!("done and refused: {counts:?}");
}
