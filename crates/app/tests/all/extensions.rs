//! Tests of extensions: with the public client, from the web store, with malicious archives, and with a killed server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::archives::python;
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Cdp, Clients, Options, Pages, Server, Session, Shared, until};
use serde_json::json;

const TEST_TIMEOUT: Duration = Duration::from_secs(180);

fn every_call_works(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(
        server,
        "crates/app/tests/scripts/extensions.py",
        &[&pages.url(""), if headless { "true" } else { "false" }],
    )?;

    let invalid = |fields: &[&str]| {
        let mut report = vec!["BadRequestError", "invalid_input"];
        report.extend(fields);
        json!(report)
    };
    let saw = json!({
        "taken": ["ConflictError", "name_conflict"],
        "deleted": [["NotFoundError", "not_found"], ["NotFoundError", "not_found"]],
        "names": [invalid(&["name not_allowed"]), invalid(&["name invalid_format"]), invalid(&["name invalid_format"])],
        "no archive": invalid(&["file invalid_format"]),
        "no manifest": invalid(&["file invalid_format"]),
        "too large": ["APIStatusError", "payload_too_large"],
        "unknown": invalid(&["extensions[2] required"]),
        "closed": [4004, "browser_restarted"],
        "kept": "logged=in here",
        "load": [
            invalid(&["extensions required"]),
            invalid(&["extensions[0].name invalid_format"]),
            invalid(&["extensions[0].zip_file invalid_format"]),
            invalid(&["extensions[1].name not_allowed"]),
            invalid(&["extensions too_many"]),
            invalid(&["extensions[1].zip_file invalid_format"]),
        ],
        "chromium": invalid(&["extensions not_allowed"]),
        "closed again": [4004, "browser_restarted"],
        "in use": ["ConflictError", "resource_in_use"],
        "left": [],
        "store": [invalid(&["url blocked"]), invalid(&["url invalid_format"])],
        "os": invalid(&["os not_allowed"]),
    });
    let report = run.json()?;
    for (what, wanted) in saw.as_object().into_iter().flatten() {
        assert_eq!(&report[what], wanted, "{what}");
    }
    assert_eq!(report.as_object().map(serde_json::Map::len), saw.as_object().map(serde_json::Map::len));
    Ok(())
}

#[test]
fn every_call_of_the_python_client_for_extensions_works_without_a_display() -> anyhow::Result<()> {
    every_call_works(true)
}

#[test]
fn every_call_of_the_python_client_for_extensions_works_with_a_display() -> anyhow::Result<()> {
    every_call_works(false)
}

const MANIFEST: &str = r#"'{"manifest_version":3,"name":"x","version":"1"}'"#;

