//! Tests of finding, listing and changing sessions, and of screenshots.

use std::sync::Arc;

use casement_domain::ProxyId;
use casement_domain::browser::{EngineError, Region, Shape, Viewport};
use casement_domain::field::{FieldCode, InvalidValue};
use casement_domain::page::{Listed, Page};
use casement_domain::proxy::{MockProxyRepository, MockProxyRoutes, Proxy, ProxyRouting, Route};
use casement_domain::reference::Reference;
use casement_domain::session::{
    Created, EndReason, IdOrName, Session, SessionFilter, SessionState, SessionUpdateRequest, Tags, UpdateSessionError,
    UseSessionError, ViewportRequest,
};
use casement_domain::telemetry::{self, Capture, Category, ExportRequest, MockRecorder};
use casement_domain::testing::{
    PlainSealer, browser_id, organization_id, own_proxy, project_id, proxy, scope, session, session_id,
    telemetry_destination,
};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::{World, hung};

fn found() -> World {
    let mut world = World::default();
    world.sessions.expect_find_in_project().returning(|project, which, _| {
        assert_eq!(project, project_id(), "never outside the project");
        Ok((*which == IdOrName::Id(session_id(1)) || *which == IdOrName::Name("one".into())).then(|| session(1)))
    });
    world
}

/// The recorder retries by itself, so the capture begins later.
#[tokio::test]
async fn a_change_of_telemetry_that_the_browser_has_not_confirmed_may_have_had_an_effect() {
    let mut world = found();
    world.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    world.sessions.expect_set_telemetry().times(1).returning(|_, _| Ok(true));
    let mut recorder = MockRecorder::new();
    recorder.expect_capture().times(1).returning(|_| Err(hung()));
    world.recorder = Some(recorder);
    let request = telemetry::ConfigRequest {
        browser: Some([(Category::Console, true)].into()),
        ..telemetry::ConfigRequest::default()
    };
    let update = SessionUpdateRequest { telemetry: Some(request), ..SessionUpdateRequest::default() };
    let error = world.build().sessions.update(&scope(), "one", update).await.expect_err("it hangs");
    let may_have_effect = matches!(error, UpdateSessionError::Use(UseSessionError::Engine(EngineError::Lost { .. })));
    assert!(may_have_effect, "{error:?}");
}

#[tokio::test]
async fn a_change_names_a_destination_of_the_organization_and_keeps_the_storage() {
    let request = |name: &str, stored| {
        let destination = Some(Reference { name: Some(name.to_owned()), id: None });
        let export = ExportRequest { destination, ..ExportRequest::default() };
        SessionUpdateRequest {
            telemetry: Some(telemetry::ConfigRequest { stored, export, ..telemetry::ConfigRequest::default() }),
            ..SessionUpdateRequest::default()
        }
    };
    for (name, stored, field) in
        [("loki", None, "telemetry.export.otlp.destination"), ("grafana", Some(false), "telemetry.storage.enabled")]
    {
        let mut world = World::default();
        let captured = Session { telemetry: Capture::only([Category::Console]), ..session(1) };
        world.sessions.expect_find_in_project().returning(move |_, _, _| Ok(Some(captured.clone())));
        world.telemetry_destinations.expect_named().returning(|organization, name| {
            assert_eq!(organization, organization_id());
            Ok((name == "grafana").then(telemetry_destination))
        });
        let casement = world.build();
        let refused = casement.sessions.update(&scope(), "one", request(name, stored)).await.expect_err("refused");
        let UpdateSessionError::Use(UseSessionError::Invalid(refused)) = refused else { panic!("{refused:?}") };
        assert_eq!(refused.fields().iter().map(|one| one.field.as_str()).collect::<Vec<_>>(), [field]);
    }
}

#[tokio::test]
async fn a_session_is_found_by_identifier_or_name_in_its_project() {
    let casement = found().build();
    let id = session_id(1).to_string();
    for which in [id.as_str(), &id.to_uppercase(), "one"] {
        assert_eq!(casement.sessions.get(&scope(), which, false).await.expect(which), session(1));
    }
    let error = casement.sessions.get(&scope(), "two", true).await.expect_err("there is none");
    assert!(matches!(error, UseSessionError::NotFound(missing) if missing.which == "two"));
}

