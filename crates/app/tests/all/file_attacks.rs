//! Tests of file operations with malicious paths, archives, names and links, and with a full disk.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::archives::zip_of;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Shared, until};
use serde_json::json;

use super::files::{Files, TEST_TIMEOUT};
use super::host::end_reason;

#[test]
fn no_path_leads_out_of_the_session_or_into_its_kernel() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    for (path, status) in [
        ("", 400),
        ("tmp", 400),
        ("%00", 400),
        ("/tmp/%00", 400),
        ("/%ff%fe", 400),
        ("/%", 400),
        ("/proc", 403),
        ("//proc//self/./root", 403),
        ("/tmp/../proc/self/root/etc", 403),
        ("/proc/1/environ", 403),
        ("/proc/self/fd/3", 403),
        ("/proc/thread-self/root", 403),
        ("/dev/zero", 403),
        ("/dev/ptmx", 403),
        ("/dev/shm/../zero", 403),
        ("/sys", 403),
        ("/run/casement/egress/egress.sock", 400),
        ("/../../../../nowhere", 404),
    ] {
        for operation in ["list_files", "download_dir_zip"] {
            let answer = files.get(&format!("{operation}?path={path}"))?;
            assert_eq!(answer.status, status, "{operation} {path}: {}", answer.text());
        }
        let answer = files.get(&format!("read_file?path={path}"))?;
        // A socket is not a directory, and cannot be read.
        let expected = if path.ends_with(".sock") { 403 } else { status };
        assert_eq!(answer.status, expected, "read_file {path}: {}", answer.text());
    }
    let long = format!("/{}", "x/".repeat(2047));
    for path in [format!("{long}x"), format!("{long}xx"), "/".repeat(5000)] {
        let answer = files.get(&format!("list_files?path={path}"))?;
        assert!(matches!(answer.status, 400 | 404), "{}", answer.text());
    }
    // The root directory is that of the sandbox.
    let mine = files.names("/")?;
    assert!(mine.contains(&"proc".to_owned()) && !mine.iter().any(|name| name == "root" || name == "work"), "{mine:?}");
    let secret = files.get("read_file?path=/etc/shadow")?;
    assert_eq!(secret.status, 404, "the host's own files are not there");
    let whole = files.get("download_dir_zip?path=/run")?.expect(200)?;
    assert!(whole.body.starts_with(b"PK") && !whole.body.windows(11).any(|part| part == b"egress.sock"));
    files.end()
}

#[test]
fn unsafe_archives_are_refused_and_leave_nothing_behind() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    let link = "i = zipfile.ZipInfo('l'); i.create_system = 3; i.external_attr = 0o120777 << 16";
    for (what, program) in [
        ("traversal", "z.writestr('good', 'x'); z.writestr('../../home/casement/evil', 'x')".to_owned()),
        ("absolute", "z.writestr('good', 'x'); z.writestr('/tmp/evil', 'x')".to_owned()),
        ("twice", "z.writestr('good', 'x'); z.writestr('good', 'y')".to_owned()),
        ("through a link", format!("{link}; z.writestr(i, '/tmp'); z.writestr('l/evil', 'x')")),
        ("a link out", format!("z.writestr('good', 'x'); {link}; z.writestr(i, '../../etc')")),
        ("2 GiB of nothing", "for n in range(2):\n with z.open(f'{n}', 'w', force_zip64=True) as f:\n  for _ in range(1024): f.write(bytes(1 << 20))".to_owned()),
    ] {
        let answer = files.unzip("/tmp/new/target", &zip_of(&program)?)?;
        let expected = if what.starts_with("2 GiB") { 429 } else { 400 };
        assert_eq!(answer.status, expected, "{what}: {}", answer.text());
        assert!(!files.names("/tmp")?.contains(&"new".to_owned()), "{what}");
    }
    // An archive in an archive is a file.
    let nested = zip_of(
        "import io\nb = io.BytesIO()\nwith zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED) as y: y.writestr('x', bytes(100000000))\n\
         z.writestr('inner.zip', b.getvalue())",
    )?;
    files.unzip("/tmp/new", &nested)?.expect(204)?;
    assert_eq!(files.names("/tmp/new")?, ["inner.zip"]);
    files.end()
}

#[test]
fn file_names_round_trip_unchanged_and_inject_no_header() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    for name in [
        "a%0D%0AX-Evil:%20yes",
        "%E2%80%AEgpj.exe",
        "CON",
        "%25%2e%2e",
        "a%22%3Bb",
        "%E1%88%B4%F0%9F%98%80",
        "..x",
        "%20",
    ] {
        files.write(&format!("/tmp/{name}"), name.as_bytes())?.expect(204)?;
        let answer = files.get(&format!("read_file?path=/tmp/{name}"))?.expect(200)?;
        assert_eq!((answer.text(), answer.header("x-evil")), (name.to_owned(), None));
        assert!(answer.header("content-disposition").is_some_and(|value| value.is_ascii()));
        files.put("create_directory", &json!({ "path": "/tmp/d" }))?.expect(204)?;
        let answer = files.get(&format!("file_info?path=/tmp/{name}"))?.expect(200)?.json()?;
        assert!(files.names("/tmp")?.iter().any(|listed| answer["name"] == **listed), "{answer}");
    }
    files.end()
}

