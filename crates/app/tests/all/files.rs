//! Tests of the files of sessions: every call of the public client, uploads, downloads and watches.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::archives::zip_of;
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Cdp, Clients, Server, Session, Shared, until};
use serde_json::{Value, json};

pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// A page that downloads a file without a click.
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
    let refusals = json!({
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
            "foreign group": forbidden,
            "unknown group": field("not_allowed"),
            "the root": field("blocked"),
            "a mount": forbidden,
            "taken": ["ConflictError", "already_exists"],
            "a file in the way": ["ConflictError", "already_exists"],
            "no parent": ["NotFoundError", "not_found"],
            "no archive": field("invalid_format"),
            "paths and files": field("invalid_format"),
            "another session": ["NotFoundError", "not_found"],
    });
    let saw = json!({
        "info": [true, true, 10, false, "-rw-r-----"],
        "directory": [
            ["a", "/tmp/work/a", 0, true, "drwxr-xr-x"],
            [odd, format!("/tmp/work/{odd}"), 10, false, "-rw-r-----"],
        ],
        "modes": { "b": "drwxr-x---", "c": "drwxr-xr-x", "d": "-rw-r--r--", "e": "-rw-r--r--" },
        "mode": "-rwxrwxrwt",
        "before": ["b", "c", "d", "e"],
        "deleted": [["NotFoundError", "not_found"], []],
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
        "the stream of a stopped watch": [],
        "stopped": ["NotFoundError", "not_found"],
        "watches": ["RateLimitError", "limit_exceeded"],
        "two readers": "/tmp/work/two",
        "refusals": refusals,
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

/// A session, with calls of the file operations.
pub(super) struct Files<'a> {
    pub(super) server: &'a Server,
    pub(super) session: Session,
}

impl<'a> Files<'a> {
    pub(super) fn new(server: &'a Server, start_url: Option<&str>) -> anyhow::Result<Self> {
        let mut body = json!({ "headless": true, "timeout_seconds": 600 });
        if let Some(url) = start_url {
            body["start_url"] = url.into();
        }
        Ok(Self { server, session: server.create(&body)? })
    }

    pub(super) fn request(&self, method: &str, tail: &str) -> Request {
        let path = format!("/browsers/{}/fs/{tail}", self.session.id());
        Request::new(method, &path).bearer(self.server.key())
    }

    pub(super) fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        request.send(self.server.address())
    }

    pub(super) fn get(&self, tail: &str) -> anyhow::Result<Answer> {
        self.send(&self.request("GET", tail))
    }

    pub(super) fn put(&self, tail: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(&self.request("PUT", tail).json(body))
    }

    pub(super) fn write(&self, path: &str, content: &[u8]) -> anyhow::Result<Answer> {
        let mut request = self.request("PUT", &format!("write_file?path={path}"));
        request.body = Some(content.to_vec());
        self.send(&request.header("content-type", "application/octet-stream"))
    }

    pub(super) fn unzip(&self, to: &str, archive: &[u8]) -> anyhow::Result<Answer> {
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

    pub(super) fn names(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let listed = self.get(&format!("list_files?path={path}"))?.expect(200)?.json()?;
        let names = listed.as_array().context("no list")?.iter().filter_map(|entry| entry["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs a shell script in the session.
    pub(super) fn run(&self, script: &str) -> anyhow::Result<()> {
        let path = format!("/browsers/{}/process/exec", self.session.id());
        let body = json!({ "command": "sh", "args": ["-c", script], "timeout_sec": 280 });
        let answer = Request::new("POST", &path).bearer(self.server.key()).json(&body).send(self.server.address())?;
        let done = answer.expect(200)?.json()?;
        ensure!(done["exit_code"] == 0, "{script}: {done}");
        Ok(())
    }

    pub(super) fn end(self) -> anyhow::Result<()> {
        let answer = self.server.delete(&format!("/browsers/{}", self.session.id()))?;
        answer.expect(204).map(drop)
    }
}

#[test]
fn incomplete_uploads_leave_nothing_behind_and_too_large_ones_are_refused() -> anyhow::Result<()> {
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
    until("the upload has begun", TEST_TIMEOUT, || files.names("/tmp/up").ok().filter(|names| *names == ["deep"]))?;
    drop(stream);
    until("nothing is left", TEST_TIMEOUT, || files.names("/tmp/up").ok().filter(Vec::is_empty))?;
    let request =
        files.request("PUT", "write_file?path=/tmp/up/x").header("content-length", &((4_u64 << 30) + 1).to_string());
    let mut answer = Vec::new();
    request.start(server.address())?.take(10_000).read_to_end(&mut answer)?;
    assert_eq!(Answer::read(&answer, false)?.status, 413);
    // A path without a file, a file without a path, and no parts.
    for form in [
        "--b\r\nContent-Disposition: form-data; name=\"files[][dest_path]\"\r\n\r\n/tmp/up/y\r\n--b--\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"files[][file]\"\r\n\r\nx\r\n--b--\r\n",
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
fn an_uploaded_file_can_be_given_to_a_page() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/input", "<!doctype html><input type=file id=f>");
    let files = Files::new(server, Some(&pages.url("/input")))?;
    files.write("/home/casement/for%20the%20page.txt", b"from the caller")?.expect(204)?;
    let mut browser = Cdp::connect(files.session.text("cdp_ws_url"))?;
    let page = browser.page()?;
    until("the page is there", TEST_TIMEOUT, || {
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
    let read = until("the page has read it", TEST_TIMEOUT, || {
        browser.evaluate(&page, "window.read").ok().filter(Value::is_string)
    })?;
    assert_eq!(read, json!("for the page.txt: from the caller"));
    files.end()
}

/// A script runs in the sandbox, so Playwright finds the file by its path.
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

/// An incomplete download has another name, so a listed download is complete.
#[test]
fn a_download_gets_its_name_when_it_is_complete() -> anyhow::Result<()> {
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
    let listed = until("the download is listed", TEST_TIMEOUT, || {
        let listed = files.get("list_files?path=/home/casement/downloads").ok()?.json().ok()?;
        listed.as_array()?.iter().find(|entry| entry["name"] == "large.bin").cloned()
    })?;
    assert_eq!(listed["size_bytes"], json!(64 << 20));
    let read = files.get("read_file?path=/home/casement/downloads/large.bin")?.expect(200)?;
    assert_eq!((read.body.len(), read.body.last()), (64 << 20, Some(&(65 + 63 % 26))));
    files.end()
}

/// If a reader is slower than the changes of a directory, the stream and later requests report that changes are
/// missing.
#[test]
fn a_watch_that_lost_changes_ends_with_the_reason() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    files.run("mkdir /tmp/busy")?;
    let path = format!("/browsers/{}/fs/watch", files.session.id());
    let watch = server.post(&path, &json!({ "path": "/tmp/busy" }))?.expect(201)?.json()?;
    let events = format!("watch/{}/events", watch["watch_id"].as_str().context("no watch")?);
    let mut stream = files.request("GET", &events).start(server.address())?;
    let mut begin = [0; 12];
    stream.read_exact(&mut begin)?;
    assert_eq!(&begin, b"HTTP/1.1 200");
    files.run(
        "cd /tmp/busy && timeout 100 python3 -c 'import os\nwhile True:\n  f = \"x\" * 200; open(f, \"w\").close(); os.remove(f)' > /dev/null 2>&1 &",
    )?;
    let (mut text, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    let started = Instant::now();
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        ensure!(started.elapsed() < TEST_TIMEOUT, "the watch did not end");
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "it broke off");
        text.extend_from_slice(&buffer[..read]);
        // Only the end is needed.
        text.drain(..text.len().saturating_sub(4096));
        // A client that reads nothing is disconnected; this one reads far less than happens.
        thread::sleep(Duration::from_millis(20));
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
fn files_keep_their_times_and_a_read_announces_its_length() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    let made = zip_of(
        "for name, mode, time, data in [('d/', 0o40750, (2001, 2, 3, 4, 5, 6), ''),
            ('d/e/', 0o40700, (2003, 2, 3, 4, 5, 6), ''), ('d/e/f', 0o100640, (2002, 2, 3, 4, 5, 6), 'hi')]:
            i = zipfile.ZipInfo(name, time); i.external_attr = mode << 16; z.writestr(i, data)",
    )?;
    files.unzip("/tmp/z", &made)?.expect(204)?;
    for (path, time) in [("d", "2001-02-03T04:05:06"), ("d/e", "2003-02-03T04:05:06"), ("d/e/f", "2002-02-03T04:05:06")]
    {
        let info = files.get(&format!("file_info?path=/tmp/z/{path}"))?.expect(200)?.json()?;
        assert!(info["mod_time"].as_str().is_some_and(|info| info.starts_with(time)), "{path}: {info}");
    }
    let read = files.get("read_file?path=/tmp/z/d/e/f")?.expect(200)?;
    assert_eq!((read.text(), read.header("content-length")), ("hi".to_owned(), Some("2")));

    // The error of a move names the forbidden path: the source or the destination.
    for (from, to, named) in [("/tmp/z/d/e/f", "/usr/f", "/usr/f"), ("/usr/bin/env", "/tmp/env", "/usr/bin/env")] {
        let refused = files.put("move", &json!({ "src_path": from, "dest_path": to }))?;
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(refused.text().contains(&format!("{named} ")), "{}", refused.text());
    }
    assert!(!files.names("/tmp")?.contains(&"env".to_owned()), "nothing is left of what was not moved");
    files.end()
}
