//! Files of sessions: with the public client, and with what nobody should send.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::host::end_reason;
use super::support::http::{Answer, Request};
use super::support::{Cdp, Clients, Options, Process, Server, Session, Shared, until};

const SOON: Duration = Duration::from_secs(180);
/// Downloads a file by itself, without asking.
const DOWNLOADS: &str = "<!doctype html><a id=a download='from the page.txt' href='data:text/plain,downloaded'>x</a>\
    <input type=file id=f multiple><script>a.click()</script>";

fn every_call_works(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/downloads", DOWNLOADS);
    let arguments = [pages.url(""), headless.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/files.py", &arguments)?;
    let field = |code: &str| json!(["BadRequestError", "invalid_input", code]);
    let forbidden = json!(["PermissionDeniedError", "path_forbidden"]);
    let odd = "ünï \n\u{202e}😀 \"'\\;.txt";
    let saw = json!({
        "info": [true, true, 10, false, "-rw-r-----"],
        "directory": [
            ["a", "/tmp/work/a", 0, true, "drwxr-xr-x"],
            [odd, format!("/tmp/work/{odd}"), 10, false, "-rw-r-----"],
        ],
        "mode": "-rwxrwxrwt",
        "uploaded": ["one", "from a file", ""],
        "disposition": ["attachment; filename=\"work.zip\"", "application/zip"],
        "archive": ["up/", "up/1", "up/3", "up/deep/", "up/deep/2", "up/random"],
        "events": [
            ["CREATE", "/tmp/work/seen", "seen", true],
            ["CREATE", "/tmp/work/next", "next", false],
            ["CREATE", "/tmp/work/seen/new", "new", false],
            ["RENAME", "/tmp/work/seen/new", "new", false],
            ["CREATE", "/tmp/work/seen/other", "other", false],
            ["DELETE", "/tmp/work/seen/other", "other", false],
        ],
        "stopped": ["NotFoundError", "not_found"],
        "watches": ["RateLimitError", "limit_exceeded"],
        "two readers": "/tmp/work/two",
        "refusals": {
            "relative": field("invalid_format"),
            "NUL": field("invalid_format"),
            "long": field("too_long"),
            "long name": field("not_allowed"),
            "proc": forbidden,
            "root": forbidden,
            "up": forbidden,
            "device": forbidden,
            "device mode": forbidden,
            "no file": ["NotFoundError", "not_found"],
            "a directory": field("is_a_directory"),
            "a file": field("not_a_directory"),
            "system": forbidden,
            "other home": forbidden,
            "set-id": field("not_allowed"),
            "decimal mode": field("invalid_format"),
            "foreign owner": forbidden,
            "foreign name": forbidden,
            "unknown owner": field("not_allowed"),
            "the root": field("blocked"),
            "a mount": forbidden,
            "taken": ["ConflictError", "already_exists"],
            "a file in the way": ["ConflictError", "already_exists"],
            "no parent": ["NotFoundError", "not_found"],
            "no archive": field("not_allowed"),
            "paths and files": field("invalid_format"),
            "another session": ["NotFoundError", "not_found"],
        },
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

#[test]
fn every_call_of_the_python_client_for_files_works_with_a_display() -> anyhow::Result<()> {
    every_call_works(false)
}

#[test]
fn every_call_of_the_python_client_for_files_works_without_a_display() -> anyhow::Result<()> {
    every_call_works(true)
}

/// A session of its own, and calls about its files.
struct Files<'a> {
    server: &'a Server,
    session: Session,
}

impl<'a> Files<'a> {
    fn new(server: &'a Server, start_url: Option<&str>) -> anyhow::Result<Self> {
        let mut wish = json!({ "headless": true, "timeout_seconds": 600 });
        if let Some(url) = start_url {
            wish["start_url"] = url.into();
        }
        Ok(Self { server, session: server.create(&wish)? })
    }

    fn request(&self, method: &str, tail: &str) -> Request {
        let path = format!("/browsers/{}/fs/{tail}", self.session.id());
        Request::new(method, &path).bearer(self.server.key())
    }

    fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        request.send(self.server.address())
    }

    fn get(&self, tail: &str) -> anyhow::Result<Answer> {
        self.send(&self.request("GET", tail))
    }

    fn put(&self, tail: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(&self.request("PUT", tail).json(body))
    }

    fn write(&self, path: &str, content: &[u8]) -> anyhow::Result<Answer> {
        let mut request = self.request("PUT", &format!("write_file?path={path}"));
        request.body = Some(content.to_vec());
        self.send(&request.header("content-type", "application/octet-stream"))
    }

    fn unzip(&self, to: &str, archive: &[u8]) -> anyhow::Result<Answer> {
        let mut body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"dest_path\"\r\n\r\n{to}\r\n\
             --b\r\nContent-Disposition: form-data; name=\"zip_file\"; filename=\"x\"\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(archive);
        body.extend_from_slice(b"\r\n--b--\r\n");
        let mut request = self.request("POST", "upload_zip").header("content-type", "multipart/form-data; boundary=b");
        request.body = Some(body);
        self.send(&request)
    }

    fn names(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let listed = self.get(&format!("list_files?path={path}"))?.expect(200)?.json()?;
        let names = listed.as_array().context("no list")?.iter().filter_map(|entry| entry["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Does something in the session's machine.
    fn run(&self, script: &str) -> anyhow::Result<()> {
        let path = format!("/browsers/{}/process/exec", self.session.id());
        let body = json!({ "command": "sh", "args": ["-c", script], "timeout_sec": 280 });
        let answer = Request::new("POST", &path).bearer(self.server.key()).json(&body).send(self.server.address())?;
        let done = answer.expect(200)?.json()?;
        ensure!(done["exit_code"] == 0, "{script}: {done}");
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        let answer = self.server.delete(&format!("/browsers/{}", self.session.id()))?;
        answer.expect(204).map(drop)
    }
}

/// An archive, made by Python from lines of a program that puts entries into `z`.
fn archive(program: &str) -> anyhow::Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.zip");
    let program = format!(
        "import sys, zipfile, warnings\nwarnings.simplefilter('ignore')\n\
         with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as z:\n {}",
        program.replace('\n', "\n ")
    );
    let run = Command::new("python3").arg("-c").arg(program).arg(&path).output()?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Ok(fs::read(path)?)
}

#[test]
fn d1_no_path_leads_out_of_the_session_or_into_its_kernel() -> anyhow::Result<()> {
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
        // A socket is no directory, and may not be read either.
        let expected = if path.ends_with(".sock") { 403 } else { status };
        assert_eq!(answer.status, expected, "read_file {path}: {}", answer.text());
    }
    let long = format!("/{}", "x/".repeat(2047));
    for path in [format!("{long}x"), format!("{long}xx"), "/".repeat(5000)] {
        let answer = files.get(&format!("list_files?path={path}"))?;
        assert!(matches!(answer.status, 400 | 404), "{}", answer.text());
    }
    // What is there is the session's own root.
    let mine = files.names("/")?;
    assert!(mine.contains(&"proc".to_owned()) && !mine.iter().any(|name| name == "root" || name == "work"), "{mine:?}");
    let secret = files.get("read_file?path=/etc/shadow")?;
    assert_eq!(secret.status, 404, "the host's own files are not there");
    let whole = files.get("download_dir_zip?path=/run")?.expect(200)?;
    assert!(whole.body.starts_with(b"PK") && !whole.body.windows(11).any(|part| part == b"egress.sock"));
    files.end()
}

#[test]
fn d4_archives_that_are_not_safe_are_refused_and_leave_nothing_behind() -> anyhow::Result<()> {
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
        let answer = files.unzip("/tmp/new/target", &archive(&program)?)?;
        let expected = if what.starts_with("2 GiB") { 429 } else { 400 };
        assert_eq!(answer.status, expected, "{what}: {}", answer.text());
        assert!(!files.names("/tmp")?.contains(&"new".to_owned()), "{what}");
    }
    // An archive in an archive is a file.
    let nested = archive(
        "import io\nb = io.BytesIO()\nwith zipfile.ZipFile(b, 'w', zipfile.ZIP_DEFLATED) as y: y.writestr('x', bytes(100000000))\n\
         z.writestr('inner.zip', b.getvalue())",
    )?;
    files.unzip("/tmp/new", &nested)?.expect(204)?;
    assert_eq!(files.names("/tmp/new")?, ["inner.zip"]);
    files.end()
}

#[test]
fn d5_no_name_of_a_file_gets_out_of_its_header_or_is_changed() -> anyhow::Result<()> {
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
fn d7_a_full_disk_is_said_and_hurts_nobody_else() -> anyhow::Result<()> {
    let flags = ["--session-disk", "128", "--session-memory", "512"].map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, ..Options::default() })?;
    let (full, other) = (Files::new(&server, None)?, Files::new(&server, None)?);
    full.write("/tmp/fits", &vec![1; 30 << 20])?.expect(204)?;
    let refused = full.write("/tmp/large", &vec![1; 50 << 20])?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("quota"), "{}", refused.text());
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(!full.names("/tmp")?.iter().any(|name| name == "large" || name.starts_with(".casement")));
    // What was refused has given its space back, and what was there is whole.
    full.write("/tmp/fits%20too", &vec![2; 20 << 20])?.expect(204)?;
    assert_eq!(full.get("read_file?path=/tmp/fits")?.expect(200)?.body, vec![1; 30 << 20]);
    let unzipped = full.unzip("/tmp/x/y", &archive("z.writestr('x', bytes(40000000))")?)?;
    assert_eq!(unzipped.status, 429, "{}", unzipped.text());
    assert!(!full.names("/tmp")?.contains(&"x".to_owned()));
    // The browser of that session still works, and others do not notice.
    for session in [&full, &other] {
        let shot = format!("/browsers/{}/computer/screenshot", session.session.id());
        Request::new("POST", &shot).bearer(server.key()).json(&json!({})).send(server.address())?.expect(200)?;
    }
    other.write("/tmp/large", &vec![1; 50 << 20])?.expect(204)?;
    // Files without bytes take memory of their session alone: it ends with the reason, and nobody else notices.
    let endless =
        "import os\nos.mkdir(\"/tmp/n\"); os.chdir(\"/tmp/n\")\nn = 0\nwhile True:\n  os.mknod(str(n)); n += 1";
    drop(full.run(&format!("python3 -c '{endless}'")));
    let id = full.session.id().to_owned();
    until("the session has ended", SOON, || end_reason(&server, &id).ok().filter(|why| !why.is_empty()))?;
    assert_eq!(end_reason(&server, &id)?, "oom");
    assert_eq!(other.get("read_file?path=/tmp/large")?.expect(200)?.body.len(), 50 << 20);
    other.end()?;
    Ok(())
}

