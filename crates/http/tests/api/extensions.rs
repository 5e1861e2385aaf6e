//! The routes `/extensions`, and loading extensions into a session.

use bytes::Bytes;
use casement_domain::{
    ExtensionId,
    extension::{Extension, ExtensionDeleted, ExtensionStored},
    name::SlugName,
    page::Listed,
    project::{MockProjectRepository, Project, ProjectStatus},
    session::IdOrName,
    session_operation::{ByteStream, OperationError, UpstreamFault},
    testing::{NOON, browser_id, project, project_id, session, session_id},
};
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{ARCHIVE, Ports, Reply, TestApi};

fn id(n: u128) -> ExtensionId {
    ExtensionId::from_ulid(ulid::Ulid::from_parts(11, n))
}

fn extension(n: u128) -> Extension {
    Extension {
        id: id(n),
        project: project_id(),
        name: (n == 1).then(|| SlugName::parse("red").unwrap()),
        size_bytes: ARCHIVE.len() as u64,
        checksum: "ab".repeat(32),
        created_at: NOON,
        last_used_at: (n == 1).then_some(NOON),
    }
}

fn bytes(content: &'static [u8]) -> ByteStream {
    stream::iter([Ok(Bytes::from_static(content))]).boxed()
}

/// Returns ports with two extensions: `red`, and one without a name.
fn ports() -> Ports {
    let mut ports = Ports::default();
    ports.extensions.expect_find().returning(|project, which| {
        assert_eq!(project, project_id());
        Ok(match which {
            IdOrName::Name(name) if name == "red" => Some(extension(1)),
            IdOrName::Id(wanted) => (1..=2).find(|n| id(*n) == *wanted).map(extension),
            IdOrName::Name(_) => None,
        })
    });
    ports
}