#[tokio::test]
async fn the_holder_of_a_token_reaches_active_sessions_only() {
    let mut world = World::default();
    world.keep_sessions([
        session(1),
        Session { state: SessionState::Starting, ..session(2) },
        Session { state: SessionState::Ended(EndReason::Deleted), ..session(3) },
    ]);
    let casement = world.build();
    assert_eq!(casement.sessions.active(session_id(1)).await.expect("active"), session(1));
    for n in [2, 3, 4] {
        let error = casement.sessions.active(session_id(n)).await.expect_err("not active");
        assert!(matches!(error, UseSessionError::NotFound(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_list_is_the_projects_own() {
    let mut world = World::default();
    let filter = SessionFilter { query: Some("one".to_owned()), ..SessionFilter::default() };
    let page = Page { limit: 1, offset: 3 };
    let requested = filter.clone();
    world
        .sessions
        .expect_list()
        .withf(move |project, filter, at| *project == project_id() && *filter == requested && *at == page)
        .times(1)
        .returning(|_, _, page| Ok(page.cut(vec![session(1), session(2)])));
    let listed = world.build().sessions.list(&scope(), &filter, page).await.expect("listed");
    assert_eq!(listed, Listed { items: vec![session(1)], next_offset: Some(4) });
}

#[tokio::test]
async fn an_empty_name_and_null_clear_the_name_and_absence_keeps_it() {
    for (name, expected) in [(None, None), (Some(None), Some(None)), (Some(Some(String::new())), Some(None))] {
        let mut world = found();
        world
            .sessions
            .expect_change()
            .withf(move |id, changes| *id == session_id(1) && changes.name == expected)
            .times(1)
            .returning(|_, _| Ok(Some(Created::Yes)));
        let update = SessionUpdateRequest { name, ..SessionUpdateRequest::default() };
        world.build().sessions.update(&scope(), "one", update).await.expect("changed");
    }
}

#[tokio::test]
async fn an_update_opens_its_start_url_and_an_empty_one_leaves_the_page() {
    for (url, opened) in [(Some("https://x.test/"), 1), (Some(""), 0), (None, 0)] {
        let mut world = found();
        world.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
        world
            .engine
            .expect_hand_out()
            .withf(|id, to| {
                *id == browser_id(1)
                    && to.start_url.as_ref().is_some_and(|url| url.as_str() == "https://x.test/")
                    && to.abandoned_after_seconds == 60
            })
            .times(opened)
            .returning(|_, _| Ok(()));
        let update = SessionUpdateRequest { start_url: url.map(str::to_owned), ..SessionUpdateRequest::default() };
        let session = world.build().sessions.update(&scope(), "one", update).await.expect("changed");
        assert_eq!(session.start_url, None, "the record names the first URL");
    }
}

#[tokio::test]
async fn an_update_with_an_invalid_start_url_changes_nothing() {
    let update = SessionUpdateRequest {
        name: Some(Some("two".to_owned())),
        start_url: Some("javascript:0".to_owned()),
        ..SessionUpdateRequest::default()
    };
    let error = World::default().build().sessions.update(&scope(), "one", update).await.expect_err("refused");
    match error {
        UpdateSessionError::Use(UseSessionError::Invalid(invalid)) => {
            assert_eq!(invalid.fields()[0].field, "start_url")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tags_are_replaced_as_a_whole() {
    let tags = std::collections::BTreeMap::from([("team".to_owned(), "qa".to_owned())]);
    let mut world = found();
    let parsed = Tags::parse(tags.clone()).expect("tags");
    world
        .sessions
        .expect_change()
        .withf(move |_, changes| changes.tags.as_ref() == Some(&parsed) && changes.name.is_none())
        .times(1)
        .returning(|_, _| Ok(Some(Created::Yes)));
    let update = SessionUpdateRequest { tags: Some(tags), ..SessionUpdateRequest::default() };
    world.build().sessions.update(&scope(), "one", update).await.expect("changed");
}

#[tokio::test]
async fn a_change_that_the_store_refuses_leaves_the_browser_its_size() {
    for (answer, taken) in [(Some(Created::NameTaken), true), (None, false)] {
        let mut world = found();
        world.sessions.expect_change().times(1).returning(move |_, _| Ok(answer.clone()));
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let stored = sizes.clone();
        world.engine.expect_is_recording().returning(|_| Ok(false));
        world.engine.expect_set_viewport().times(2).returning(move |_, size| {
            stored.lock().push((size.width, size.height));
            Ok(())
        });
        let update = SessionUpdateRequest {
            name: Some(Some("two".to_owned())),
            viewport: Some(ViewportRequest { width: Some(800), height: Some(600), refresh_rate: None }),
            ..SessionUpdateRequest::default()
        };
        let error = world.build().sessions.update(&scope(), "one", update).await.expect_err("refused");
        match error {
            UpdateSessionError::NameTaken(error) => assert!(taken && error.name == "two"),
            UpdateSessionError::Use(UseSessionError::NotFound(_)) => assert!(!taken),
            other => panic!("{other:?}"),
        }
        assert_eq!(*sizes.lock(), [(800, 600), (1920, 1080)]);
    }
}

fn resize(force_viewport: bool) -> SessionUpdateRequest {
    let viewport = Some(ViewportRequest { width: Some(800), height: Some(600), refresh_rate: None });
    SessionUpdateRequest { viewport, force_viewport, ..SessionUpdateRequest::default() }
}

fn resizes(times: usize) -> World {
    const SMALL: Viewport = Viewport { width: 800, height: 600, refresh_rate: 60 };
    let mut world = found();
    world.sessions.expect_change().times(times).returning(|_, _| Ok(Some(Created::Yes)));
    world.engine.expect_is_recording().returning(|_| Ok(false));
    world
        .engine
        .expect_set_viewport()
        .withf(|id, size| (*id, *size) == (browser_id(1), SMALL))
        .times(times)
        .returning(|_, _| Ok(()));
    world
        .sessions
        .expect_set_viewport()
        .withf(|id, size| (*id, *size) == (session_id(1), SMALL))
        .times(times)
        .returning(|_, _| Ok(()));
    world
}

#[tokio::test]
async fn a_watched_display_keeps_its_size_unless_forced() {
    let casement = resizes(0).build();
    casement.activity.watch(&session(1));
    let viewer = casement.activity.begin_view(session_id(1), true);
    let error = casement.sessions.update(&scope(), "one", resize(false)).await.expect_err("watched");
    assert!(matches!(error, UpdateSessionError::Watched(id) if id == session_id(1)), "{error:?}");
    drop(viewer);

    let casement = resizes(2).build();
    casement.activity.watch(&session(1));
    let viewer = casement.activity.begin_view(session_id(1), true);
    casement.sessions.update(&scope(), "one", resize(true)).await.expect("forced");
    drop(viewer);
    casement.sessions.update(&scope(), "one", resize(false)).await.expect("nobody watches any more");
}

#[tokio::test]
async fn a_recorded_display_keeps_its_size_unless_forced() {
    let recorded = |times| {
        let mut world = found();
        world.engine.expect_is_recording().returning(|_| Ok(true));
        world.engine.expect_set_viewport().times(times).returning(|_, _| Ok(()));
        world.sessions.expect_change().times(times).returning(|_, _| Ok(Some(Created::Yes)));
        world.sessions.expect_set_viewport().times(times).returning(|_, _| Ok(()));
        world.build()
    };
    let error = recorded(0).sessions.update(&scope(), "one", resize(false)).await.expect_err("recorded");
    assert!(matches!(error, UpdateSessionError::Recorded(id) if id == session_id(1)), "{error:?}");
    recorded(1).sessions.update(&scope(), "one", resize(true)).await.expect("forced");
}

#[tokio::test]
async fn the_size_that_it_has_already_is_no_change_even_if_watched() {
    let mut world = found();
    world.sessions.expect_change().times(1).returning(|_, _| Ok(Some(Created::Yes)));
    let casement = world.build();
    casement.activity.watch(&session(1));
    let _viewer = casement.activity.begin_view(session_id(1), true);
    let Viewport { width, height, .. } = Viewport::default();
    let same = ViewportRequest { width: Some(width.into()), height: Some(height.into()), refresh_rate: None };
    let update = SessionUpdateRequest { viewport: Some(same), ..SessionUpdateRequest::default() };
    casement.sessions.update(&scope(), "one", update).await.expect("changed");
}

#[tokio::test]
async fn a_size_that_the_display_refuses_changes_nothing_else_either() {
    let mut world = found();
    world.engine.expect_is_recording().returning(|_| Ok(false));
    world.engine.expect_set_viewport().times(1).returning(|_, _| Err(hung()));
    let error = world.build().sessions.update(&scope(), "one", resize(false)).await.expect_err("refused");
    assert!(matches!(error, UpdateSessionError::Use(UseSessionError::Engine(_))), "{error:?}");
}

#[tokio::test]
async fn of_two_proxies_at_once_traffic_leaves_through_the_one_that_was_stored_last() {
    let [ours, theirs] = [1, 2].map(|n| ProxyId::from_ulid(Ulid::from_parts(14, n)));
    let host = move |id: ProxyId| if id == ours { "ours.test" } else { "theirs.test" };
    let mut proxies = MockProxyRepository::new();
    proxies.expect_find().returning(move |_, id| Ok(Some(proxy(id, "proxy"))));
    proxies
        .expect_find_any()
        .returning(move |id| Ok(Some(Proxy { config: own_proxy(host(id), None), ..proxy(id, "proxy") })));
    let sent = Arc::new(Mutex::new(Vec::new()));
    let mut routes = MockProxyRoutes::new();
    let seen = sent.clone();
    routes.expect_set().returning(move |_, policy| {
        let Route::Through(proxy) = policy.route else { panic!("{policy:?}") };
        seen.lock().push(proxy.host.clone());
    });
    let routing = ProxyRouting::new(Arc::new(proxies), Arc::new(PlainSealer), Arc::new(routes), Arc::default());
    let mut world = World { proxies: Some(routing), ..World::default() };
    let stored = Arc::new(Mutex::new(None));
    let now = stored.clone();
    world.sessions.expect_find_in_project().returning(move |_, _, _| {
        let shape = Shape { proxy: *now.lock(), ..session(1).shape };
        Ok(Some(Session { shape, ..session(1) }))
    });
    world.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    world.sessions.expect_set_proxy().times(1).returning(move |_, requested| {
        assert_eq!(requested, Some(ours));
        // The other call stores its proxy after ours was stored and before our route is set; its own route is set.
        *stored.lock() = Some(theirs);
        Ok(true)
    });
    let update = SessionUpdateRequest { proxy: Some(Some(ours.to_string())), ..SessionUpdateRequest::default() };
    let changed = world.build().sessions.update(&scope(), "one", update).await.expect("changed");
    assert_eq!(changed.shape.proxy, Some(theirs));
    assert_eq!(*sent.lock(), ["ours.test", "theirs.test"]);
}

#[tokio::test]
async fn an_update_that_breaks_a_rule_touches_nothing() {
    let update = SessionUpdateRequest { name: Some(Some("a/b".to_owned())), ..SessionUpdateRequest::default() };
    let error = World::default().build().sessions.update(&scope(), "one", update).await.expect_err("name");
    assert!(matches!(error, UpdateSessionError::Use(UseSessionError::Invalid(_))), "{error:?}");
}

#[tokio::test]
async fn a_screenshot_counts_as_use_while_it_is_taken() {
    let mut world = World::default();
    world
        .engine
        .expect_screenshot()
        .withf(|id, display, region| {
            *id == browser_id(1)
                && *display == session(1).shape.viewport
                && *region == Some(Region { x: 0, y: 0, width: 10, height: 10 })
        })
        .times(1)
        .returning(|_, _, _| Ok(vec![0x89, b'P', b'N', b'G']));
    let casement = world.build();
    casement.activity.watch(&session(1));
    casement.clock.advance(time::Duration::seconds(59));
    let png = casement
        .sessions
        .screenshot(&session(1), |size| Region::parse(size, Some(0), Some(0), Some(10), Some(10)).map(Some))
        .await
        .expect("a picture");
    assert_eq!(png, [0x89, b'P', b'N', b'G']);
    casement.clock.advance(time::Duration::seconds(59));
    assert_eq!(casement.activity.idle(), []);
}

#[tokio::test]
async fn a_region_outside_of_the_display_is_refused_before_the_engine_is_called() {
    let outside =
        |size: Viewport| Region::parse(size, Some(0), Some(0), Some(i64::from(size.width) + 1), Some(1)).map(Some);
    let error = World::default().build().sessions.screenshot(&session(1), outside).await.expect_err("outside");
    let UseSessionError::Invalid(invalid) = error else { panic!("{error:?}") };
    assert_eq!(invalid.fields()[0].field, "region.width");
    let required = |_| Err(InvalidValue::new(FieldCode::Required, "is required"));
    assert!(World::default().build().sessions.screenshot(&session(1), required).await.is_err());
}
