//! Tests of `casement backup` and `casement restore`, and of the backups of earlier releases in `tests/backups`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::archives::{zip, zip_of};
use casement_test_support::program::{Cdp, Options, Pages, Server, program, until};
use serde_json::{Value, json};

use super::extensions::{form, send};
use super::host::{end_reason, sql};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The passphrase of the backups in `tests/backups`.
const PASSPHRASE: &str = "a passphrase for tests";

/// A folder for backups and restored data directories.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> anyhow::Result<Self> {
        let root = tempfile::Builder::new().prefix("casement-backup-").tempdir_in("/tmp")?;
        // The account of the database must be able to pass through.
        fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
        fs::write(root.path().join("passphrase"), PASSPHRASE)?;
        Ok(Self { root })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns everything that a command printed; as an error if it failed.
    fn run(&self, command: &mut Command) -> anyhow::Result<Result<String, String>> {
        command.arg("--passphrase-file").arg(self.path("passphrase")).stdin(Stdio::null());
        let output = command.output()?;
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok(if output.status.success() { Ok(printed) } else { Err(printed) })
    }

    fn back_up(&self, server: &Server, name: &str) -> anyhow::Result<Result<String, String>> {
        self.run(server.command(&["backup"]).arg(self.path(name)))
    }

    /// Restores a backup into the data directory `data`.
    fn restore(&self, backup: &Path, more: &[&str]) -> anyhow::Result<Result<String, String>> {
        let mut command = Command::new(program());
        command.arg("restore").arg(backup).arg("--data-dir").arg(self.path("data")).args(more);
        self.run(command.env_remove("CASEMENT_DATABASE_URL").env("CASEMENT_CONFIG", "/dev/null"))
    }

    /// Returns the message of a refused restore, which must have changed nothing.
    fn refused(&self, backup: &Path) -> anyhow::Result<String> {
        let message = self.restore(backup, &[])?.err().context("it was restored")?;
        ensure!(!self.path("data").exists(), "{message}: the data directory exists");
        Ok(message)
    }

    /// Starts a server on the restored data directory.
    fn serve(&self) -> anyhow::Result<Server> {
        Server::start(Options { data_dir: Some(self.path("data")), ..Options::default() })
    }

    /// Copies a backup, so that it can be changed.
    fn copy(&self, backup: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let copy = self.path(name);
        ensure!(Command::new("cp").arg("-r").args([backup, &copy]).status()?.success());
        Ok(copy)
    }
}

/// Returns the backups of releases, the oldest first.
fn released() -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/backups");
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    found.retain(|path| path.is_dir());
    found.sort_unstable();
    ensure!(!found.is_empty(), "there is no backup of a release");
    Ok(found)
}

fn ok(done: Result<String, String>) -> anyhow::Result<String> {
    done.map_err(anyhow::Error::msg)
}

fn new_credential(server: &Server) -> anyhow::Result<()> {
    let credential = json!({
        "name": "shop", "domain": "shop.example", "values": { "username": "me", "password": "hunter2" },
        "totp_secret": "gezdgnbvgy3tqojq",
    });
    server.post("/credentials", &credential)?.expect(201).map(drop)
}

/// Returns true if the server opens the sealed secret.
fn opens_credential(server: &Server) -> anyhow::Result<bool> {
    let code = server.get("/credentials/shop/totp-code")?.expect(200)?.json()?;
    Ok(code["code"].as_str().is_some_and(|code| code.len() == 6))
}