/// Returns a form in the format of the public client, with the texts first.
pub(super) fn form(path: &str, texts: &[(&str, &str)], files: &[(&str, &[u8])]) -> Request {
    let mut body = Vec::new();
    for (name, text) in texts {
        write!(body, "--edge\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n").unwrap();
    }
    for (name, bytes) in files {
        write!(
            body,
            "--edge\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"upload\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .unwrap();
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--edge--\r\n");
    let request = Request::new("POST", path).header("Content-Type", "multipart/form-data; boundary=edge");
    Request { body: Some(body), ..request }
}

pub(super) fn send(server: &Server, request: Request) -> anyhow::Result<Answer> {
    request.bearer(server.key()).send(server.address())
}

#[test]
fn hostile_archives_are_refused_before_anything_is_stored() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let session = server.headless()?;
    let zip = |lines: &str| {
        format!(
            "with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as z:\n  z.writestr('manifest.json', {MANIFEST})\n{lines}"
        )
    };
    let link = "  i = zipfile.ZipInfo('link'); i.create_system = 3; i.external_attr = 0o120777 << 16; z.writestr(i, '/etc/passwd')";
    let device = link.replace("0o120777", "0o020666");
    for (what, lines) in [
        ("traversal", zip("  z.writestr('../../out', 'x')")),
        ("traversal inside", zip("  z.writestr('a/../../out', 'x')")),
        ("absolute", zip("  z.writestr('/etc/out', 'x')")),
        ("another system's absolute", zip("  z.writestr('C:/out', 'x')")),
        ("another system's path", zip("  z.writestr('a\\\\..\\\\out', 'x')")),
        ("a link", zip(link)),
        ("a device", zip(&device)),
        ("twice", zip("  z.writestr('a', 'x'); z.writestr('a', 'y')")),
        ("below a file", zip("  z.writestr('a', 'x'); z.writestr('a/b', 'y')")),
        ("a bomb", zip("  [z.writestr(f'{n}', bytes(64 << 20)) for n in range(10)]")),
        ("many", zip("  [z.writestr(f'{n}', '') for n in range(20001)]")),
        ("deep", zip("  z.writestr('/'.join('d' * 40), '')")),
        ("long", zip("  z.writestr('n' * 300, '')")),
        ("bzip2", zip("  z.writestr('a', 'x' * 100, compress_type=zipfile.ZIP_BZIP2)")),
        ("cut", zip("  z.writestr('a', bytes(1000))\nout = io.BytesIO(out.getvalue()[:-30])")),
        (
            "changed",
            zip(
                "  z.writestr('a', 'x' * 50, compress_type=0)\nout = io.BytesIO(out.getvalue().replace(b'x' * 50, b'y' * 50))",
            ),
        ),
        (
            "a size that lies",
            zip("  z.writestr('a', bytes(1 << 20))\n\
                 b = bytearray(out.getvalue()); at = b.rfind(b'PK\\x01\\x02')\nb[at + 24:at + 28] = struct.pack('<I', 10)\n\
                 out = io.BytesIO(bytes(b))"),
        ),
        ("no manifest", "with zipfile.ZipFile(out, 'w') as z:\n  z.writestr('a/b/manifest.json', '{}')".to_owned()),
        (
            "two folders",
            format!(
                "with zipfile.ZipFile(out, 'w') as z:\n  z.writestr('a/manifest.json', {MANIFEST}); z.writestr('b/x', '')"
            ),
        ),
        ("empty", "with zipfile.ZipFile(out, 'w') as z:\n  pass".to_owned()),
        ("nothing", String::new()),
    ] {
        let archive = python(&lines).context(what)?;
        let refused = send(server, form("/extensions", &[("name", "hostile")], &[("file", &archive)]))?;
        ensure!(refused.status == 400, "{what}: {} {}", refused.status, refused.text());
        ensure!(refused.json()?["code"] == "invalid_input", "{what}: {}", refused.text());
        let path = format!("/browsers/{}/extensions", session.id());
        let texts = [("extensions[][name]", "hostile")];
        let refused = send(server, form(&path, &texts, &[("extensions[][zip_file]", &archive)]))?;
        ensure!(refused.status == 400, "{what}, loaded: {} {}", refused.status, refused.text());
    }
    for (texts, files) in [(2, 1), (1, 2), (0, 1)] {
        let archive = python(&zip(""))?;
        let texts: Vec<_> = (0..texts).map(|n| ("extensions[][name]", ["a", "b"][n])).collect();
        let files = vec![("extensions[][zip_file]", archive.as_slice()); files];
        let refused = send(server, form(&format!("/browsers/{}/extensions", session.id()), &texts, &files))?;
        ensure!(refused.status == 400, "{texts:?}: {}", refused.text());
    }
    assert_eq!(server.get("/extensions?name=hostile")?.json()?, json!([]));
    let stored = std::fs::read_dir(server.data_dir().join("blobs")).into_iter().flatten().flatten();
    let folders = ["artifacts", "deployments", "extensions", "profiles", "replays", "store-id"];
    let stored: Vec<_> =
        stored.map(|entry| entry.file_name()).filter(|name| !folders.iter().any(|folder| name == folder)).collect();
    ensure!(stored.is_empty(), "only the folders of what is kept are there: {stored:?}");
    // The session is unaffected.
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    assert_eq!(cdp.evaluate(&page, "6 * 7")?, 42);
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

/// Starts a web store that redirects, like the real one, and then serves one packed extension.
fn store(packed: Vec<u8>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop(serve(&stream, &packed));
        }
    });
    Ok(address)
}

