//! Tests of extensions: storing, resolving, and restarts of browsers.

use casement_domain::ExtensionId;
use casement_domain::browser::{EngineError, Shape, Viewport};
use casement_domain::extension::Extension;
use casement_domain::field::FieldCode;
use casement_domain::pool::{PoolRequest, PoolStored};
use casement_domain::reference::Reference;
use casement_domain::session::{
    CreateSessionError, Created, IdOrName, SessionRequest, SessionUpdateRequest, UpdateSessionError, UseSessionError,
    ViewportRequest,
};
use casement_domain::testing::{NOON, project_id, scope, session};
use casement_domain::{Replaced, SessionId, UseCaseError};
use ulid::Ulid;

use crate::support::{World, default_shape};

fn id(n: u128) -> ExtensionId {
    ExtensionId::from_ulid(Ulid::from_parts(11, n))
}

fn named(name: &str) -> Reference {
    Reference { id: None, name: Some(name.to_owned()) }
}

fn by_id(text: String) -> Reference {
    Reference { id: Some(text), name: None }
}

/// Returns a world in which the project has the extensions `red` and `blue`.
fn world() -> World {
    let mut world = World::default();
    world.extensions.expect_find().returning(|project, which| {
        let n = match which {
            IdOrName::Name(name) if name == "red" => 1,
            IdOrName::Id(wanted) if *wanted == id(2) => 2,
            _ => return Ok(None),
        };
        Ok(Some(Extension {
            id: id(n),
            project,
            name: None,
            size_bytes: 1,
            checksum: String::new(),
            created_at: NOON,
            last_used_at: None,
        }))
    });
    world
}

#[tokio::test]
async fn a_session_is_started_with_the_extensions_it_names_in_their_order() {
    let mut world = world();
    world.spares.expect_take().returning(|shape| {
        assert_eq!(shape.extensions, [id(2), id(1)], "no spare has them");
        None
    });
    world.sessions.expect_create().returning(|_, session, _| {
        assert_eq!((session.project, &session.shape.extensions), (project_id(), &vec![id(2), id(1)]));
        Ok(Created::Yes)
    });
    world
        .engine
        .expect_start()
        .times(1)
        .withf(|launch| launch.shape.extensions == [id(2), id(1)])
        .returning(|_| Ok(Default::default()));
    world.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    world.engine.expect_hand_out().returning(|_, _| Ok(()));
    let extensions = vec![by_id(id(2).to_string()), named("red"), by_id(id(2).to_string())];
    let request = SessionRequest { extensions, ..SessionRequest::default() };
    let made = world.build().sessions.create(&scope(), request).await.expect("a session");
    assert_eq!(made.shape, Shape { extensions: vec![id(2), id(1)], ..default_shape() });
}

#[tokio::test]
async fn each_missing_extension_is_named_before_anything_is_reserved() {
    let requested =
        || vec![named("none"), named("red"), by_id(id(9).to_string()), by_id("red".to_owned()), named("red\0")];
    let request = SessionRequest { extensions: requested(), ..SessionRequest::default() };
    let Err(CreateSessionError::Invalid(invalid)) = world().build().sessions.create(&scope(), request).await else {
        panic!("they were found");
    };
    let fields: Vec<_> = invalid.fields().iter().map(|field| (field.field.as_str(), field.code)).collect();
    let missing = |field| (field, FieldCode::ReferenceNotFound);
    assert_eq!(fields, ["extensions[0]", "extensions[2]", "extensions[3]", "extensions[4]"].map(missing));

    let input = PoolRequest { size: Some(1), extensions: Some(requested()), ..PoolRequest::default() };
    let refused = world().build().pools.create(&scope(), input).await;
    assert!(matches!(refused, Err(UseCaseError::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn an_extension_deleted_while_its_pool_is_stored_is_not_found() {
    let mut world = world();
    world.pools.expect_create().times(1).returning(|_, _, _| Ok(PoolStored::ExtensionGone));
    let input = PoolRequest { size: Some(1), extensions: Some(vec![named("red")]), ..PoolRequest::default() };
    let Err(UseCaseError::Invalid(invalid)) = world.build().pools.create(&scope(), input).await else {
        panic!("it was stored");
    };
    assert_eq!(invalid.fields()[0].code, FieldCode::ReferenceNotFound);
}

fn larger() -> SessionUpdateRequest {
    let viewport = ViewportRequest { width: Some(5000), height: Some(3000), refresh_rate: None };
    SessionUpdateRequest { viewport: Some(viewport), ..SessionUpdateRequest::default() }
}

/// Returns a world with an active session whose display cannot become larger while its browser runs.
fn with_small_display(headless: bool) -> World {
    let mut world = World::default();
    world.sessions.expect_find_in_project().returning(move |_, _, _| {
        let mut found = session(1);
        found.shape.headless = headless;
        Ok(Some(found))
    });
    world.engine.expect_is_recording().returning(|_| Ok(false));
    world.engine.expect_set_viewport().returning(|_, _| Err(EngineError::OutOfRange("too large".to_owned())));
    world
}

#[tokio::test]
async fn a_viewport_larger_than_the_display_restarts_the_browser_and_closes_connections() {
    let mut world = with_small_display(false);
    let reported = |of: SessionId| of == session(1).id;
    world.connections.expect_restarted().times(2).withf(move |of| reported(*of)).returning(|_| ());
    let size = |viewport: &Viewport| (viewport.width, viewport.height) == (5000, 3000);
    world
        .engine
        .expect_restart_with_viewport()
        .times(1)
        .withf(move |_, viewport| size(viewport))
        .returning(|_, _| Ok(()));
    world.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    world.sessions.expect_set_viewport().times(1).returning(|_, _| Ok(()));
    world.build().sessions.update(&scope(), "s", larger()).await.expect("it is larger");
}

#[tokio::test]
async fn without_a_display_a_size_that_cannot_be_is_refused_and_nothing_ends() {
    let refused = with_small_display(true).build().sessions.update(&scope(), "s", larger()).await;
    let out_of_range =
        matches!(&refused, Err(UpdateSessionError::Use(UseSessionError::Engine(EngineError::OutOfRange(_)))));
    assert!(out_of_range, "{refused:?}");
}