fn new_extension(server: &Server) -> anyhow::Result<Vec<u8>> {
    let archive = zip(&[("manifest.json", r#"{"manifest_version":3,"name":"x","version":"1"}"#)])?;
    send(server, form("/extensions", &[("name", "stored")], &[("file", &archive)]))?.expect(201)?;
    Ok(archive)
}

fn download(server: &Server, path: &str) -> anyhow::Result<Vec<u8>> {
    Ok(server.get(path)?.expect(200)?.body)
}

/// Saves a cookie in a new profile, and returns the download of the profile.
fn new_profile(server: &Server, pages: &Pages) -> anyhow::Result<Vec<u8>> {
    server.post("/profiles", &json!({ "name": "login" }))?.expect(201)?;
    let empty = download(server, "/profiles/login/download")?;
    let profile = json!({ "name": "login", "save_changes": true });
    let session = server.create(&json!({ "headless": true, "timeout_seconds": 600, "profile": profile }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/form"))?;
    cdp.evaluate(&page, "document.cookie = 'stays=here; max-age=9999'")?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    until("the profile is saved", TEST_TIMEOUT, || {
        download(server, "/profiles/login/download").ok().filter(|saved| saved.len() > empty.len())
    })
}

#[test]
fn a_backup_of_a_running_server_is_a_complete_installation_elsewhere() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let server = Server::start(Options::reaching(&pages))?;
    let profile = new_profile(&server, &pages)?;
    let extension = new_extension(&server)?;
    new_credential(&server)?;
    let session = server.headless()?;
    let place = Place::new()?;

    let printed = ok(place.back_up(&server, "backup")?)?;

    ensure!(printed.contains("blobs: 2, ") && printed.contains("api-key, master-key, node-id"), "{printed}");
    let again = place.back_up(&server, "backup")?.err().context("it was overwritten")?;
    ensure!(again.contains("is not empty"), "{again}");
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    assert_eq!(cdp.evaluate(&page, "1 + 1")?, 2, "the session continues");

    ok(place.restore(&place.path("backup"), &[])?)?;
    let restored = place.serve()?;

    assert_eq!(restored.key(), server.key());
    assert!(download(&restored, "/profiles/login/download")? == profile, "the profile is another one");
    assert!(download(&restored, "/extensions/stored")? == extension, "the extension is another one");
    assert!(opens_credential(&restored)?);
    restored.get(&format!("/browsers/{}", session.id()))?.expect(404)?;
    assert_eq!(end_reason(&restored, session.id())?, "crashed");
    assert_eq!(end_reason(&server, session.id())?, "", "the session of the first server continues");
    Ok(())
}

#[test]
fn a_backup_during_uploads_and_deletions_has_the_bytes_of_every_row() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let manifest = r#"z.writestr('manifest.json', '{"manifest_version":3,"name":"x","version":"1"}')"#;
    let archive = zip_of(&format!("{manifest}\nimport os; z.writestr('filler', os.urandom(1 << 18))"))?;
    let upload = |name: &str| send(&server, form("/extensions", &[("name", name)], &[("file", &archive)]));
    for n in 0..10 {
        upload(&format!("stays-{n}"))?.expect(201)?;
    }
    let (place, done) = (Place::new()?, AtomicBool::new(false));

    thread::scope(|scope| {
        let churn = scope.spawn(|| -> anyhow::Result<u32> {
            let mut count = 0;
            while !done.load(Ordering::Relaxed) {
                upload("comes-and-goes")?.expect(201)?;
                server.delete("/extensions/comes-and-goes")?.expect(204)?;
                count += 1;
            }
            Ok(count)
        });
        let made = (0..2).try_for_each(|n| ok(place.back_up(&server, &format!("backup-{n}"))?).map(drop));
        done.store(true, Ordering::Relaxed);
        let count = churn.join().map_err(|_| anyhow::anyhow!("the uploads panicked"))??;
        ensure!(count > 0, "only {count} extensions came and went");
        made
    })?;

    for n in 0..2 {
        ok(place.restore(&place.path(&format!("backup-{n}")), &[])?)?;
        let restored = place.serve()?;
        let listed = restored.get("/extensions?limit=100")?.expect(200)?.json()?;
        let listed = listed.as_array().context("a list")?.clone();
        ensure!(listed.len() >= 10, "{n}: {} extensions", listed.len());
        for extension in listed {
            let id = extension["id"].as_str().context("an id")?;
            ensure!(download(&restored, &format!("/extensions/{id}"))? == archive, "{n}: {extension}");
        }
    }
    Ok(())
}

#[test]
fn a_backup_without_a_server_is_restored_into_a_database_elsewhere() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    new_credential(&server)?;
    let place = Place::new()?;
    new_extension(&server)?;
    ensure!(server.stop()?.success());
    fs::remove_dir_all(server.data_dir().join("blobs/extensions"))?;
    let printed = ok(place.back_up(&server, "backup")?)?;
    ensure!(printed.contains("warning: the blob extensions/") && printed.contains("blobs: 0, "), "{printed}");
    ensure!(server.processes().is_empty(), "the database of the command still runs");
    server.restart()?;

    sql(&server, "create database copy")?;
    let url = format!("postgresql://casement@/copy?host={}", server.database_socket()?);
    ok(place.restore(&place.path("backup"), &["--database-url", &url])?)?;

    ensure!(!place.path("data/postgres").exists(), "a private cluster was created");
    let listed = |name: &str| -> anyhow::Result<Vec<u8>> {
        let command = Command::new(program())
            .args(["keys", "list", "--database-url", &url, "--data-dir"])
            .arg(place.path(name))
            .env("CASEMENT_CONFIG", "/dev/null")
            .output()?;
        Ok(command.stdout)
    };
    ensure!(String::from_utf8(listed("data")?)?.contains("first key"));
    fs::remove_dir_all(place.path("data"))?;
    let message = place.restore(&place.path("backup"), &["--database-url", &url])?.err().context("restored twice")?;
    ensure!(message.contains("has tables already") && !place.path("data").exists(), "{message}");
    Ok(())
}

#[test]
fn backups_of_earlier_releases_are_restored() -> anyhow::Result<()> {
    for backup in released()? {
        let place = Place::new()?;
        ok(place.restore(&backup, &[])?).with_context(|| backup.display().to_string())?;
        let server = place.serve()?;
        ensure!(opens_credential(&server)?, "{}", backup.display());
        ensure!(download(&server, "/extensions/stored")?.starts_with(b"PK"), "{}", backup.display());
    }
    Ok(())
}

#[test]
fn a_backup_that_is_damaged_or_not_for_this_target_changes_nothing() -> anyhow::Result<()> {
    let backup = released()?.pop().context("a backup")?;
    let place = Place::new()?;

    let damaged = place.copy(&backup, "damaged")?;
    let mut dump = fs::read(damaged.join("database.dump"))?;
    *dump.last_mut().context("a dump")? ^= 1;
    fs::write(damaged.join("database.dump"), dump)?;
    ensure!(place.refused(&damaged)?.contains("the backup's database.dump is damaged"));
    fs::remove_file(damaged.join("database.dump"))?;
    ensure!(place.refused(&damaged)?.contains("database.dump: No such file"));

    // An intruder who replaces a part and its checksum does not know the passphrase.
    let forged = place.copy(&backup, "forged")?;
    change(&forged, |manifest| manifest["created_at"] = json!("2020-01-01T00:00:00Z"))?;
    ensure!(place.refused(&forged)?.contains("the passphrase is wrong, or the sealed data was altered"));
    change(&forged, |manifest| manifest["casement"] = json!("99.0.0"))?;
    ensure!(place.refused(&forged)?.contains("casement 99.0.0 made it"));
    ensure!(place.refused(&place.path("nothing"))?.contains("is no backup"));

    fs::write(place.path("passphrase"), "another passphrase")?;
    ensure!(place.refused(&backup)?.contains("the passphrase is wrong"));
    fs::write(place.path("passphrase"), "short")?;
    ensure!(place.refused(&backup)?.contains("at least 12 characters"));

    fs::write(place.path("passphrase"), PASSPHRASE)?;
    fs::create_dir(place.path("data"))?;
    fs::write(place.path("data/file"), "mine")?;
    let message = place.restore(&backup, &[])?.err().context("it was restored")?;
    ensure!(message.contains("has files already"), "{message}");
    ensure!(fs::read_dir(place.path("data"))?.count() == 1, "something was added");
    Ok(())
}

/// Changes the manifest of a backup.
fn change(backup: &Path, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
    let path = backup.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path)?)?;
    change(&mut manifest);
    Ok(fs::write(path, manifest.to_string())?)
}
