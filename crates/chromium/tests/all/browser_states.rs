//! Tests of cookies and local storage over the debugging protocol, and of their way into a profile and out of it.

use std::sync::Arc;

use casement_chromium::{BrowserState, Cookie, OriginStorage, StateWritten};
use casement_domain::browser::BrowserEngine as _;
use casement_domain::session_operation::OperationError;

use super::cdp::Cdp;
use super::fake_egress::SITE;
use super::profiles::{READ, Source, WRITTEN, capture, fixture, read, with_profile, write};
use super::support::headless;

fn storage(origin: &str, key: &str, value: &str) -> OriginStorage {
    OriginStorage { origin: origin.to_owned(), local_storage: vec![(key.into(), value.into())] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_a_profile_is_read_written_elsewhere_and_saved_again() -> anyhow::Result<()> {
    let mut fixture = fixture(Source::Nothing).await?;
    let session = fixture.start(with_profile(true)).await?;
    write(&fixture.engine, session).await?;
    let profile = capture(&fixture.engine, session).await?;
    fixture.engine.end(session).await?;

    // A browser of the profile, in which no page was opened.
    fixture.engine = fixture.engine.clone().with_profiles(Arc::new(Source::Whole(profile.clone())));
    let loader = fixture.start(with_profile(false)).await?;
    let reading = fixture.engine.read_state(loader, Vec::new()).await?;
    assert!(reading.origins_listed && reading.origins_left_out == 0 && reading.cookies_left_out == 0);
    let mut state = reading.state;
    let names: Vec<&str> = state.cookies.iter().map(|cookie| cookie.name.as_str()).collect();
    assert_eq!((names.len(), names.contains(&"ends"), names.contains(&"stays")), (2, true, true));
    assert_eq!(state.origins, [storage(SITE, "kept", "here")]);
    assert_eq!(fixture.egress.requested_by(&loader.to_string()), Vec::<String>::new());
    fixture.engine.end(loader).await?;

    // A browser without the profile, in which the session continues.
    let other = fixture.start(headless()).await?;
    assert_eq!(fixture.engine.write_state(other, &state).await?, StateWritten::default());
    assert_eq!(read(&fixture.engine, other).await?, WRITTEN);
    fixture.engine.end(other).await?;

    // Its changes, saved into the profile.
    state.cookies.retain(|cookie| cookie.name != "ends");
    state.cookies.push(Cookie {
        name: "new".into(),
        domain: "localhost".into(),
        path: "/".into(),
        ..Cookie::default()
    });
    state.origins = vec![storage(SITE, "kept", "changed")];
    let saver = fixture.start(with_profile(true)).await?;
    fixture.engine.write_state(saver, &state).await?;
    let saved = capture(&fixture.engine, saver).await?;
    fixture.engine.end(saver).await?;
    fixture.engine = fixture.engine.clone().with_profiles(Arc::new(Source::Whole(saved)));
    let next = fixture.start(with_profile(false)).await?;
    let mut page = Cdp::attach(&fixture.engine, next).await?;
    assert!(page.open(SITE).await?.is_none());
    assert_eq!(page.evaluate(READ).await?, "new=,stays=1changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_that_has_ended_has_no_state() -> anyhow::Result<()> {
    let fixture = fixture(Source::Nothing).await?;
    let id = fixture.start(headless()).await?;
    fixture.engine.end(id).await?;
    let read = fixture.engine.read_state(id, Vec::new()).await;
    assert!(matches!(read, Err(OperationError::Engine(_))), "{read:?}");
    let written = fixture.engine.write_state(id, &BrowserState::default()).await;
    assert!(matches!(written, Err(OperationError::Engine(_))), "{written:?}");
    Ok(())
}