#[test]
fn uploads_that_break_off_leave_nothing_behind_and_too_long_ones_are_refused() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    files.put("create_directory", &json!({ "path": "/tmp/up" }))?.expect(204)?;
    let mut request = files.request("PUT", "write_file?path=/tmp/up/x").header("content-length", "10000000");
    request.body = None;
    let mut stream = request.start(server.address())?;
    stream.write_all(&vec![1; 5_000_000])?;
    drop(stream);
    let form = "--b\r\nContent-Disposition: form-data; name=\"files[][dest_path]\"\r\n\r\n/tmp/up/deep/y\r\n\
                --b\r\nContent-Disposition: form-data; name=\"files[][file]\"\r\n\r\n";
    let request = files
        .request("POST", "upload")
        .header("content-type", "multipart/form-data; boundary=b")
        .header("content-length", "10000000");
    let mut stream = request.start(server.address())?;
    stream.write_all(form.as_bytes())?;
    stream.write_all(&vec![1; 5_000_000])?;
    until("the upload has begun", SOON, || files.names("/tmp/up").ok().filter(|names| *names == ["deep"]))?;
    drop(stream);
    until("nothing is left", SOON, || files.names("/tmp/up").ok().filter(Vec::is_empty))?;
    let request =
        files.request("PUT", "write_file?path=/tmp/up/x").header("content-length", &((4_u64 << 30) + 1).to_string());
    let mut answer = Vec::new();
    request.start(server.address())?.take(10_000).read_to_end(&mut answer)?;
    assert_eq!(Answer::read(&answer, false)?.status, 413);
    // A pair without its half, the other way round, and a file before its path.
    for form in [
        "--b\r\nContent-Disposition: form-data; name=\"files[][dest_path]\"\r\n\r\n/tmp/up/y\r\n--b--\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"files[][file]\"\r\n\r\nx\r\n--b--\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"files[][file]\"\r\n\r\nx\r\n\
         --b\r\nContent-Disposition: form-data; name=\"files[][dest_path]\"\r\n\r\n/tmp/up/y\r\n--b--\r\n",
        "--b--\r\n",
    ] {
        let mut request = files.request("POST", "upload").header("content-type", "multipart/form-data; boundary=b");
        request.body = Some(form.into());
        assert_eq!(files.send(&request)?.status, 400, "{form}");
    }
    assert!(files.names("/tmp/up")?.is_empty());
    files.end()
}

