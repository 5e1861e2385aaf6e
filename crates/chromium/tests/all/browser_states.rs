//! Tests of cookies and local storage over the debugging protocol, and of their way into a profile and out of it.

use std::sync::Arc;

use bytes::Bytes;
use casement_chromium::{BrowserState, Cookie, OriginStorage, ProfileStates, StateWritten};
use casement_domain::browser::{BrowserEngine as _, EngineError};
use casement_domain::clock::IdSource;
use casement_domain::ids::{BrowserId, ProfileId, ProfileVersionId};
use casement_domain::profile::LoadedProfile;
use casement_domain::proxy::{MockProxyRoutes, Route};
use casement_domain::session_operation::OperationError;
use futures_util::TryStreamExt as _;
use parking_lot::Mutex;
use ulid::Ulid;

use super::cdp::Cdp;
use super::fake_egress::SITE;
use super::profiles::{READ, Source, WRITTEN, capture, fixture, read, with_profile, write};
use super::support::{Fixture, headless, new_id, until};

fn storage(origin: &str, key: &str, value: &str) -> OriginStorage {
    OriginStorage { origin: origin.to_owned(), local_storage: vec![(key.into(), value.into())] }
}

/// Mints identifiers and records them.
#[derive(Default)]
struct Ids(Mutex<Vec<BrowserId>>);

impl Ids {
    fn minted(&self) -> Vec<BrowserId> {
        self.0.lock().clone()
    }

    /// Waits until nothing is left of the browsers.
    async fn gone(&self, fixture: &Fixture) -> anyhow::Result<()> {
        let is_gone = || self.minted().iter().all(|id| fixture.remains(*id).is_empty());
        until("no browser is left", is_gone).await
    }
}

impl IdSource for Ids {
    fn next(&self) -> Ulid {
        let id = new_id();
        self.0.lock().push(id);
        id.ulid()
    }
}

/// Returns the states of the profiles of an engine, and the identifiers of the browsers that are started for them.
fn states(fixture: &Fixture) -> (ProfileStates, Arc<Ids>) {
    let mut routes = MockProxyRoutes::new();
    routes.expect_set().returning(|_, policy| assert!(matches!(policy.route, Route::Nowhere)));
    routes.expect_forget().return_const(());
    let ids = Arc::new(Ids::default());
    (ProfileStates::new(fixture.engine.clone(), Arc::new(routes), ids.clone()), ids)
}

fn stored() -> LoadedProfile {
    let id = ProfileId::from_ulid(Ulid::from_parts(1, 1));
    let version = Some(ProfileVersionId::from_ulid(Ulid::from_parts(1, 2)));
    LoadedProfile { id, version, save_changes: true }
}

/// Returns a profile that a session has made.
async fn made() -> anyhow::Result<Vec<u8>> {
    let fixture = fixture(Source::Nothing).await?;
    let session = fixture.start(with_profile(true)).await?;
    write(&fixture.engine, session).await?;
    capture(&fixture.engine, session).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_a_profile_is_read_written_elsewhere_and_saved_again() -> anyhow::Result<()> {
    let fixture = fixture(Source::Whole(made().await?)).await?;
    let (states, started) = states(&fixture);
    let (one, other) = tokio::join!(states.load(stored()), states.load(stored()));
    let reading = one?;
    assert!(Arc::ptr_eq(&reading, &other?) && Arc::ptr_eq(&reading, &states.load(stored()).await?));
    assert_eq!(started.minted().len(), 1, "one browser for all");
    started.gone(&fixture).await?;
    assert!(reading.origins_listed && reading.origins_left_out == 0 && reading.cookies_left_out == 0);
    let names: Vec<&str> = reading.state.cookies.iter().map(|cookie| cookie.name.as_str()).collect();
    assert_eq!((names.len(), names.contains(&"ends"), names.contains(&"stays")), (2, true, true));
    assert_eq!(reading.state.origins, [storage(SITE, "kept", "here")]);

    let elsewhere = fixture.start(headless()).await?;
    assert_eq!(fixture.engine.write_state(elsewhere, &reading.state).await?, StateWritten::default());
    assert_eq!(fixture.egress.requested_by(&elsewhere.to_string()), Vec::<String>::new());
    assert_eq!(read(&fixture.engine, elsewhere).await?, WRITTEN);
    fixture.engine.end(elsewhere).await?;

    let mut changed = reading.state.clone();
    changed.cookies.retain(|cookie| cookie.name != "ends");
    changed.cookies.push(Cookie {
        name: "new".into(),
        domain: "localhost".into(),
        path: "/".into(),
        ..Cookie::default()
    });
    changed.origins = vec![storage(SITE, "kept", "changed")];
    let saved = states.save(stored(), &changed).await?.try_collect::<Vec<Bytes>>().await?.concat();
    started.gone(&fixture).await?;
    let next = super::profiles::fixture(Source::Whole(saved)).await?;
    let id = next.start(with_profile(false)).await?;
    let mut page = Cdp::attach(&next.engine, id).await?;
    assert!(page.open(SITE).await?.is_none());
    assert_eq!(page.evaluate(READ).await?, "new=,stays=1changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_that_was_never_saved_is_empty_and_can_be_saved() -> anyhow::Result<()> {
    let fixture = fixture(Source::Nothing).await?;
    let (states, started) = states(&fixture);
    let unsaved = LoadedProfile { version: None, ..stored() };
    assert_eq!(states.load(unsaved).await?.state, BrowserState::default());
    assert_eq!(started.minted(), []);
    let state = BrowserState { origins: vec![storage(SITE, "kept", "first")], ..BrowserState::default() };
    // A caller that stops reading leaves no browser.
    drop(states.save(unsaved, &state).await?);
    started.gone(&fixture).await?;
    let saved = states.save(unsaved, &state).await?.try_collect::<Vec<Bytes>>().await?.concat();
    let next = super::profiles::fixture(Source::Whole(saved)).await?;
    let (states, _) = self::states(&next);
    assert_eq!(states.load(stored()).await?.state, state);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_that_is_gone_is_an_error_and_leaves_no_browser() -> anyhow::Result<()> {
    let fixture = fixture(Source::Gone).await?;
    let (states, started) = states(&fixture);
    let loaded = states.load(stored()).await;
    assert!(matches!(loaded, Err(OperationError::Engine(EngineError::Profile(_)))), "{loaded:?}");
    started.gone(&fixture).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_that_does_not_run_has_no_state() -> anyhow::Result<()> {
    let fixture = fixture(Source::Nothing).await?;
    let id: BrowserId = new_id();
    let read = fixture.engine.read_state(id, Vec::new()).await;
    assert!(matches!(read, Err(OperationError::Engine(EngineError::NotRunning(_)))), "{read:?}");
    let written = fixture.engine.write_state(id, &BrowserState::default()).await;
    assert!(matches!(written, Err(OperationError::Engine(EngineError::NotRunning(_)))), "{written:?}");
    Ok(())
}
