//! The routes `…/fs`.

use bytes::Bytes;
use casement_domain::{
    fs::{Change, ChangeKind, Entry, FileContent, WatchId},
    session_operation::OperationError,
    testing::{NOON, browser_id, session_id},
};
use casement_http::Permission;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Key, Ports, Reply, TestApi, request};

fn key() -> String {
    format!("Authorization: Bearer {}", Key::Organization.text())
}

fn at(tail: &str) -> String {
    format!("/browsers/{}/fs/{tail}", session_id(1))
}

/// Decodes the body of a chunked reply.
fn whole(reply: Reply) -> String {
    let (mut rest, mut whole) = (reply.body.as_slice(), Vec::new());
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return String::from_utf8(whole).unwrap();
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
    }
}

fn parsed(reply: Reply) -> Value {
    serde_json::from_str(&whole(reply)).unwrap()
}

fn entry(name: &str, mode: u32) -> Entry {
    Entry { name: name.to_owned(), mode, size_bytes: 5, modified_at: NOON }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_one_array_for_any_batches() {
    for batches in [vec![], vec![vec![]], vec![vec!["a"], vec!["b", "c"]], vec![vec!["a\n\"", "\u{202e}"]]] {
        let mut ports = Ports::of_first_session();
        let names: Vec<String> = batches.concat().into_iter().map(str::to_owned).collect();
        ports.files.expect_list().times(2).returning(move |browser, path| {
            assert_eq!((browser, path.as_str()), (browser_id(1), "/tmp/a b"));
            let batches: Vec<_> =
                batches.iter().map(|batch| Ok(batch.iter().map(|name| entry(name, 0o100_644)).collect())).collect();
            Ok(stream::iter(batches).boxed())
        });
        let api = TestApi::start(ports);
        let reply = api.get(&at("list_files?path=/tmp//x/../a+b/")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply}");
        let wanted: Vec<_> = names
            .iter()
            .map(|name| {
                json!({
                    "name": name, "path": format!("/tmp/a b/{name}"), "size_bytes": 5, "is_dir": false,
                    "mod_time": "2026-12-01T12:00:00.000000Z", "mode": "-rw-r--r--",
                })
            })
            .collect();
        assert_eq!(parsed(reply), json!(wanted));
        let token = api.token(session_id(1), Permission::Drive);
        let direct = format!("/vm/{}/fs/list_files?path=/tmp/a%20b&jwt={token}", session_id(1));
        assert_eq!(parsed(api.request("GET", &direct, &[], "").await), json!(wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_transfer_is_never_taken_for_a_complete_one() {
    let mut ports = Ports::of_first_session();
    ports.files.expect_list().returning(|_, _| {
        let parts = vec![Ok(vec![entry("a", 0o100_644)]), Err(OperationError::Failed("gone".to_owned()))];
        Ok(stream::iter(parts).boxed())
    });
    ports.files.expect_archive().returning(|_, _| {
        let parts = vec![Ok(Bytes::from_static(b"PK")), Err(OperationError::Failed("gone".to_owned()))];
        Ok(stream::iter(parts).boxed())
    });
    let api = TestApi::start(ports);
    for tail in ["list_files?path=/a", "download_dir_zip?path=/a"] {
        let mut stream = api.connect().await;
        stream.write_all(&request("GET", &at(tail), &[&key()], "")).await.unwrap();
        let mut raw = Vec::new();
        let _ = stream.read_to_end(&mut raw).await;
        assert!(!raw.ends_with(b"0\r\n\r\n"), "{}", raw.escape_ascii());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_refused_with_400_to_a_token_because_clients_repeat_a_403() {
    let mut ports = Ports::of_first_session();
    ports.files.expect_info().returning(|_, _| Err(OperationError::Forbidden("x".to_owned())));
    let api = TestApi::start(ports);
    let path = format!("/vm/{}/fs/file_info?path=/proc", session_id(1));
    let ask = async |path: &str, header: &str| {
        let reply = api.request("GET", path, &[header], "").await;
        (reply.status, reply.code())
    };
    let answer = |status, code: &str| (status, code.to_owned());
    let token = |permission| format!("{path}&jwt={}", api.token(session_id(1), permission));
    let none = "Accept: */*";
    assert_eq!(ask(&token(Permission::Drive), none).await, answer(400, "path_forbidden"));
    assert_eq!(ask(&token(Permission::View), none).await, answer(403, "forbidden"));
    assert_eq!(ask(&format!("{path}&jwt=x.y.z"), none).await, answer(401, "unauthorized"));
    assert_eq!(ask(&path, &key()).await, answer(403, "path_forbidden"));
    assert_eq!(ask(&at("file_info?path=/proc"), &key()).await, answer(403, "path_forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_its_status_and_names_the_field() {
    for (error, status, code) in [
        (OperationError::Missing("x".to_owned()), 404, "not_found"),
        (OperationError::Forbidden("x".to_owned()), 403, "path_forbidden"),
        (OperationError::Exists("x".to_owned()), 409, "already_exists"),
        (OperationError::TooLarge("x".to_owned()), 413, "payload_too_large"),
        (OperationError::DiskFull("x".to_owned()), 429, "limit_exceeded"),
    ] {
        let mut ports = Ports::of_first_session();
        let error = Mutex::new(Some(error));
        ports.files.expect_info().returning(move |_, _| Err(error.lock().take().unwrap()));
        let reply = TestApi::start(ports).get(&at("file_info?path=/a")).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
    let api = TestApi::start(Ports::of_first_session());
    for (method, tail, body, details) in [
        ("GET", "list_files", "", vec!["required: path: is required"]),
        ("GET", "read_file?path=a", "", vec!["invalid_format: path: must be absolute: it must begin with /"]),
        (
            "PUT",
            "set_file_permissions",
            r#"{"mode":"4755"}"#,
            vec!["required: path: is required", "not_allowed: mode: may not set the set-user-ID or set-group-ID bit"],
        ),
        ("PUT", "delete_directory", r#"{"path":"/a/.."}"#, vec!["blocked: path: may not be /"]),
        ("PUT", "move", "", vec!["required: src_path: is required", "required: dest_path: is required"]),
        (
            "PUT",
            "create_directory",
            r#"{"path":"/a","mode":"rwx"}"#,
            vec!["invalid_format: mode: must be three or four octal digits"],
        ),
        ("POST", "watch", "{}", vec!["required: path: is required"]),
    ] {
        let reply = api.call(method, &at(tail), body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"), "{tail}: {reply}");
        assert_eq!(reply.details(), details, "{tail}");
    }
    assert_eq!(api.get(&at("list_files?path=/%ff")).await.code(), "bad_request");
    assert_eq!(api.get(&at("list_files?path=/a&path=/b")).await.code(), "bad_request");
    assert_eq!(api.call("PUT", &at("move"), r#"{"src_path":1}"#).await.code(), "invalid_input");
    assert_eq!(api.call("DELETE", &at("watch/UPPER"), "").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_download_cannot_inject_headers() {
    let mut ports = Ports::of_first_session();
    ports.files.expect_read().returning(|_, _| {
        let bytes = stream::iter([Ok(Bytes::from_static(b"content"))]).boxed();
        Ok(FileContent { length: Some(7), bytes })
    });
    ports.files.expect_archive().returning(|_, _| Ok(stream::iter([Ok(Bytes::from_static(b"PK"))]).boxed()));
    let api = TestApi::start(ports);
    let reply = api.get(&at("read_file?path=/a%0d%0aX:%20y%22%E2%80%AE")).await;
    assert_eq!((reply.status, reply.header("x")), (200, None));
    let disposition = "attachment; filename=\"a__X: y__\"; filename*=UTF-8''a%0D%0AX%3A%20y%22%E2%80%AE";
    assert_eq!(reply.header("content-disposition"), Some(disposition));
    assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
    assert_eq!(reply.header("content-length"), Some("7"));
    for (path, name) in [("/", "root.zip"), ("/tmp/x/", "x.zip")] {
        let reply = api.get(&at(&format!("download_dir_zip?path={path}"))).await;
        assert_eq!(reply.header("content-disposition"), Some(format!("attachment; filename=\"{name}\"").as_str()));
        assert_eq!(reply.header("content-type"), Some("application/zip"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_forms_never_reach_the_session() {
    let api = TestApi::start(Ports::of_first_session());
    let send = async |tail: &str, parts: &[(&str, &str)]| {
        let part = |(name, content): &(&str, &str)| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"upload\"\r\n\r\n{content}\r\n")
        };
        let body: String = parts.iter().map(part).collect::<String>() + "--b--\r\n";
        api.request("POST", &at(tail), &[&key(), "Content-Type: multipart/form-data; boundary=b"], &body).await
    };
    let (path, file) = ("files[][dest_path]", "files[][file]");
    assert_eq!(send("upload", &[("files[0][dest_path]", "/a"), (path, "/b"), (file, "1")]).await.code(), "bad_request");
    let reply = send("upload", &[(path, "a"), (path, "/b"), (file, "1"), (file, "2")]).await;
    assert_eq!(reply.details(), ["invalid_format: files[0].dest_path: must be absolute: it must begin with /"]);
    assert_eq!(send("upload", &[]).await.details(), ["required: files: is required"]);
    let reply = send("upload_zip", &[("other", "x")]).await;
    assert_eq!(reply.details(), ["required: dest_path: is required", "required: zip_file: is required"]);
    let reply = send("upload_zip", &[("dest_path", "/a"), ("dest_path", "/b"), ("zip_file", "x")]).await;
    assert_eq!(reply.code(), "bad_request");
    let reply = api.post(&at("upload"), "{}").await;
    assert_eq!((reply.status, reply.code().as_str()), (415, "unsupported_media_type"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_in_a_directory_are_streamed_as_events() {
    let mut ports = Ports::of_first_session();
    ports.files.expect_watch().returning(|_, new| {
        assert_eq!((new.path.as_str(), new.recursive), ("/tmp", true));
        WatchId::parse("abc")
    });
    ports.files.expect_changes().returning(|_, id| {
        assert_eq!(id.as_str(), "abc");
        let change = Change { kind: ChangeKind::Rename, path: "/tmp/a\nb".to_owned(), is_dir: false };
        Ok(stream::iter([Ok(change)]).boxed())
    });
    ports.files.expect_unwatch().returning(|_, _| Ok(()));
    let api = TestApi::start(ports);
    let reply = api.post(&at("watch"), json!({ "path": "/tmp", "recursive": true })).await;
    assert_eq!((reply.status, reply.json()), (201, json!({ "watch_id": "abc" })));
    let events = api.get(&at("watch/abc/events")).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert_eq!(
        whole(events),
        "data: {\"type\":\"RENAME\",\"path\":\"/tmp/a\\nb\",\"name\":\"a\\nb\",\"is_dir\":false}\n\n"
    );
    assert_eq!(api.call("DELETE", &at("watch/abc"), "").await.status, 204);
}