fn part(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

async fn send(api: &TestApi, path: &str, parts: &[(&str, &[u8])]) -> Reply {
    let mut body: Vec<u8> = parts.iter().flat_map(|(name, content)| part(name, content)).collect();
    body.extend_from_slice(b"--b--\r\n");
    api.form(path, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_inspected_and_stored_and_its_record_is_returned() {
    let mut ports = ports();
    ports.blobs.expect_put().times(2).returning(|key, _| {
        assert!(key.starts_with("extensions/"), "{key}");
        Ok(())
    });
    ports.extensions.expect_create().times(2).returning(|extension, max| {
        assert_eq!((extension.name.as_ref().map(SlugName::as_str), max), (Some("blue"), 500));
        Ok(ExtensionStored::Yes)
    });
    let api = TestApi::start(ports);
    let late = send(&api, "/extensions", &[("file", ARCHIVE), ("name", b"blue")]).await;
    assert_eq!(late.status, 201, "{late}");
    let reply = send(&api, "/extensions", &[("name", b"blue"), ("file", ARCHIVE)]).await;
    assert_eq!(reply.status, 201, "{reply}");
    let body = reply.json();
    assert_eq!((&body["name"], &body["size_bytes"]), (&json!("blue"), &json!(ARCHIVE.len())));
    assert_eq!(body["checksum"], "ab".repeat(32));
    assert!(body.get("last_used_at").is_none(), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upload_stores_nothing() {
    let api = TestApi::start(ports());
    for (parts, status, code) in [
        (vec![], 400, "invalid_input"),
        (vec![("name", b"x".as_slice())], 400, "invalid_input"),
        (vec![("name", b"a b".as_slice()), ("file", ARCHIVE)], 400, "invalid_input"),
        (vec![("name", b"From_Chrome_Store".as_slice()), ("file", ARCHIVE)], 400, "invalid_input"),
        (vec![("name", b"red".as_slice()), ("file", ARCHIVE)], 409, "name_conflict"),
        (vec![("name", b"x".as_slice()), ("file", b"no archive")], 400, "invalid_input"),
        // The archive is inspected while the form is read, before the name is looked up.
        (vec![("name", b"red".as_slice()), ("file", b"no archive")], 400, "invalid_input"),
        (vec![("name", b"x".as_slice()), ("name", b"y".as_slice()), ("file", ARCHIVE)], 400, "bad_request"),
        (vec![("file", ARCHIVE), ("file", ARCHIVE)], 400, "bad_request"),
        (vec![("file", ARCHIVE), ("name", b"red".as_slice())], 409, "name_conflict"),
    ] {
        let reply = send(&api, "/extensions", &parts).await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{parts:?}: {reply}");
    }
    for (stored, status, code) in
        [(ExtensionStored::NameTaken, 409, "name_conflict"), (ExtensionStored::ProjectGone, 404, "not_found")]
    {
        let mut ports = ports();
        ports.blobs.expect_put().times(1).returning(|_, _| Ok(()));
        ports.blobs.expect_delete().times(1).returning(|_| Ok(()));
        ports.extensions.expect_create().returning(move |_, _| Ok(stored));
        let api = TestApi::start(ports);
        let reply = send(&api, "/extensions", &[("name", b"blue"), ("file", ARCHIVE)]).await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_to_an_archived_project_is_not_inspected() {
    let mut projects = MockProjectRepository::new();
    projects.expect_default_of().returning(|_| Ok(Project { status: ProjectStatus::Archived, ..project() }));
    let api = TestApi::start(Ports { projects: Some(projects), ..ports() });
    let reply = send(&api, "/extensions", &[("file", b"no archive")]).await;
    assert_eq!((reply.status, &*reply.code()), (403, "project_archived"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_is_read_downloaded_listed_and_deleted_by_id_or_name() {
    let mut ports = ports();
    ports.blobs.expect_get().returning(|_| Ok(Some(bytes(ARCHIVE))));
    ports.extensions.expect_list().times(1).returning(|_, filter, page| {
        assert_eq!((filter.name.as_deref(), filter.query.as_deref(), page.limit), (Some("red"), Some("e"), 5));
        Ok(Listed { items: vec![extension(1), extension(2)], next_offset: Some(5) })
    });
    ports
        .extensions
        .expect_delete()
        .returning(|wanted| Ok(if wanted == id(1) { ExtensionDeleted::InUse } else { ExtensionDeleted::Yes }));
    ports.blobs.expect_delete().times(1).returning(|key| {
        assert_eq!(key, format!("extensions/{}", id(2)));
        Ok(())
    });
    let api = TestApi::start(ports);
    let record = json!({
        "id": id(1).to_string(), "created_at": "2026-12-01T12:00:00.000000Z", "size_bytes": ARCHIVE.len(), "name": "red",
        "last_used_at": "2026-12-01T12:00:00.000000Z", "checksum": "ab".repeat(32),
    });
    assert_eq!(api.get("/extensions/red/metadata").await.json(), record);
    let download = api.get("/extensions/red").await;
    assert_eq!((download.status, download.body.as_slice()), (200, ARCHIVE));
    assert_eq!(download.header("content-type"), Some("application/octet-stream"));
    assert_eq!(download.header("content-disposition"), Some("attachment; filename=\"red.zip\""));
    let list = api.get("/extensions?name=red&query=e&limit=5").await;
    assert_eq!((list.header("x-has-more"), list.json()[0].clone()), (Some("true"), record));
    assert!(list.json()[1].get("name").is_none(), "{list}");
    assert_eq!(api.call("DELETE", "/extensions/red", "").await.code(), "resource_in_use");
    assert_eq!(api.call("DELETE", &format!("/extensions/{}", id(2)), "").await.status, 204);
    for path in ["/extensions/none/metadata", "/extensions/none", &format!("/extensions/{}", id(3))] {
        assert_eq!(api.get(path).await.code(), "not_found", "{path}");
    }
    assert_eq!(api.call("DELETE", "/extensions/none", "").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_item_in_the_url_is_requested_of_the_web_store() {
    let mut ports = ports();
    ports.web_store.expect_fetch().times(2).returning(|item, platform| {
        assert_eq!(item.as_str(), "cjpalhdlnbpafiamejdnhcphjbkeiagm");
        match platform.to_string().as_str() {
            "linux" => Ok(bytes(ARCHIVE)),
            _ => Err(OperationError::Upstream {
                fault: UpstreamFault::Connect,
                message: "the store does not answer".to_owned(),
            }),
        }
    });
    let api = TestApi::start(ports);
    let path = "/extensions/from_chrome_store?url=https%3A%2F%2Fchromewebstore.google.com%2Fdetail%2Fx%2F\
                cjpalhdlnbpafiamejdnhcphjbkeiagm";
    let fetched = api.get(path).await;
    assert_eq!(fetched.status, 200, "{fetched}");
    assert!(fetched.body.windows(ARCHIVE.len()).any(|part| part == ARCHIVE), "{fetched}");
    let refused = api.get(&format!("{path}&os=mac")).await;
    assert_eq!((refused.status, &*refused.code()), (502, "upstream_error"));
    assert_eq!(api.get(&format!("{path}&os=beos")).await.details(), ["not_allowed: os: must be linux, win or mac"]);
    for (query, code) in [("", "required"), ("?url=http://127.0.0.1/", "blocked"), ("?url=x", "invalid_format")] {
        let reply = api.get(&format!("/extensions/from_chrome_store{query}")).await;
        assert!(reply.details()[0].starts_with(code), "{query}: {reply}");
    }
}

fn in_session() -> Ports {
    let mut ports = ports();
    ports
        .sessions
        .expect_find_in_project()
        .returning(|_, which, _| Ok((format!("{which:?}").contains(&session_id(1).to_string())).then(|| session(1))));
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_loaded_under_their_names_and_the_browser_restarts_once() {
    let mut ports = in_session();
    for name in ["one", "two"] {
        let adding = ports
            .extension_machine
            .expect_add()
            .times(3)
            .withf(move |browser, given, _| (*browser, given) == (browser_id(1), name));
        adding.returning(|_, _, _| Ok(()));
    }
    ports.extension_machine.expect_load().times(3).returning(|browser, names| {
        assert_eq!((browser, names), (browser_id(1), vec!["one".to_owned(), "two".to_owned()]));
        Ok(())
    });
    let api = TestApi::start(ports);
    let (names, files) = ("extensions[][name]", "extensions[][zip_file]");
    let path = format!("/browsers/{}/extensions", session_id(1));
    for parts in [
        [(names, b"one".as_slice()), (names, b"two"), (files, ARCHIVE), (files, ARCHIVE)],
        [(files, ARCHIVE), (names, b"one"), (files, ARCHIVE), (names, b"two")],
        [
            ("extensions[1][zip_file]", ARCHIVE),
            ("extensions[1][name]", b"two"),
            ("extensions[0][zip_file]", ARCHIVE),
            ("extensions[0][name]", b"one"),
        ],
    ] {
        let loaded = send(&api, &path, &parts).await;
        assert_eq!(loaded.status, 204, "{parts:?}: {loaded}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_archive_is_refused_before_the_session_is_touched() {
    let api = TestApi::start(in_session());
    let (names, files) = ("extensions[][name]", "extensions[][zip_file]");
    let path = format!("/browsers/{}/extensions", session_id(1));
    for (parts, code) in [
        (vec![], "invalid_input"),
        (vec![(files, ARCHIVE)], "invalid_input"),
        (vec![(names, b"a/b".as_slice()), (files, ARCHIVE)], "invalid_input"),
        (vec![(names, b"a".as_slice()), (names, b"a"), (files, ARCHIVE), (files, ARCHIVE)], "invalid_input"),
        (vec![(names, b"a".as_slice()), (names, b"b"), (files, ARCHIVE)], "invalid_input"),
        (vec![(names, b"a".as_slice()), (files, ARCHIVE), (files, ARCHIVE)], "invalid_input"),
        (vec![(names, b"a".as_slice()), (names, b"b"), (files, ARCHIVE), (files, b"no archive")], "invalid_input"),
    ] {
        let reply = send(&api, &path, &parts).await;
        assert_eq!((reply.status, &*reply.code()), (400, code), "{parts:?}: {reply}");
    }
    let elsewhere = format!("/browsers/{}/extensions", session_id(2));
    assert_eq!(send(&api, &elsewhere, &[(names, b"a"), (files, ARCHIVE)]).await.status, 404);
}