#[test]
fn a_file_that_was_uploaded_can_be_given_to_a_page() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/input", "<!doctype html><input type=file id=f>");
    let files = Files::new(server, Some(&pages.url("/input")))?;
    files.write("/home/casement/for%20the%20page.txt", b"from the caller")?.expect(204)?;
    let mut browser = Cdp::connect(files.session.text("cdp_ws_url"))?;
    let page = browser.page()?;
    until("the page is there", SOON, || {
        browser.evaluate(&page, "!!window.f").ok().filter(|there| *there == json!(true))
    })?;
    let input = browser.call_in(Some(&page), "Runtime.evaluate", &json!({ "expression": "f" }))?;
    let given = json!({ "objectId": input["result"]["objectId"], "files": ["/home/casement/for the page.txt"] });
    browser.call_in(Some(&page), "DOM.setFileInputFiles", &given)?;
    browser.call_in(
        Some(&page),
        "Runtime.evaluate",
        &json!({ "expression": "f.files[0].text().then(t => window.read = f.files[0].name + ': ' + t)" }),
    )?;
    let read =
        until("the page has read it", SOON, || browser.evaluate(&page, "window.read").ok().filter(Value::is_string))?;
    assert_eq!(read, json!("for the page.txt: from the caller"));
    files.end()
}

