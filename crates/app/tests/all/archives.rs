//! Tests that every endpoint that takes an archive accepts and refuses the same ones, and that files whose names are
//! not UTF-8 can be used.

use anyhow::{Context as _, ensure};
use casement_test_support::archives::{COMMON_EMPTY_DIRECTORY, COMMON_TREE, by_common_writers, records};
use casement_test_support::program::Shared;
use casement_test_support::program::http::Answer;
use serde_json::{Value, json};

use super::extensions::{form, send};
use super::files::Files;
use super::programs::{Place, python};

/// Returns the details of a response that refuses an invalid value.
fn refused(refused: &Answer) -> anyhow::Result<Value> {
    ensure!(refused.status == 400, "{} {}", refused.status, refused.text());
    Ok(refused.json()?["details"].clone())
}

/// Encodes a path for a query.
fn encoded(path: &str) -> String {
    path.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn every_endpoint_refuses_the_same_entries_with_the_same_words() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    let place = Place::new(server, "archives-refused")?;
    let load = format!("/browsers/{}/extensions", files.session.id());
    let deflate = "only stored and deflated entries can be read";
    for (entry, why) in [
        ("entry('a/../../b')", "a/../../b leads out of the archive".to_owned()),
        ("entry('/etc/passwd')", "/etc/passwd has an absolute name".to_owned()),
        ("entry('C:/a')", "C:/a has an absolute name".to_owned()),
        (r"entry('\\\\server\\share', made=DOS)", "//server/share has an absolute name".to_owned()),
        ("entry('main.py')", "main.py occurs twice".to_owned()),
        ("entry('./main.py')", "./main.py occurs twice".to_owned()),
        ("entry('main.py/x')", "main.py/x is below a file or a link".to_owned()),
        ("entry('a', flags=1)", "a is encrypted".to_owned()),
        ("entry('large', claims=9)", format!("large is compressed with deflate64 (method 9); {deflate}")),
        ("entry('a', claims=93)", format!("a is compressed with zstd (method 93); {deflate}")),
        ("entry('a', attr=0o010644 << 16)", "a is neither a file nor a directory".to_owned()),
        ("entry('a', b'/etc/passwd', attr=0o120777 << 16)", "a is a link that is not relative".to_owned()),
        ("entry('a', b'../b', attr=0o120777 << 16)", "a is a link that leads out of the archive".to_owned()),
        (r"entry(b'\xff', flags=0x800)", "\u{fffd} has a name that is marked as UTF-8 but is not UTF-8".to_owned()),
    ] {
        let manifest = COMMON_TREE[1].1;
        let program = format!(
            "out.write(archive(entry('manifest.json', {manifest:?}.encode()), entry('main.py', b'pass'), {entry}))"
        );
        let archive = records(&program).context(entry)?;
        let stored = send(server, form("/extensions", &[("name", "refused")], &[("file", &archive)]))?;
        let texts = [("extensions[0][name]", "refused")];
        let loaded = send(server, form(&load, &texts, &[("extensions[0][zip_file]", &archive)]))?;
        let unpacked = files.unzip("/tmp/refused", &archive)?;
        let deployed = place.form(&[("entrypoint_rel_path", b"main.py"), ("file", &archive)]);
        let deployed = deployed.send(server.address())?;
        for (answer, field) in
            [(stored, "file"), (loaded, "extensions[0].zip_file"), (unpacked, "zip_file"), (deployed, "file")]
        {
            let message = format!("{field}: the archive's entry {why}");
            let expected = json!([{ "code": "invalid_format", "message": message }]);
            assert_eq!(refused(&answer).context(entry)?, expected, "{entry}");
        }
    }
    assert_eq!(files.get("file_info?path=/tmp/refused")?.status, 404, "nothing remains");
    files.end()
}

