//! Tests of an object store for the stored files: what is kept there, what happens while it is away, and moves to it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::archives::zip_of;
use casement_test_support::program::{Cdp, ObjectStore, Options, Pages, Server, Session, program, until};
use serde_json::{Value, json};

use super::extensions::{form, send};
use super::host::{metric, sql};
use super::programs::Place;

const TEST_TIMEOUT: Duration = Duration::from_secs(180);
const REASON: &str = "the object store does not respond";

/// The variables of a server whose files are below this prefix of the bucket.
fn variables(store: &ObjectStore, prefix: &str) -> Vec<(String, String)> {
    let (id, secret) = ObjectStore::KEY;
    let url = format!("s3://{}/{prefix}", ObjectStore::BUCKET);
    let pairs = [
        ("CASEMENT_BLOB_URL", url),
        ("CASEMENT_BLOB_ENDPOINT", store.url()),
        ("AWS_ACCESS_KEY_ID", id.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// The credentials alone, for commands that name the store.
fn credentials(store: &ObjectStore) -> Vec<(String, String)> {
    variables(store, "").into_iter().filter(|(name, _)| name.starts_with("AWS")).collect()
}

fn put_page(pages: &Pages) {
    let page = "<!doctype html><title>kept</title><body style='background: green'>";
    pages.put_as("/kept", "Content-Type: text/html", page);
}

fn with_profile(save_changes: bool) -> Value {
    let profile = json!({ "name": "kept", "save_changes": save_changes });
    json!({ "headless": true, "timeout_seconds": 900, "profile": profile })
}

/// Opens the page in the session; returns what it has stored, and stores `what` unless it is empty.
fn visit(session: &Session, pages: &Pages, what: &str) -> anyhow::Result<Value> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/kept"))?;
    let stored = cdp.evaluate(&page, "document.cookie")?;
    if !what.is_empty() {
        cdp.evaluate(&page, &format!("document.cookie = 'kept={what}; max-age=9999'"))?;
    }
    Ok(stored)
}

fn end(server: &Server, session: &Session) -> anyhow::Result<()> {
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

fn until_all_saved(server: &Server) -> anyhow::Result<()> {
    until("everything is saved", TEST_TIMEOUT, || {
        (sql(server, "select count(*) from browsers where state = 'ending'").ok()? == "0").then_some(())
    })
}

/// Stores an extension with this many bytes that cannot be compressed.
fn new_extension(server: &Server, name: &str, bytes: usize) -> anyhow::Result<Vec<u8>> {
    let entries = "import random\nz.writestr('noise', random.Random(7).randbytes(BYTES))\n\
        z.writestr('manifest.json', json.dumps({'manifest_version': 3, 'name': 'x', 'version': '1'}))";
    let archive = zip_of(&entries.replace("BYTES", &bytes.to_string()))?;
    send(server, form("/extensions", &[("name", name)], &[("file", &archive)]))?.expect(201)?;
    Ok(archive)
}

fn is_stored(server: &Server, name: &str, archive: &[u8]) -> anyhow::Result<()> {
    let found = server.get(&format!("/extensions/{name}"))?.expect(200)?;
    ensure!(found.body == archive, "the extension {name} is another one");
    Ok(())
}

/// Records a replay in a new session and ends the session; returns the path of the replay.
fn record(server: &Server, pages: &Pages) -> anyhow::Result<String> {
    let session = server.headless()?;
    visit(&session, pages, "")?;
    let replays = format!("/browsers/{}/replays", session.id());
    let replay = server.post(&replays, &json!({ "framerate": 5 }))?.expect(201)?.json()?;
    std::thread::sleep(Duration::from_secs(2));
    end(server, &session)?;
    Ok(format!("{replays}/{}", replay["replay_id"].as_str().context("no id")?))
}

fn has_video(server: &Server, replay: &str) -> anyhow::Result<()> {
    let video = until("the video is stored", TEST_TIMEOUT, || {
        server.get(replay).ok().filter(|answer| answer.status == 200 && !answer.body.is_empty())
    })?;
    ensure!(video.body.windows(4).any(|word| word == b"ftyp"), "it is no video");
    Ok(())
}

/// Checks that a call fails in time, because the store is away.
fn is_refused(server: &Server, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
    let refused = server.send(method, path, body)?;
    let text = refused.text();
    ensure!(refused.status == 503 && text.contains(REASON) && text.contains("unavailable"), "{path}: {text}");
    Ok(())
}

#[test]
fn profiles_extensions_replays_and_apps_are_in_the_store_and_wait_for_it() -> anyhow::Result<()> {
    let (mut store, pages) = (ObjectStore::start()?, Pages::start()?);
    put_page(&pages);
    let options = Options { variables: variables(&store, "installation"), ..Options::reaching(&pages) };
    let mut server = Server::start(options)?;
    server.post("/profiles", &json!({ "name": "kept" }))?.expect(201)?;
    let session = server.create(&with_profile(true))?;
    visit(&session, &pages, "first")?;
    end(&server, &session)?;
    let archive = new_extension(&server, "stored", 100_000)?;
    let replay = record(&server, &pages)?;
    has_video(&server, &replay)?;
    let place = Place::new(&server, "blobs")?.project().to_owned();
    Place::of(&server, &place).running("1.0.0")?;
    let names = store.names("installation/")?;
    for folder in ["artifacts", "extensions", "profiles", "replays", "store-id"] {
        ensure!(names.iter().any(|name| name.starts_with(&format!("installation/{folder}"))), "{folder}: {names:?}");
    }
    ensure!(!server.data_dir().join("blobs").exists(), "nothing is in the data directory");

    // Another node, or a new disk: what is unpacked of an app is only a cache.
    server.stop()?;
    fs::remove_dir_all(server.data_dir().join("apps/artifacts"))?;
    server.restart()?;
    let echoed = Place::of(&server, &place).invoke("1.0.0", "echo", &json!({ "payload": "\"again\"" }))?.json()?;
    ensure!(echoed["status"] == "succeeded", "{echoed}");

    let before = server.create(&with_profile(true))?;
    assert_eq!(visit(&before, &pages, "second")?, "kept=first");
    let recorded = server.headless()?;
    visit(&recorded, &pages, "")?;
    let replays = format!("/browsers/{}/replays", recorded.id());
    let unsaved = server.post(&replays, &json!({ "framerate": 5 }))?.expect(201)?.json()?;
    store.stop();
    is_refused(&server, "GET", "/extensions/stored", None)?;
    is_refused(&server, "POST", "/browsers", Some(&with_profile(false)))?;
    is_refused(&server, "GET", &replay, None)?;
    let ready = server.get("/readyz")?.expect(200)?.json()?;
    ensure!(ready["status"] == "degraded" && ready["detail"].to_string().contains(REASON), "{ready}");
    // Sessions go on and end, and a restart does not lose what is to be saved.
    visit(&before, &pages, "third")?;
    end(&server, &before)?;
    end(&server, &recorded)?;
    until("it is told", TEST_TIMEOUT, || {
        let waiting = metric(&server, "casement_browsers_pending_removal ").ok()??;
        (waiting >= 2.0 && metric(&server, "casement_blob_store_up 0").ok()?.is_some()).then_some(())
    })?;
    ensure!(server.log().contains("pending saves are kept and retried"), "the log says nothing");
    server.kill()?;
    server.restart()?;
    is_refused(&server, "GET", "/extensions/stored", None)?;

    store.restart()?;
    until_all_saved(&server)?;
    has_video(&server, &format!("{replays}/{}", unsaved["replay_id"].as_str().context("no id")?))?;
    let after = server.create(&with_profile(false))?;
    assert_eq!(visit(&after, &pages, "")?, "kept=third");
    end(&server, &after)?;
    is_stored(&server, "stored", &archive)?;
    assert_eq!(server.get("/readyz")?.json()?, json!({ "status": "ok" }));
    ensure!(!server.log().contains(ObjectStore::KEY.1), "the log has the secret key");
    Ok(())
}

/// Returns the message of a server that does not start in a new data directory, on the database of `beside` or its own.
fn refusal(beside: Option<&Server>, variables: Vec<(String, String)>) -> anyhow::Result<String> {
    let folder = tempfile::Builder::new().prefix("casement-blobs-").tempdir_in("/tmp")?;
    // The account of the database must be able to pass through.
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    let mut command = Command::new(program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--spares", "0", "--no-default-pool", "--data-dir"]);
    command.arg(folder.path().join("data")).env("CASEMENT_CONFIG", "/dev/null").envs(variables);
    command.env_remove("CASEMENT_DATABASE_URL");
    if let Some(server) = beside {
        let database = format!("postgresql://casement@/casement?host={}", server.database_socket()?);
        command.args(["--database-url", &database]);
        fs::create_dir(folder.path().join("data"))?;
        fs::copy(server.data_dir().join("master-key"), folder.path().join("data/master-key"))?;
    }
    let output = command.output()?;
    ensure!(output.status.code() == Some(1), "{}", output.status);
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_server_whose_files_are_elsewhere_than_those_of_its_database_is_refused() -> anyhow::Result<()> {
    let store = ObjectStore::start()?;
    let first = Server::start(Options::default())?;
    drop(first.another(Options::default())?);
    let refused = refusal(Some(&first), Vec::new())?;
    ensure!(
        refused.contains("is not the store of this database") && refused.contains("casement blobs move"),
        "{refused}"
    );
    let refused = refusal(Some(&first), variables(&store, "a"))?;
    ensure!(refused.contains("is not the store of this database"), "{refused}");

    let second = Server::start(Options { variables: variables(&store, "b"), ..Options::default() })?;
    let refused = refusal(None, variables(&store, "b"))?;
    ensure!(refused.contains("another database"), "{refused}");
    drop(second.another(Options { variables: variables(&store, "b"), ..Options::default() })?);
    Ok(())
}

#[test]
fn a_move_that_was_killed_goes_on_and_changes_the_store_when_all_is_there() -> anyhow::Result<()> {
    let store = ObjectStore::start()?;
    let mut server = Server::start(Options { variables: credentials(&store), ..Options::default() })?;
    // One of them is copied in parts.
    let archive =
        |n: usize| new_extension(&server, &format!("stored-{n}"), if n == 0 { 12_000_000 } else { 1_500_000 });
    let archives = (0..40).map(archive).collect::<anyhow::Result<Vec<_>>>()?;
    let move_to = |server: &Server, words: &[&str]| {
        let mut command = server.command(&["blobs", "move"]);
        command.args(["--blob-endpoint", &store.url()]).args(words).env_remove("CASEMENT_BLOB_ENDPOINT");
        command
    };
    let printed = |mut command: Command| -> anyhow::Result<(bool, String)> {
        let output = command.output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
    };
    let to = format!("s3://{}/moved", ObjectStore::BUCKET);
    let (done, text) = printed(move_to(&server, &["--to", &to]))?;
    ensure!(!done && text.contains("a server runs on this database"), "{text}");

    // Killed with the first copies; the server goes on as before.
    server.stop()?;
    let mut moving = move_to(&server, &["--to", &to]).spawn()?;
    until("something is copied", TEST_TIMEOUT, || (!store.names("moved/extensions/").ok()?.is_empty()).then_some(()))?;
    moving.kill()?;
    moving.wait()?;
    ensure!(store.names("moved/extensions/")?.len() < archives.len(), "it was done before it was killed");
    server.restart()?;
    is_stored(&server, "stored-39", &archives[39])?;
    server.stop()?;

    let (done, text) = printed(move_to(&server, &["--to", &to]))?;
    ensure!(done && text.contains("moved: 40 blobs"), "{text}");
    let (done, text) = printed(move_to(&server, &["--to", &to, "--delete-source"]))?;
    ensure!(done, "{text}");
    ensure!(fs::read_dir(server.data_dir().join("blobs/extensions"))?.count() == 0, "the source has files");
    let refused = server.restart().err().context("it has started")?;
    ensure!(format!("{refused:#}").contains("is not the store of this database"), "{refused:#}");
    server.kill().ok();
    server.set_variables(variables(&store, "moved"));
    server.restart()?;
    for (n, archive) in archives.iter().enumerate() {
        is_stored(&server, &format!("stored-{n}"), archive)?;
    }

    server.stop()?;
    let back = server.data_dir().join("blobs").display().to_string();
    let (done, text) = printed(move_to(&server, &["--from", &to, "--to", &back, "--delete-source"]))?;
    ensure!(done, "{text}");
    ensure!(store.names("moved/")?.is_empty(), "the source has objects");
    server.set_variables(credentials(&store));
    server.restart()?;
    is_stored(&server, "stored-0", &archives[0])?;
    Ok(())
}

#[test]
fn a_backup_has_what_is_in_the_store_and_is_restored_into_another_one() -> anyhow::Result<()> {
    let store = ObjectStore::start()?;
    let server = Server::start(Options { variables: variables(&store, "a"), ..Options::default() })?;
    let archive = new_extension(&server, "stored", 9_000_000)?;
    let root = tempfile::Builder::new().prefix("casement-blobs-").tempdir_in("/tmp")?;
    fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    let path = |name: &str| root.path().join(name);
    fs::write(path("passphrase"), "a passphrase for tests")?;
    let run = |command: &mut Command| -> anyhow::Result<(bool, String)> {
        let output = command.arg("--passphrase-file").arg(path("passphrase")).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
    };
    let (done, text) = run(server.command(&["backup"]).arg(path("wrong")).env("CASEMENT_BLOB_URL", "s3://records/b"))?;
    ensure!(!done && text.contains("is not the store of this database"), "{text}");
    let (done, text) = run(server.command(&["backup"]).arg(path("backup")))?;
    ensure!(done && text.contains("blobs: 1,"), "{text}");

    let restore = |prefix: &str| {
        let mut command = Command::new(program());
        command.arg("restore").arg(path("backup")).arg("--data-dir").arg(path("data"));
        command.env_remove("CASEMENT_DATABASE_URL").env("CASEMENT_CONFIG", "/dev/null").envs(variables(&store, prefix));
        command
    };
    let (done, text) = run(&mut restore("a"))?;
    ensure!(!done && text.contains("has the stored files of a database"), "{text}");
    let (done, text) = run(&mut restore("c"))?;
    ensure!(done, "{text}");
    let options = Options { data_dir: Some(path("data")), variables: variables(&store, "c"), ..Options::default() };
    is_stored(&Server::start(options)?, "stored", &archive)?;
    is_stored(&server, "stored", &archive)
}
