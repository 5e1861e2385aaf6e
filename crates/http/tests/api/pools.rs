//! The routes `/browser_pools`.

use casement_domain::{
    ExtensionId, ProfileId, ProxyId,
    page::Listed,
    pool::{PoolCounts, PoolDeleted, PoolStored},
    profile::LoadedProfile,
    session::Session,
    store_error::Replaced,
    testing::{leased_session, pool, pool_id, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Ports, TestApi};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_created_with_its_whole_record() {
    let mut ports = Ports::default();
    ports.pools.expect_create().times(1).returning(|_, _, _| Ok(PoolStored::Yes));
    ports.wake.expect_wake().return_const(());
    let reply = TestApi::start(ports).post("/browser_pools", json!({ "size": 2, "name": "warm" })).await;
    assert_eq!(
        reply.to_string(),
        "201\nlocation: /browser_pools/00000000000000000000000001\n\
         {\"id\":\"00000000000000000000000001\",\"created_at\":\"2026-12-01T12:00:00.000000Z\",\"name\":\"warm\",\
         \"available_count\":0,\"acquired_count\":0,\"extension_ids\":[],\"region\":\"us-east\",\"browser_pool_config\":{\"name\":\"warm\",\
         \"size\":2,\"fill_rate_per_minute\":25,\"engine\":\"local\",\"headless\":false,\"stealth\":false,\"memory\":\"2GiB\",\"kiosk_mode\":false,\
         \"timeout_seconds\":600,\"viewport\":{\"width\":1920,\"height\":1080,\"refresh_rate\":25}}}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_pool_is_refused_with_every_invalid_field() {
    let api = TestApi::start(Ports::default());
    let body = json!({ "name": "a b", "fill_rate_per_minute": 101, "timeout_seconds": 1 });
    assert_eq!(
        api.post("/browser_pools", body).await.details(),
        [
            "required: size: is required",
            "out_of_range: fill_rate_per_minute: must be from 1 to 100",
            "invalid_format: name: may hold letters, digits, '.', '_' and '-' only",
            "out_of_range: timeout_seconds: must be from 10 to 259200",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_of_the_region_of_the_installation() {
    let mut ports = Ports::default();
    ports.pools.expect_list().returning(|_, _, page| Ok(page.cut(vec![(pool(3).build(), PoolCounts::default())])));
    let api = TestApi::start(ports);
    let reply = api.post("/browser_pools", json!({ "size": 1, "region": "ap-southeast" })).await;
    assert_eq!((reply.status, &*reply.code()), (400, "not_supported"), "{reply}");
    for (query, expected) in [("?region=us-east", 1), ("?region=us-west", 0)] {
        let listed = api.get(&format!("/browser_pools{query}")).await.json();
        assert_eq!(listed.as_array().map(Vec::len), Some(expected), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_listed_and_read_with_their_counts() {
    let counts = PoolCounts { available: 1, acquired: 2 };
    let mut ports = Ports::default();
    ports
        .pools
        .expect_list()
        .withf(|_, filter, _| filter.name.as_deref() == Some("warm") && filter.query.is_none())
        .return_once(move |_, _, _| {
            Ok(Listed { items: vec![(pool(3).name("warm").build(), counts)], next_offset: None })
        });
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(3).build())));
    ports.pools.expect_counts().returning(move |_| Ok(counts));
    let api = TestApi::start(ports);
    let listed = api.get("/browser_pools?name=warm&query=").await.json();
    assert_eq!((&listed[0]["name"], &listed[0]["available_count"]), (&json!("warm"), &json!(1)));
    let read = api.get(&format!("/browser_pools/{}", pool_id(1))).await.json();
    assert_eq!((&read["acquired_count"], &read["browser_pool_config"]["headless"]), (&json!(2), &json!(true)));
    assert!(read.get("name").is_none());
}

/// Names may be reassigned, but the configuration of a pool keeps the resources that the names meant at its creation.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_shows_what_its_selectors_resolved_to() {
    let id = |high, low| ulid::Ulid::from_parts(high, low);
    let mut stored = pool(3).build();
    stored.config.shape.extensions = [2, 1].map(|n| ExtensionId::from_ulid(id(11, n))).to_vec();
    stored.config.shape.proxy = Some(ProxyId::from_ulid(id(12, 1)));
    let profile = ProfileId::from_ulid(id(13, 1));
    stored.config.shape.profile = Some(LoadedProfile { id: profile, version: None, save_changes: false });
    let mut ports = Ports::default();
    ports.pools.expect_find().return_once(|_, _| Ok(Some(stored)));
    ports.pools.expect_counts().returning(|_| Ok(PoolCounts::default()));
    let read = TestApi::start(ports).get("/browser_pools/x").await.json();
    let text = |high, low| id(high, low).to_string().to_lowercase();
    let (red, blue) = (text(11, 1), text(11, 2));
    assert_eq!(read["extension_ids"], json!([&blue, &red]));
    let config = &read["browser_pool_config"];
    assert_eq!(config["extensions"], json!([{ "id": blue }, { "id": red }]));
    assert_eq!(config["profile"], json!({ "id": text(13, 1) }));
    assert_eq!(config["proxy_id"], json!(text(12, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_clears_the_named_fields() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(3).name("warm").build())));
    ports
        .pools
        .expect_replace()
        .withf(|_, _, next, discards| {
            next.config.size == 4 && next.name.as_ref().is_some_and(|name| name.as_str() == "warm") && *discards
        })
        .times(1)
        .returning(|_, _, _, _| Ok((PoolStored::Yes, Vec::new())));
    ports.pools.expect_counts().returning(|_| Ok(PoolCounts::default()));
    ports.wake.expect_wake().return_const(());
    let body = json!({
        "size": 4, "name": "", "proxy_id": "", "start_url": "", "extensions": [], "browser_policy": {},
        "profile": { "id": "" }, "discard_all_idle": true,
    });
    let reply = TestApi::start(ports).patch("/browser_pools/warm", body).await;
    assert_eq!((reply.status, &reply.json()["browser_pool_config"]["size"]), (200, &json!(4)), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_leases_is_deleted_only_by_force() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(3).build())));
    ports.pools.expect_delete().returning(|_, force| Ok(if force { PoolDeleted::Yes } else { PoolDeleted::InUse(2) }));
    ports.sessions.expect_of_pool().returning(|_| Ok(Vec::new()));
    ports.browsers.expect_of_node().returning(|_| Ok(Vec::new()));
    ports.wake.expect_wake().return_const(());
    let api = TestApi::start(ports);
    let path = format!("/browser_pools/{}", pool_id(1));
    assert_eq!(
        api.call("DELETE", &path, "").await.to_string(),
        "409\nx-should-retry: false\n{\"code\":\"resource_in_use\",\"message\":\"2 browsers of the pool are leased; \
         release them, or delete the pool with force\"}"
    );
    assert_eq!(api.call("DELETE", &path, r#"{"force": true}"#).await.to_string(), "204\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_items_are_not_found() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    for (method, path, body) in [
        ("GET", "/browser_pools/x", ""),
        ("PATCH", "/browser_pools/x", "{}"),
        ("DELETE", "/browser_pools/x", ""),
        ("POST", "/browser_pools/x/acquire", ""),
        ("POST", "/browser_pools/x/flush", ""),
        ("POST", "/browser_pools/x/release", r#"{"session_id": "y"}"#),
    ] {
        assert_eq!(
            api.call(method, path, body).await.to_string(),
            "404\n{\"code\":\"not_found\",\"message\":\"browser pool x not found\"}",
            "{method} {path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_returned_for_every_value_of_reuse() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(3).build())));
    ports.sessions.expect_find().returning(|id| {
        let session = leased_session(1);
        Ok(Some(if id == session.id { session } else { Session { pool: None, ..session } }))
    });
    ports.sessions.expect_end().times(2).returning(|_, _| Ok(Replaced::Yes));
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    ports.wake.expect_wake().return_const(());
    let api = TestApi::start(ports);
    let path = format!("/browser_pools/{}/release", pool_id(1));
    for reuse in [true, false] {
        let reply = api.post(&path, json!({ "session_id": session_id(1).to_string(), "reuse": reuse })).await;
        assert_eq!(reply.to_string(), "204\n");
    }
    let reply = api.post(&path, json!({ "session_id": session_id(2).to_string() })).await;
    assert_eq!(reply.code(), "not_found");
    assert_eq!(api.post(&path, "{}").await.details(), ["required: session_id: is required"]);
}