fn serve(mut stream: &TcpStream, packed: &[u8]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    if first.contains("id%3Dpppppppp") {
        return stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
    }
    if first.contains("id%3Doooooooo") {
        return stream
            .write_all(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/secret\r\ncontent-length: 0\r\n\r\n");
    }
    if first.starts_with("GET /crx?") && first.contains("id%3Dabcdefgh") && first.contains("os=win") {
        return stream.write_all(b"HTTP/1.1 302 Found\r\nlocation: /packed\r\ncontent-length: 0\r\n\r\n");
    }
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", packed.len())?;
    stream.write_all(packed)
}

#[test]
fn a_store_extension_is_a_zip_and_comes_only_from_allowed_destinations() -> anyhow::Result<()> {
    let archive = python(&format!("with zipfile.ZipFile(out, 'w') as z:\n  z.writestr('manifest.json', {MANIFEST})"))?;
    let mut packed = b"Cr24\x03\0\0\0\x05\0\0\0proof".to_vec();
    packed.extend_from_slice(&archive);
    let store = store(packed)?;
    let flags = vec!["--web-store-url".to_owned(), format!("http://{store}/crx")];
    let server =
        Server::start(Options { egress_allow: vec![store.to_string()], flags: flags.clone(), ..Options::default() })?;
    let ask = |server: &Server, item: &str| {
        server
            .get(&format!("/extensions/from_chrome_store?os=win&url=https://chromewebstore.google.com/detail/x/{item}"))
    };
    let fetched = ask(&server, "abcdefghijklmnopabcdefghijklmnop")?.expect(200)?;
    assert_eq!(fetched.header("content-type"), Some("application/octet-stream"));
    ensure!(fetched.body == archive, "the ZIP alone");
    let bought = "import os\nfrom kernel import Kernel\n\
        client = Kernel(base_url=os.environ['CASEMENT_URL'], api_key=os.environ['CASEMENT_KEY'], max_retries=0)\n\
        url = 'https://chromewebstore.google.com/detail/x/abcdefghijklmnopabcdefghijklmnop'\n\
        client.extensions.download_from_chrome_store(url=url, os='win').write_to_file('item.zip')\n";
    let by_node = "import { writeFileSync } from 'node:fs';\nimport Kernel from '@onkernel/sdk';\n\
        const client = new Kernel({ baseURL: process.env.CASEMENT_URL, apiKey: process.env.CASEMENT_KEY, maxRetries: 0 });\n\
        const url = 'https://chromewebstore.google.com/detail/x/abcdefghijklmnopabcdefghijklmnop';\n\
        const bought = await client.extensions.downloadFromChromeStore({ url, os: 'win' });\n\
        writeFileSync('item.zip', Buffer.from(await bought.arrayBuffer()));\n";
    let [oldest, newest] = Clients::of_both_versions()?;
    for (clients, script, text) in
        [(&oldest, "bought.py", bought), (&newest, "bought.py", bought), (&oldest, "bought.mjs", by_node)]
    {
        let run = clients.run_text(&server, script, text, &[])?;
        ensure!(run.file("item.zip")? == archive, "the public client gets another one: {script}");
    }
    send(&server, form("/extensions", &[("name", "bought")], &[("file", &fetched.body)]))?.expect(201)?;
    for nowhere in ["pppppppppppppppppppppppppppppppp", "oooooooooooooooooooooooooooooooo"] {
        let refused = ask(&server, nowhere)?.expect(502)?;
        assert_eq!(refused.json()?["code"], "upstream_error");
        ensure!(!refused.text().contains("169.254"), "{}", refused.text());
    }
    drop(server);
    // The egress rules of sessions also apply to requests of the server itself.
    let walled = Server::start(Options { flags, ..Options::default() })?;
    let refused = ask(&walled, "abcdefghijklmnopabcdefghijklmnop")?.expect(502)?;
    assert_eq!(refused.json()?["code"], "upstream_error");
    Ok(())
}

fn marking(word: &str) -> anyhow::Result<Vec<u8>> {
    python(&format!(
        "m = {{'manifest_version': 3, 'name': 'x', 'version': '1', 'content_scripts': [{{'matches': ['http://*/*'], 'js': ['c.js']}}]}}\n\
         with zipfile.ZipFile(out, 'w') as z:\n  z.writestr('manifest.json', json.dumps(m))\n  \
         z.writestr('c.js', \"document.documentElement.setAttribute('data-{word}', 'seen')\")"
    ))
}

/// Waits until a new page of the session is complete, because the browser may be restarting.
fn until_shown(session: &Session, url: &str) -> anyhow::Result<()> {
    until("the session shows a page", TEST_TIMEOUT, || look(session, url).ok()).map(drop)
}

/// Waits until a new page of the session has the mark: the script of an extension may run after the page is complete.
fn until_marked(session: &Session, url: &str, word: &str) -> anyhow::Result<()> {
    let (mut cdp, page) = until("the session shows a page", TEST_TIMEOUT, || look(session, url).ok())?;
    until("the page bears the mark", TEST_TIMEOUT, || {
        let mark = format!("document.documentElement.getAttribute('data-{word}')");
        (cdp.evaluate(&page, &mark).ok()? == "seen").then_some(())
    })
}

/// Opens a new page of the session and waits until it is complete.
fn look(session: &Session, url: &str) -> anyhow::Result<(Cdp, String)> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let target = cdp.call("Target.createTarget", &json!({ "url": url }))?;
    let attach = json!({ "targetId": target["targetId"], "flatten": true });
    let page = cdp.call("Target.attachToTarget", &attach)?["sessionId"].as_str().context("no session")?.to_owned();
    let deadline = Instant::now() + Duration::from_secs(60);
    while cdp.evaluate(&page, "document.readyState == 'complete' && location.href != 'about:blank'")? != true {
        ensure!(Instant::now() < deadline, "the page does not come");
        thread::sleep(Duration::from_millis(20));
    }
    Ok((cdp, page))
}