#[test]
fn a_full_disk_is_an_error_of_its_session_and_affects_no_other() -> anyhow::Result<()> {
    let server = &Shared::with_small_sessions().server;
    let (full, other) = (Files::new(server, None)?, Files::new(server, None)?);
    full.write("/tmp/fits", &vec![1; 30 << 20])?.expect(204)?;
    let refused = full.write("/tmp/large", &vec![1; 50 << 20])?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("quota"), "{}", refused.text());
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(!full.names("/tmp")?.iter().any(|name| name == "large" || name.starts_with(".casement")));
    // The refused file uses no space, and earlier files are intact.
    full.write("/tmp/fits%20too", &vec![2; 20 << 20])?.expect(204)?;
    assert_eq!(full.get("read_file?path=/tmp/fits")?.expect(200)?.body, vec![1; 30 << 20]);
    let unzipped = full.unzip("/tmp/x/y", &zip_of("z.writestr('x', bytes(40000000))")?)?;
    assert_eq!(unzipped.status, 429, "{}", unzipped.text());
    assert!(!full.names("/tmp")?.contains(&"x".to_owned()));
    // The browser of that session still works, and others are unaffected.
    for session in [&full, &other] {
        let shot = format!("/browsers/{}/computer/screenshot", session.session.id());
        Request::new("POST", &shot).bearer(server.key()).json(&json!({})).send(server.address())?.expect(200)?;
    }
    other.write("/tmp/large", &vec![1; 50 << 20])?.expect(204)?;
    // Empty files use memory of their session only: it ends with the reason, and others are unaffected.
    let endless =
        "import os\nos.mkdir(\"/tmp/n\"); os.chdir(\"/tmp/n\")\nn = 0\nwhile True:\n  os.mknod(str(n)); n += 1";
    drop(full.run(&format!("python3 -c '{endless}'")));
    let id = full.session.id().to_owned();
    until("the session has ended", TEST_TIMEOUT, || end_reason(server, &id).ok().filter(|why| !why.is_empty()))?;
    assert_eq!(end_reason(server, &id)?, "oom");
    assert_eq!(other.get("read_file?path=/tmp/large")?.expect(200)?.body.len(), 50 << 20);
    other.end()?;
    Ok(())
}

/// A program that swaps links to the inside with links to the outside, atomically and without a pause, and counts the
/// swaps.
const EXCHANGE: &str = "
import ctypes, mmap, struct, time
exchange = ctypes.CDLL(None).renameat2
file = open(\"count\", \"r+b\")
count = mmap.mmap(file.fileno(), 8)
end, n = time.time() + 300, 0
while time.time() < end:
    for one, other in ((b\"a\", b\"b\"), (b\"c\", b\"d\")):
        if exchange(-100, one, -100, other, 2) != 0:
            raise SystemExit
        n += 1
        struct.pack_into(\"<Q\", count, 0, n)
";

#[test]
fn links_that_are_swapped_during_requests_never_lead_out() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    files.run(&format!(
        "mkdir -p /tmp/race/in; echo inside > /tmp/race/in/x; cd /tmp/race; ln -s in a; ln -s /proc/1 b; ln -s /dev/zero c; \
         ln -s in/x d; head -c 8 /dev/zero > count; python3 -c '{EXCHANGE}' > /dev/null 2>&1 &"
    ))?;
    let swaps = || -> anyhow::Result<u64> {
        let bytes = files.get("read_file?path=/tmp/race/count")?.expect(200)?.body;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|bytes| anyhow::anyhow!("{bytes:?}"))?))
    };
    let first = until("links are exchanged", TEST_TIMEOUT, || swaps().ok().filter(|count| *count > 0))?;
    let began = Instant::now();
    let (inside, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    // Continues for 15 s, and on a busy machine until there were enough attempts.
    let goes_on = || {
        let few = [&inside, &refused].iter().any(|count| count.load(Ordering::Relaxed) <= 100);
        began.elapsed() < Duration::from_secs(if few { 200 } else { 15 })
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while goes_on() {
                        for tail in [
                            "read_file?path=/tmp/race/a/x",
                            "read_file?path=/tmp/race/c",
                            "list_files?path=/tmp/race/b",
                        ] {
                            let answer = files.get(tail)?;
                            match answer.status {
                                200 => {
                                    ensure!(
                                        answer.text().contains("inside") || answer.text().contains("/tmp/race"),
                                        "{}",
                                        answer.text()
                                    );
                                    inside.fetch_add(1, Ordering::Relaxed);
                                }
                                400 | 403 | 404 => {
                                    refused.fetch_add(1, Ordering::Relaxed);
                                }
                                _ => anyhow::bail!("{tail}: {}", answer.text()),
                            }
                        }
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker"))
    })?;
    let (inside, refused) = (inside.into_inner(), refused.into_inner());
    // A read of the counter may fail, so the maximum of several reads is used.
    let swaps = (0..10).filter_map(|_| swaps().ok()).max().context("no count")?.saturating_sub(first);
    println!("{inside} inside, {refused} refused, {swaps} swaps");
    assert!(inside > 100 && refused > 100);
    // Both pairs were swapped all the time, also between a check and its use.
    assert!(swaps > 10_000, "{swaps} swaps while {} calls were made", inside + refused);
    files.end()
}
