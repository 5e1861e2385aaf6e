//! Tests of file operations without a sandbox, on a temporary directory. Other programs check the results.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

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

mod archives;

use self::archives::archive;

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

/// Creates `levels` nested directories, with a file in the innermost one.
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

    // `/dev` itself is closed, so the locations are created directly.
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
fn a_name_that_is_not_utf_8_is_listed_read_moved_and_deleted_by_its_text() {
    let dir = TempDir::new().expect("a directory");
    let (folder, file) = (OsStr::from_bytes(b"ordner\xe4"), OsStr::from_bytes(b"caf\xe9.txt"));
    fs::create_dir(dir.path().join(folder)).expect("a directory");
    fs::write(dir.path().join(folder).join(file), "content").expect("a file");
    let listed = |path: &str| {
        let lines = all(Listing::of(path).expect("listed")).expect("read");
        let entries: Vec<Entry> =
            if lines.is_empty() { Vec::new() } else { serde_json::from_slice(&lines).expect("JSON") };
        entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    let top = text(dir.path());
    assert_eq!(listed(top), ["ordner\u{efe4}"]);
    let inside = format!("{top}/ordner\u{efe4}");
    assert_eq!(listed(&inside), ["caf\u{efe9}.txt"]);

    let path = format!("{inside}/caf\u{efe9}.txt");
    assert_eq!(super::look::info(&path).expect("there").name, "caf\u{efe9}.txt");
    assert_eq!(all(Content::of(&path).expect("opened")).expect("read"), b"content");
    permissions(&Wanted { path: path.clone(), mode: 0o600, owner: None, group: None }).expect("changed");
    relocate(&Move { source: path, destination: format!("{top}/\u{efff}") }).expect("moved");
    assert_eq!(fs::read(dir.path().join(OsStr::from_bytes(b"\xff"))).expect("moved"), b"content");
    Draft::new(&format!("{top}/\u{efff}"), 0o644, Field::Path).and_then(Draft::publish).expect("replaced");
    delete_file(&format!("{top}/\u{efff}")).expect("deleted");
    make_directory(&MakeDirectory { path: format!("{inside}/\u{ef80}"), mode: 0o755 }).expect("made");
    assert_eq!(listed(&inside), ["\u{ef80}"]);
    delete_directory(&inside).expect("deleted");
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 0);
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

/// Exchanges a link to a directory inside and one that leads out, atomically and without a pause, and counts the
/// exchanges.
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
    // `/dev` is closed for every caller, so this directory counts as outside.
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
            // Restores the files that an earlier change has removed.
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