#[test]
fn a_session_outlives_a_server_that_is_killed_during_its_browser_restart() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    let archive = marking("late")?;
    let session = server.create(&json!({ "headless": true, "timeout_seconds": 600 }))?;
    for wait in [0, 60, 150, 300, 600] {
        let path = format!("/browsers/{}/extensions", session.id());
        let name = format!("late-{wait}");
        let request = form(&path, &[("extensions[][name]", &name)], &[("extensions[][zip_file]", &archive)]);
        let (address, key) = (server.address(), server.key().to_owned());
        let loading = thread::spawn(move || request.bearer(&key).send(address).map(|answer| answer.status));
        thread::sleep(Duration::from_millis(wait));
        server.kill()?;
        let answered = loading.join().map_err(|_| anyhow::anyhow!("the caller died"))?;
        println!("killed after {wait} ms: {answered:?}");
        server.restart()?;
        // The extension may be loaded or not, depending on the time of the kill. The browser works in any case.
        until_shown(&session, &pages.url("/form"))?;
        assert_eq!(
            server.get(&format!("/browsers/{}", session.id()))?.expect(200)?.json()?["session_id"],
            session.id()
        );
    }
    let request = form(
        &format!("/browsers/{}/extensions", session.id()),
        &[("extensions[][name]", "after")],
        &[("extensions[][zip_file]", &archive)],
    );
    send(&server, request)?.expect(204)?;
    until_marked(&session, &pages.url("/form"), "late").context("loaded by the server of now")?;
    server.kill()?;
    server.restart()?;
    until_marked(&session, &pages.url("/form"), "late").context("the new browser's path was learnt again")?;
    Ok(())
}

#[test]
fn a_pool_with_an_extension_that_chromium_rejects_backs_off_and_reports_why() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let archive = python(
        "with zipfile.ZipFile(out, 'w') as z:\n  \
         z.writestr('manifest.json', '{\"manifest_version\":3,\"name\":\"x\",\"version\":\"one\"}')",
    )?;
    let stored =
        send(server, form("/extensions", &[("name", "broken")], &[("file", &archive)]))?.expect(201)?.json()?;
    let create = json!({ "headless": true, "extensions": [{ "id": stored["id"] }] });
    let refused = server.post("/browsers", &create)?.expect(400)?;
    ensure!(refused.text().contains("extensions: Chromium does not take"), "{}", refused.text());
    let pool = json!({ "name": "broken", "size": 1, "headless": true, "extensions": [{ "name": "broken" }] });
    server.post("/browser_pools", &pool)?.expect(201)?;
    until("the log says why", TEST_TIMEOUT, || {
        server
            .log()
            .lines()
            .any(|line| line.contains("a pool cannot fill") && line.contains("does not take"))
            .then_some(())
    })?;
    until("the metrics count it", TEST_TIMEOUT, || {
        let metrics = server.metrics().ok()?;
        metrics
            .lines()
            .any(|line| line.starts_with("casement_pool_blocked") && line.contains("reason=\"extension\""))
            .then_some(())
    })?;
    server.send("DELETE", "/browser_pools/broken", Some(&json!({ "force": true })))?.expect(204)?;
    server.delete("/extensions/broken")?.expect(204)?;
    Ok(())
}

#[test]
fn a_viewport_larger_than_the_display_restarts_the_browser_and_reports_it() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.create(&json!({ "timeout_seconds": 300 }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/green"))?;
    let path = format!("/browsers/{}", session.id());
    let size = json!({ "viewport": { "width": 4000, "height": 2600 } });
    let changed = server.send("PATCH", &path, Some(&size))?.expect(200)?.json()?;
    assert_eq!(changed["viewport"]["width"], 4000);
    assert_eq!(cdp.until_closed()?, Some((4004, "browser_restarted".to_owned())));
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    until("what was open is there again", TEST_TIMEOUT, || {
        let targets = cdp.call("Target.getTargets", &json!({})).ok()?;
        targets.to_string().contains(&pages.url("/green")).then_some(())
    })?;
    let picture = server.post(&format!("{path}/computer/screenshot"), &json!({}))?.expect(200)?;
    assert_eq!(casement_test_support::png_size(&picture.body), Some((4000, 2600)));
    let far = json!({ "viewport": { "width": 16384, "height": 16384 } });
    let refused = server.send("PATCH", &path, Some(&far))?.expect(400)?.json()?;
    assert_eq!(refused["details"][0]["code"], "out_of_range");
    server.delete(&path)?.expect(204)?;
    Ok(())
}