#[test]
fn every_endpoint_accepts_the_archives_of_common_writers() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    for (number, (writer, archive)) in by_common_writers()?.into_iter().enumerate() {
        let to = format!("/tmp/{number}");
        files.unzip(&to, &archive)?.expect(204).context(writer.clone())?;
        let mut expected = ["main.py", "manifest.json", "sub", COMMON_EMPTY_DIRECTORY];
        expected.sort_unstable();
        assert_eq!(files.names(&to)?, expected, "{writer}");
        for (name, content) in COMMON_TREE {
            let read = files.get(&format!("read_file?path={}", encoded(&format!("{to}/{name}"))))?;
            assert_eq!(read.expect(200)?.text(), *content, "{writer}: {name}");
        }
        let name = format!("writer-{number}");
        let stored = send(server, form("/extensions", &[("name", &name)], &[("file", &archive)]))?;
        stored.expect(201).context(writer.clone())?;
        // Chromium itself reads the extensions of those whose archives have more or other entries than others.
        if ["macOS Archive Utility", ".NET Framework 4.5", "bsdtar"].contains(&writer.as_str()) {
            let load = format!("/browsers/{}/extensions", files.session.id());
            let texts = [("extensions[0][name]", name.as_str())];
            send(server, form(&load, &texts, &[("extensions[0][zip_file]", &archive)]))?.expect(204).context(writer)?;
        }
        server.delete(&format!("/extensions/{name}"))?.expect(204)?;
    }
    files.end()
}

#[test]
fn an_app_from_windows_has_its_folders_and_one_from_unix_its_names() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let place = Place::new(server, "archives-deployed")?;
    let main = "
import os
import kernel
from lib.names import TEXT

app = kernel.App('shop')

@app.action('names')
def names(context):
    return [TEXT] + sorted(repr(name) for name in os.listdir(os.path.dirname(__file__).encode() + b'/data'))
";
    let files = serde_json::to_string(&python(main))?;
    let program = format!(
        "files = json.loads({files:?})\n\
         out.write(archive(*[entry(name, text.encode(), made=DOS) for name, text in files],\n\
         entry('lib\\\\names.py', b\"TEXT = 'read'\", made=DOS), entry('data\\\\Übung'.encode('utf-8'), made=DOS),\n\
         entry('data/Für'.encode('cp437'), made=DOS), entry(b'data/caf\\xe9')))"
    );
    let archive = records(&program)?;
    let parts: [(&str, &[u8]); 3] = [("entrypoint_rel_path", b"main.py"), ("version", b"1"), ("file", &archive)];
    let made = place.form(&parts).send(server.address())?.expect(201)?.json()?;
    place.until_running(made["id"].as_str().context("no id")?)?;
    let done = place.invoke("1", "names", &json!({}))?.json()?;
    let output: Value = serde_json::from_str(done["output"].as_str().with_context(|| done.to_string())?)?;
    assert_eq!(output, json!(["read", r"b'F\xc3\xbcr'", r"b'\xc3\x9cbung'", r"b'caf\xe9'"]));
    Ok(())
}

#[test]
fn a_file_whose_name_is_not_utf_8_is_used_by_the_name_that_is_listed() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let files = Files::new(server, None)?;
    files.run(r"mkdir -p /tmp/raw; printf content > /tmp/raw/$(printf 'caf\351.txt')")?;
    let archive = records(r"out.write(archive(entry(b'sp\xe4t', b'unpacked')))")?;
    files.unzip("/tmp/raw", &archive)?.expect(204)?;
    assert_eq!(files.names("/tmp/raw")?, ["caf\u{efe9}.txt", "sp\u{efe4}t"]);

    let listed = files.get("list_files?path=/tmp/raw")?.expect(200)?.json()?;
    let path = listed[0]["path"].as_str().context("no path")?;
    let info = files.get(&format!("file_info?path={}", encoded(path)))?.expect(200)?.json()?;
    assert_eq!(info, listed[0]);
    assert_eq!(files.get(&format!("read_file?path={}", encoded(path)))?.expect(200)?.text(), "content");
    let moved = "/tmp/raw/caf\u{efe9}.moved";
    files.put("move", &json!({ "src_path": path, "dest_path": moved }))?.expect(204)?;
    files.run(r"test -f /tmp/raw/$(printf 'caf\351.moved')")?;

    // The archive of the directory has the same names.
    let whole = files.get("download_dir_zip?path=/tmp/raw")?.expect(200)?;
    files.unzip("/tmp/again", &whole.body)?.expect(204)?;
    assert_eq!(files.names("/tmp/again")?, ["caf\u{efe9}.moved", "sp\u{efe4}t"]);

    for path in [moved, "/tmp/raw/sp\u{efe4}t"] {
        files.put("delete_file", &json!({ "path": path }))?.expect(204)?;
    }
    assert_eq!(files.names("/tmp/raw")?, Vec::<String>::new());
    files.end()
}