/// A script runs where the file is, so that Playwright finds it by its path.
#[test]
fn a_script_gives_a_page_an_uploaded_file_by_its_path() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/input", "<!doctype html><input type=file id=f>");
    let files = Files::new(server, None)?;
    files.write("/home/casement/up%20here.txt", b"from the caller")?.expect(204)?;
    let code = format!(
        "await page.goto('{}'); await page.setInputFiles('#f', '/home/casement/up here.txt');
         return page.evaluate(async () => [f.files[0].name, await f.files[0].text()]);",
        pages.url("/input")
    );
    let path = format!("/browsers/{}/playwright/execute", files.session.id());
    let done = server.post(&path, &json!({ "code": code }))?.expect(200)?.json()?;
    assert_eq!(done["result"], json!(["up here.txt", "from the caller"]), "{done}");
    files.end()
}

/// What is listed is whole: until then a download has another name.
#[test]
fn a_download_has_its_name_when_it_is_complete() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let files = Files::new(server, None)?;
    let page = "<!doctype html><script>
        const parts = Array.from({ length: 64 }, (_, n) => new Uint8Array(1 << 20).fill(65 + n % 26));
        const a = document.createElement('a');
        a.href = URL.createObjectURL(new Blob(parts));
        a.download = 'large.bin';
        a.click();
        </script>";
    pages.put("/large", page);
    let mut browser = Cdp::connect(files.session.text("cdp_ws_url"))?;
    let shown = browser.page()?;
    browser.call_in(Some(&shown), "Page.navigate", &json!({ "url": pages.url("/large") }))?;
    let listed = until("the download is listed", SOON, || {
        let listed = files.get("list_files?path=/home/casement/downloads").ok()?.json().ok()?;
        listed.as_array()?.iter().find(|entry| entry["name"] == "large.bin").cloned()
    })?;
    assert_eq!(listed["size_bytes"], json!(64 << 20));
    let read = files.get("read_file?path=/home/casement/downloads/large.bin")?.expect(200)?;
    assert_eq!((read.body.len(), read.body.last()), (64 << 20, Some(&(65 + 63 % 26))));
    files.end()
}

