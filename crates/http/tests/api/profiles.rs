//! The routes `/profiles`, and references to profiles in sessions and pools.

use bytes::Bytes;
use casement_domain::{
    ProfileId, ProfileVersionId,
    organization::{Limit, LimitExceeded},
    page::Listed,
    profile::{LoadedProfile, Profile, ProfileDeleted, ProfileRenamed, ProfileStored, ProfileVersion},
    session::{Created, IdOrName},
    session_operation::OperationError,
    testing::{NOON, PlainSealer, organization_id, profile, project_id, session, session_id},
};
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Key, Ports, TestApi, request};

fn id(n: u128) -> ProfileId {
    ProfileId::from_ulid(ulid::Ulid::from_parts(13, n))
}

fn version(n: u128) -> ProfileVersionId {
    ProfileVersionId::from_ulid(ulid::Ulid::from_parts(14, n))
}

fn saved() -> Profile {
    Profile { version: Some(version(1)), last_used_at: Some(NOON), ..profile(id(1), "login") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_created_with_a_name_or_without() {
    for (body, name) in
        [(json!({ "name": "login" }), Some("login")), (json!({}), None), (json!({ "name": null }), None)]
    {
        let mut ports = Ports::default();
        ports.profiles.expect_create().times(1).returning(move |profile, max| {
            assert_eq!((max, profile.name.as_ref().map(|name| name.as_str())), (1000, name));
            assert_eq!((profile.organization, profile.project), (organization_id(), Some(project_id())));
            assert_eq!(profile.version, None);
            Ok(ProfileStored::Yes)
        });
        let reply = TestApi::start(ports).post("/profiles", &body).await;
        let body = reply.json();
        assert_eq!((reply.status, body["name"].as_str()), (201, name), "{reply}");
        assert!(
            body["created_at"].is_string()
                && body["updated_at"] == body["created_at"]
                && body.get("last_used_at").is_none()
        );
        assert_eq!(reply.header("location"), Some(&*format!("/profiles/{}", body["id"].as_str().unwrap())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_profile_name_is_refused_before_anything_is_stored() {
    let api = TestApi::start(Ports::default());
    let long = "a".repeat(256);
    for (name, code) in [
        ("", "too_short"),
        ("a b", "invalid_format"),
        ("100%", "invalid_format"),
        ("'; DROP TABLE profiles; --", "invalid_format"),
        ("ümlaut", "invalid_format"),
        (".", "reserved"),
        ("..", "reserved"),
        ("01k9zk0000000000000000000a", "reserved"),
        (long.as_str(), "too_long"),
    ] {
        let made = api.post("/profiles", json!({ "name": name })).await;
        let renamed = api.patch("/profiles/x", json!({ "name": name })).await;
        for reply in [made, renamed] {
            assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{name:?}: {reply}");
            assert!(reply.details()[0].contains(": name: "), "{name:?} ({code}): {reply}");
        }
    }
    assert_eq!(api.patch("/profiles/x", json!({})).await.details(), ["required: name: is required"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_was_not_stored_is_reported_with_its_reason() {
    let limit = LimitExceeded { limit: Limit::ProjectProfiles, value: 2, used: 2, requested: 1 };
    for (stored, status, code) in [
        (ProfileStored::NameTaken, 409, "name_conflict"),
        (ProfileStored::LimitExceeded(limit), 429, "limit_exceeded"),
        (ProfileStored::ProjectGone, 404, "not_found"),
    ] {
        let mut ports = Ports::default();
        ports.profiles.expect_create().return_once(move |_, _| Ok(stored));
        let reply = TestApi::start(ports).post("/profiles", json!({ "name": "login" })).await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{reply}");
    }
    for (deleted, status, code) in
        [(ProfileDeleted::InUse, 409, "resource_in_use"), (ProfileDeleted::NotFound, 404, "not_found")]
    {
        let mut ports = Ports::default();
        ports.profiles.expect_find().returning(|_, _| Ok(Some(saved())));
        ports.profiles.expect_delete().return_once(move |_, _| Ok(deleted));
        let reply = TestApi::start(ports).call("DELETE", "/profiles/login", "").await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{reply}");
    }
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, _| Ok(Some(saved())));
    ports.profiles.expect_rename().return_once(|_, _, _| Ok(ProfileRenamed::NameTaken));
    let reply = TestApi::start(ports).patch("/profiles/login", json!({ "name": "taken" })).await;
    assert_eq!((reply.status, &*reply.code()), (409, "name_conflict"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_passes_its_filters_unchanged() {
    let mut ports = Ports::default();
    ports.profiles.expect_list().times(1).returning(|scope, filter, page| {
        assert!(scope.unscoped);
        assert_eq!((filter.name.as_deref(), filter.query.as_deref()), (Some("LÓGIN"), Some("%_'")));
        assert_eq!((page.limit, page.offset), (2, 4));
        Ok(Listed { items: vec![saved(), profile(id(2), "other")], next_offset: Some(6) })
    });
    let api = TestApi::start(ports);
    let reply = api.get("/profiles?limit=2&offset=4&name=L%C3%93GIN&query=%25_%27").await;
    assert_eq!(reply.status, 200, "{reply}");
    assert_eq!((reply.header("x-has-more"), reply.header("x-next-offset")), (Some("true"), Some("6")));
    let body = reply.json();
    assert_eq!(body[0]["last_used_at"], "2026-12-01T12:00:00.000000Z");
    assert_eq!(body[1]["name"], "other");
    assert!(body[1].get("last_used_at").is_none());
    for bad in ["limit=0", "limit=101", "offset=-1", "limit=x"] {
        assert_eq!(api.get(&format!("/profiles?{bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_found_by_id_or_name_and_an_unknown_one_is_404_on_every_route() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, which| {
        Ok(match which {
            IdOrName::Id(wanted) if *wanted == id(1) => Some(saved()),
            IdOrName::Name(name) if name == "login" => Some(saved()),
            _ => None,
        })
    });
    let api = TestApi::start(ports);
    for which in ["login".to_owned(), id(1).to_string(), id(1).to_string().to_uppercase()] {
        assert_eq!(api.get(&format!("/profiles/{which}")).await.json()["id"], id(1).to_string(), "{which}");
    }
    let other = id(9).to_string();
    for which in ["nobody", other.as_str(), "%25", "%27%20or%201%3D1", "_ogin"] {
        let path = format!("/profiles/{which}");
        for reply in [
            api.get(&path).await,
            api.patch(&path, json!({ "name": "x" })).await,
            api.call("DELETE", &path, "").await,
            api.get(&format!("{path}/download")).await,
        ] {
            assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{which}: {reply}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_profile_is_downloaded_and_an_unsaved_one_is_an_empty_archive() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, which| {
        Ok(Some(match which {
            IdOrName::Name(name) if name == "new" => Profile { name: None, ..profile(id(2), "new") },
            _ => saved(),
        }))
    });
    ports.profiles.expect_version().returning(|profile, wanted| {
        let known = wanted == version(1) || wanted == version(2);
        Ok((profile == id(1) && known).then(|| ProfileVersion {
            id: wanted,
            profile,
            session: session_id(1),
            based_on: None,
            key: PlainSealer::stream_key(&ProfileVersion::place(profile, wanted)),
            created_at: NOON,
        }))
    });
    ports.profile_bytes.expect_get().returning(|key| {
        let bytes = if key.ends_with(&version(2).to_string()) { "unseen" } else { "current" };
        Ok(Some(stream::iter([Ok(Bytes::from(bytes))]).boxed()))
    });
    let api = TestApi::start(ports);
    let reply = api.get("/profiles/login/download").await;
    assert_eq!((reply.status, reply.text()), (200, "7\r\ncurrent\r\n0\r\n\r\n".into()), "{reply}");
    assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
    assert_eq!(reply.header("content-disposition"), Some("attachment; filename=\"login.tar.zst\""));
    let reply = api.get(&format!("/profiles/login/download?version={}", version(2))).await;
    assert_eq!((reply.status, reply.text()), (200, "6\r\nunseen\r\n0\r\n\r\n".into()), "{reply}");
    assert_eq!(api.get(&format!("/profiles/login/download?version={}", version(3))).await.status, 404);
    assert_eq!(
        api.get("/profiles/login/download?version=x").await.details()[0],
        "invalid_format: version: must be the id of a version"
    );

    assert_eq!(
        api.get("/profiles/login/download?format=zip").await.details(),
        ["not_allowed: format: must be tar.zst or tar"]
    );

    // An empty `tar` is 1024 zero bytes.
    let plain = api.get("/profiles/new/download?format=tar").await;
    assert_eq!((plain.status, plain.text()), (200, format!("400\r\n{}\r\n0\r\n\r\n", "\0".repeat(1024))));
    assert_eq!(plain.header("content-disposition"), Some(&*format!("attachment; filename=\"{}.tar\"", id(2))));
    let same = api.get("/profiles/new/download?format=tar.zst").await;
    let reply = api.get("/profiles/new/download").await;
    assert_eq!((reply.status, &reply.body), (200, &same.body), "{reply}");
    let named = format!("attachment; filename=\"{}.tar.zst\"", id(2));
    assert_eq!(reply.header("content-disposition"), Some(&*named));
    assert!(reply.body.windows(4).any(|part| part == [0x28, 0xb5, 0x2f, 0xfd]), "zstd");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_profile_is_never_returned_as_if_it_were_intact() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, _| Ok(Some(saved())));
    ports.profiles.expect_version().returning(|profile, id| {
        let key = PlainSealer::stream_key(&ProfileVersion::place(profile, id));
        Ok(Some(ProfileVersion { id, profile, session: session_id(1), based_on: None, key, created_at: NOON }))
    });
    ports.profile_bytes.expect_get().returning(|_| {
        let cut = OperationError::Failed("the saved data is truncated or altered".to_owned());
        Ok(Some(stream::iter([Ok(Bytes::from("part")), Err(cut)]).boxed()))
    });
    let api = TestApi::start(ports);
    let mut stream = api.connect().await;
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    stream.write_all(&request("GET", "/profiles/login/download", &[&key], "")).await.unwrap();
    let mut came = Vec::new();
    let _ = stream.read_to_end(&mut came).await;
    assert!(!came.ends_with(b"0\r\n\r\n"), "the answer breaks off: {}", String::from_utf8_lossy(&came));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_shows_the_profile_that_it_was_started_with() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, _| Ok(Some(saved())));
    ports.profiles.expect_of_ids().returning(|ids| {
        assert_eq!(ids, [id(1)]);
        Ok(vec![saved()])
    });
    ports.spares.expect_take().returning(|shape| {
        assert!(shape.profile.is_some(), "no spare has it");
        None
    });
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    let loaded = LoadedProfile { id: id(1), version: Some(version(1)), save_changes: true };
    ports
        .engine
        .expect_start()
        .times(1)
        .withf(move |launch| launch.shape.profile == Some(loaded))
        .returning(|_| Ok(Default::default()));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(casement_domain::Replaced::Yes));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    let body = json!({ "profile": { "name": "login", "save_changes": true } });
    let reply = TestApi::start(ports).post("/browsers", &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    assert_eq!(
        (&reply.json()["profile"]["id"], &reply.json()["profile"]["name"]),
        (&json!(id(1).to_string()), &json!("login"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_profile_is_an_unknown_reference() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, _| Ok(None));
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.pools.expect_find().returning(|_, _| Ok(Some(casement_domain::testing::pool(1).build())));
    let api = TestApi::start(ports);
    let stranger = id(9).to_string();
    for profile in
        [json!({ "name": "nobody" }), json!({ "id": stranger }), json!({ "id": "nobody" }), json!({ "name": "a\u{0}" })]
    {
        let (body, pool) = (json!({ "profile": profile }), json!({ "size": 1, "profile": profile }));
        for reply in [
            api.post("/browsers", &body).await,
            api.patch("/browsers/one", &body).await,
            api.post("/browser_pools", &pool).await,
            api.patch("/browser_pools/x", &body).await,
        ] {
            assert_eq!(reply.details(), ["reference_not_found: profile: there is no such profile"], "{profile}");
        }
    }
    let reply = api.patch("/browser_pools/x", json!({ "refresh_on_profile_update": true })).await;
    assert_eq!(reply.details(), ["mutually_exclusive: refresh_on_profile_update: needs a profile"]);
}