/// Who cannot read as fast as a directory changes is told that changes are missing, in the stream and afterwards.
#[test]
fn a_watch_that_lost_changes_ends_with_the_reason() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    files.run("mkdir /tmp/busy")?;
    let path = format!("/browsers/{}/fs/watch", files.session.id());
    let watch = server.post(&path, &json!({ "path": "/tmp/busy" }))?.expect(201)?.json()?;
    let events = format!("watch/{}/events", watch["watch_id"].as_str().context("no watch")?);
    let mut stream = files.request("GET", &events).start(server.address())?;
    // The answer has begun; nothing more of it is read for now.
    let mut begin = [0; 12];
    stream.read_exact(&mut begin)?;
    assert_eq!(&begin, b"HTTP/1.1 200");
    files.run(
        "cd /tmp/busy && python3 -c 'import os\nfor n in range(100000):\n  f = \"x\" * 200 + str(n); open(f, \"w\").close(); os.remove(f)'",
    )?;
    let (mut text, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
    stream.set_read_timeout(Some(SOON))?;
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "it broke off");
        text.extend_from_slice(&buffer[..read]);
        // The end is enough.
        text.drain(..text.len().saturating_sub(4096));
    }
    let text = String::from_utf8_lossy(&text);
    let last = ": the watch has ended: more happened than was read, so that changes were lost";
    assert!(text.contains(last), "{text}");
    let again = files.get(&events)?;
    assert_eq!(again.status, 404, "{}", again.text());
    assert!(again.text().contains("more happened than was read"), "{}", again.text());
    files.end()
}

#[test]
fn files_keep_their_times_and_a_read_says_how_much_comes() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    let made = archive(
        "for name, mode, time, data in [('d/', 0o40750, (2001, 2, 3, 4, 5, 6), ''),
            ('d/e/', 0o40700, (2003, 2, 3, 4, 5, 6), ''), ('d/e/f', 0o100640, (2002, 2, 3, 4, 5, 6), 'hi')]:
            i = zipfile.ZipInfo(name, time); i.external_attr = mode << 16; z.writestr(i, data)",
    )?;
    files.unzip("/tmp/z", &made)?.expect(204)?;
    for (path, time) in [("d", "2001-02-03T04:05:06"), ("d/e", "2003-02-03T04:05:06"), ("d/e/f", "2002-02-03T04:05:06")]
    {
        let told = files.get(&format!("file_info?path=/tmp/z/{path}"))?.expect(200)?.json()?;
        assert!(told["mod_time"].as_str().is_some_and(|told| told.starts_with(time)), "{path}: {told}");
    }
    let read = files.get("read_file?path=/tmp/z/d/e/f")?.expect(200)?;
    assert_eq!((read.text(), read.header("content-length")), ("hi".to_owned(), Some("2")));

    // What cannot be moved is named: the place it comes from, or the one it goes to.
    for (from, to, named) in [("/tmp/z/d/e/f", "/usr/f", "/usr/f"), ("/usr/bin/env", "/tmp/env", "/usr/bin/env")] {
        let refused = files.put("move", &json!({ "src_path": from, "dest_path": to }))?;
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(refused.text().contains(&format!("{named} ")), "{}", refused.text());
    }
    assert!(!files.names("/tmp")?.contains(&"env".to_owned()), "nothing is left of what was not moved");
    files.end()
}

/// Memory of the server and of a session's agent, in MiB.
fn memory(server: &Server) -> anyhow::Result<(u64, u64)> {
    let resident = |pid: i32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok())
    };
    let processes = server.processes();
    let agent =
        processes.iter().filter(|p| p.argv.get(1).is_some_and(|word| word == "agent")).filter_map(|p| resident(p.pid));
    let serves = |p: &&Process| p.argv.get(1).is_some_and(|word| word == "serve");
    let own = processes.iter().find(serves).and_then(|p| resident(p.pid)).context("no server")?;
    Ok((own >> 10, agent.max().context("no agent")? >> 10))
}

/// The most memory that server and agent have while `work` is done, in MiB.
fn most_memory(server: &Server, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<(u64, u64)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = (0, 0);
            loop {
                let last = done.load(Ordering::Relaxed);
                let (own, agent) = memory(server)?;
                most = (most.0.max(own), most.1.max(agent));
                if last {
                    return anyhow::Ok(most);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let most = watching.join().expect("nothing panics");
        worked.and(most)
    })
}

/// A request whose body is `before`, `zeros` zeros and `after`, sent as it is made.
fn stream_in(files: &Files, request: Request, before: &str, zeros: u64, after: &str) -> anyhow::Result<Answer> {
    let length = before.len() as u64 + zeros + after.len() as u64;
    let mut stream = request.header("content-length", &length.to_string()).start(files.server.address())?;
    stream.write_all(before.as_bytes())?;
    let piece = vec![0; 1 << 20];
    for _ in 0..zeros >> 20 {
        stream.write_all(&piece)?;
    }
    stream.write_all(after.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Answer::read(&answer, false)
}

#[test]
fn large_files_and_directories_pass_through_a_few_megabytes_both_ways() -> anyhow::Result<()> {
    let server = Server::start(Options { flags: vec!["--session-disk".into(), "8000".into()], ..Options::default() })?;
    let files = Files::new(&server, None)?;
    files.run("mkdir /tmp/many && cd /tmp/many && seq 100000 | xargs touch; truncate -s 2G /tmp/two")?;
    files.get("list_files?path=/tmp")?.expect(200)?;
    let before = memory(&server)?;
    let mut seen = Vec::new();
    let mut step = |what: &'static str, work: &mut dyn FnMut() -> anyhow::Result<()>| {
        let began = Instant::now();
        let (own, agent) = most_memory(&server, work).context(what)?;
        println!("{what}: {:?}, server {} -> {own} MiB, agent {} -> {agent} MiB", began.elapsed(), before.0, before.1);
        seen.push((what, own.saturating_sub(before.0), agent.saturating_sub(before.1)));
        anyhow::Ok(())
    };

    step("list 100,000 entries", &mut || {
        let listed = files.get("list_files?path=/tmp/many")?.expect(200)?.json()?;
        ensure!(listed.as_array().map(Vec::len) == Some(100_000), "not all");
        Ok(())
    })?;
    step("read 2 GiB", &mut || {
        let mut stream = files.request("GET", "read_file?path=/tmp/two").start(server.address())?;
        let received = std::io::copy(&mut stream, &mut std::io::sink())?;
        ensure!(received > 2 << 30, "{received} bytes with the head");
        Ok(())
    })?;
    files.run("rm /tmp/two")?;
    step("write 2 GiB", &mut || {
        let request = files.request("PUT", "write_file?path=/tmp/one");
        stream_in(&files, request, "", 2 << 30, "")?.expect(204).map(drop)
    })?;
    let end = "\r\n--b--\r\n";
    step("upload 256 MiB", &mut || {
        let path = "--b\r\nContent-Disposition: form-data; name=\"files[][dest_path]\"\r\n\r\n/tmp/one\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"files[][file]\"\r\n\r\n";
        let request = files.request("POST", "upload").header("content-type", "multipart/form-data; boundary=b");
        stream_in(&files, request, path, 256 << 20, end)?.expect(204).map(drop)
    })?;
    let mut packed = Vec::new();
    step("pack 100,000 entries", &mut || {
        packed = files.get("download_dir_zip?path=/tmp/many")?.expect(200)?.body;
        Ok(())
    })?;
    step("unpack 100,000 entries", &mut || files.unzip("/tmp/again", &packed)?.expect(204).map(drop))?;
    files.run("test $(ls -U /tmp/again | wc -l) = 100000 && rm -r /tmp/again")?;

    for (what, own, agent) in seen {
        assert!(own < 24 && agent < 24, "{what}: the server grew by {own} MiB, the agent by {agent} MiB");
    }
    files.end()?;
    Ok(())
}

/// Puts links to what is inside and links that lead out in each other's place, at once and without a pause, and counts.
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
fn links_that_are_exchanged_all_the_time_never_lead_out() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    files.run(&format!(
        "mkdir -p /tmp/race/in; echo inside > /tmp/race/in/x; cd /tmp/race; ln -s in a; ln -s /proc/1 b; ln -s /dev/zero c; \
         ln -s in/x d; head -c 8 /dev/zero > count; python3 -c '{EXCHANGE}' > /dev/null 2>&1 &"
    ))?;
    let swaps = || -> anyhow::Result<u64> {
        let told = files.get("read_file?path=/tmp/race/count")?.expect(200)?.body;
        Ok(u64::from_le_bytes(told.try_into().map_err(|told| anyhow::anyhow!("{told:?}"))?))
    };
    let first = until("links are exchanged", SOON, || swaps().ok().filter(|count| *count > 0))?;
    let began = Instant::now();
    let (inside, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    // For some time, and on a busy machine for as long as it takes to have tried often.
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
    // It is cleared for a moment whenever it is written anew.
    let swaps = (0..10).filter_map(|_| swaps().ok()).max().context("no count")?.saturating_sub(first);
    println!("{inside} inside, {refused} refused, {swaps} swaps");
    assert!(inside > 100 && refused > 100);
    // Both pairs, all the time between a check and what comes of it.
    assert!(swaps > 10_000, "{swaps} swaps while {} calls were made", inside + refused);
    files.end()
}
